//! What really holds, as the container's own process read it inside, next to what the engine says.

use bollard::models::ContainerInspectResponse;
use sandboxer_core::isolation::{Control, Outcome};

/// What the container's process told before it was ready.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Vec<(String, String)>);

impl Told {
    pub(crate) fn parse(text: &str) -> Self {
        Self(
            text.lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(key, value)| (key.into(), value.trim().into()))
                .collect(),
        )
    }

    /// Whether a command's init can be the reaper of what the command leaves behind.
    pub(crate) fn has_reapers(&self) -> bool {
        self.get("reaper:") != Some("0")
    }

    fn get(&self, key: &str) -> Option<&str> {
        // Of several mounts in one place the last one counts.
        self.0.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

/// The controls without which a container is no boundary.
const REQUIRED: [&str; 6] =
    ["network", "capabilities", "no_new_privileges", "seccomp", "read_only_root", "gvisor"];

pub(crate) fn of(told: &Told, state: &ContainerInspectResponse, user: &str) -> Vec<Control> {
    let host = state.host_config.clone().unwrap_or_default();
    let runtime = host.runtime.clone().unwrap_or_default();
    let sentry = is_gvisor(&runtime).then(|| gvisor(told));
    let mut controls = vec![
        namespaces(&host.pid_mode, &host.ipc_mode),
        network(told),
        capabilities(told),
        no_new_privileges(told, sentry.as_ref()),
        seccomp(told, sentry.as_ref()),
        expect("read_only_root", told.get("mount:/"), "ro", "the root is mounted"),
        control("unprivileged_user", Outcome::Enforced, format!("commands run as {user}")),
        apparmor(state.app_armor_profile.as_deref()),
        limit("memory_limit", told.get("memory:"), host.memory.map(|bytes| bytes.to_string())),
        limit("pids_limit", told.get("pids:"), host.pids_limit.map(|count| count.to_string())),
        cpu(told, host.nano_cpus),
        control("disk_limit", Outcome::Missing, "the engine has no quota for the workspace's volume"),
    ];
    if let Some(sentry) = sentry {
        controls.push(sentry);
    } else if !runtime.is_empty() && runtime != "runc" {
        controls.push(control(
            "runtime",
            Outcome::Enforced,
            format!("{runtime}; {}", told.get("kernel:").unwrap_or("kernel unknown")),
        ));
    }
    controls
}

/// Controls that a boundary needs and that are not in force.
pub(crate) fn missing(controls: &[Control]) -> Vec<&Control> {
    controls
        .iter()
        .filter(|control| control.outcome == Outcome::Missing && REQUIRED.contains(&control.name.as_str()))
        .collect()
}

fn control(name: &str, outcome: Outcome, detail: impl Into<String>) -> Control {
    Control { name: name.into(), outcome, detail: detail.into() }
}

fn is_gvisor(runtime: &str) -> bool {
    runtime.contains("runsc") || runtime.contains("gvisor")
}

/// gVisor is a kernel of its own, so the one inside tells another version than the machine's.
fn gvisor(told: &Told) -> Control {
    let machine = rustix::system::uname().release().to_string_lossy().into_owned();
    match told.get("kernel:") {
        Some(kernel) if !kernel.contains(&machine) => {
            control("gvisor", Outcome::Enforced, format!("system calls are served by gVisor: {kernel}"))
        }
        kernel => {
            control("gvisor", Outcome::Missing, format!("the kernel inside is the machine's: {kernel:?}"))
        }
    }
}

fn expect(name: &str, value: Option<&str>, wanted: &str, what: &str) -> Control {
    match value {
        Some(value) if value == wanted => {
            control(name, Outcome::Enforced, format!("{what} {value}, read inside"))
        }
        Some(value) => control(name, Outcome::Missing, format!("{what} {value}, not {wanted}")),
        None => control(name, Outcome::Missing, format!("{what} cannot be read inside")),
    }
}

fn no_new_privileges(told: &Told, gvisor: Option<&Control>) -> Control {
    match (told.get("NoNewPrivs:"), gvisor) {
        (None, Some(sentry)) if sentry.outcome == Outcome::Enforced => control(
            "no_new_privileges",
            Outcome::Degraded,
            "the engine was asked for it; gVisor does not show whether it is set",
        ),
        (value, _) => expect("no_new_privileges", value, "1", "NoNewPrivs"),
    }
}

fn namespaces(pid: &Option<String>, ipc: &Option<String>) -> Control {
    let shared: Vec<&str> =
        [pid, ipc].into_iter().flatten().map(String::as_str).filter(|mode| *mode == "host").collect();
    match shared.is_empty() {
        true => {
            control("namespaces", Outcome::Enforced, "pid, mount, network, ipc, uts and cgroup of its own")
        }
        false => control("namespaces", Outcome::Missing, "a namespace is the host's"),
    }
}

fn network(told: &Told) -> Control {
    let others: Vec<&str> = told.all("interface:").filter(|name| *name != "lo").collect();
    match (others.is_empty(), told.all("interface:").next()) {
        (true, Some(_)) => {
            control("network", Outcome::Enforced, "no interface but the loopback, read inside")
        }
        (true, None) => control("network", Outcome::Enforced, "no interface at all, read inside"),
        // Tunnel devices that the kernel puts into every namespace are down and lead nowhere without NET_ADMIN.
        (false, _) if others.iter().all(|name| is_fallback(name)) => control(
            "network",
            Outcome::Enforced,
            format!("the loopback and idle tunnels ({}), read inside", others.join(", ")),
        ),
        (false, _) => {
            control("network", Outcome::Missing, format!("there are interfaces: {}", others.join(", ")))
        }
    }
}

fn is_fallback(name: &str) -> bool {
    ["tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0"]
        .contains(&name)
}

fn capabilities(told: &Told) -> Control {
    match (told.get("CapEff:"), told.get("CapBnd:")) {
        (Some(effective), Some(bounding)) if is_zero(effective) && is_zero(bounding) => {
            control("capabilities", Outcome::Enforced, "none, effective and bounding, read inside")
        }
        (effective, bounding) => control(
            "capabilities",
            Outcome::Missing,
            format!("effective {effective:?}, bounding {bounding:?}"),
        ),
    }
}

fn is_zero(mask: &str) -> bool {
    mask.bytes().all(|byte| byte == b'0')
}

fn seccomp(told: &Told, gvisor: Option<&Control>) -> Control {
    match (told.get("Seccomp:"), gvisor) {
        (_, Some(sentry)) if sentry.outcome == Outcome::Enforced => {
            control("seccomp", Outcome::Enforced, "system calls end in gVisor, which filters its own")
        }
        (Some("2"), _) => {
            control("seccomp", Outcome::Enforced, "the engine's default filter, mode 2 read inside")
        }
        (mode, _) => control("seccomp", Outcome::Missing, format!("the mode inside is {mode:?}, not 2")),
    }
}

fn apparmor(profile: Option<&str>) -> Control {
    match profile {
        Some(profile) if !profile.is_empty() && profile != "unconfined" => {
            control("apparmor", Outcome::Enforced, profile)
        }
        _ => control("apparmor", Outcome::Missing, "the engine has no AppArmor on this machine"),
    }
}

/// A limit that the engine was asked for and, where the container shows its cgroup, that is in force.
fn limit(name: &str, inside: Option<&str>, asked: Option<String>) -> Control {
    let asked = asked.unwrap_or_default();
    match inside {
        Some(value) if value == asked => control(name, Outcome::Enforced, format!("{value}, read inside")),
        Some(value) => control(name, Outcome::Missing, format!("asked for {asked}, in force is {value}")),
        None => control(
            name,
            Outcome::Degraded,
            format!("{asked} was asked for; the sandbox does not show what is in force"),
        ),
    }
}

fn cpu(told: &Told, asked: Option<i64>) -> Control {
    let asked = asked.unwrap_or_default();
    let detail = format!("{}.{:03} processors", asked / 1_000_000_000, asked / 1_000_000 % 1_000);
    // cgroup v1 tells the quota of a period of 100 ms, v2 both numbers.
    let quota = told.get("cpu_quota:").and_then(|value| value.split(' ').next()).map(str::to_owned);
    match quota {
        Some(quota) if quota.parse() == Ok(asked / 10_000) => {
            control("cpu_limit", Outcome::Enforced, format!("{detail}, read inside"))
        }
        Some(quota) => control(
            "cpu_limit",
            Outcome::Missing,
            format!("asked for {detail}, the quota in force is {quota}"),
        ),
        None => control(
            "cpu_limit",
            Outcome::Degraded,
            format!("{detail} asked for; the sandbox does not show what is in force"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "CapEff: 0000000000000000\nCapBnd: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\nmount:/ rw\nmount:/ ro\ninterface: lo\nkernel: Linux version 9\nready";

    fn names(text: &str) -> Vec<String> {
        let controls = of(&Told::parse(text), &ContainerInspectResponse::default(), "1000:1000");
        missing(&controls).into_iter().map(|control| control.name.clone()).collect()
    }

    #[test]
    fn nothing_is_missing_when_everything_was_read() {
        assert_eq!(names(GOOD), Vec::<String>::new());
    }

    #[test]
    fn what_was_not_read_is_missing() {
        assert_eq!(
            names(&GOOD.replace("CapEff: 0000000000000000", "CapEff: 00000000a80425fb")),
            ["capabilities"]
        );
        assert_eq!(names(&GOOD.replace("interface: lo", "interface: lo\ninterface: eth0")), ["network"]);
        assert_eq!(names(&GOOD.replace("mount:/ ro\n", "")), ["read_only_root"]);
        assert_eq!(names(&GOOD.replace("Seccomp: 2", "Seccomp: 0")), ["seccomp"]);
        assert_eq!(names(""), ["capabilities", "no_new_privileges", "seccomp", "read_only_root"]);
    }
}
