//! What was really enforced, read back from the engine.

use sandboxer_core::isolation::{Control, Outcome};
use sandboxer_core::profile::{Danger, Resources};

use crate::inspect::{Container, Surroundings};
use crate::judge::{Lifted, word};
use crate::rewrite::DROPPED_CAPABILITIES;

fn control(name: &str, outcome: Outcome, detail: impl Into<String>) -> Control {
    Control { name: name.into(), outcome, detail: detail.into() }
}

/// `Enforced`, unless some containers are named for which it is not.
fn unless(name: &str, offenders: Vec<&str>, otherwise: Outcome, good: &str, bad: &str) -> Control {
    if offenders.is_empty() {
        control(name, Outcome::Enforced, good)
    } else {
        control(name, otherwise, format!("{bad}: {}", offenders.join(", ")))
    }
}

/// Every control of the stack.
pub(crate) fn read_back(
    containers: &[Container],
    around: &Surroundings,
    project: &str,
    resources: &Resources,
    lifted: &[Lifted],
) -> Vec<Control> {
    let which = |is: &dyn Fn(&Container) -> bool| -> Vec<&str> {
        containers.iter().filter(|one| is(one)).map(Container::service).collect()
    };
    let shares_host = |mode: &str| mode == "host" || mode.starts_with("container:") && !mode.contains("sbx_");
    let mut out = vec![
        unless(
            "namespaces",
            which(&|one| {
                let host = &one.host_config;
                [&host.pid_mode, &host.ipc_mode, &host.uts_mode, &host.network_mode]
                    .iter()
                    .any(|mode| shares_host(mode))
            }),
            Outcome::Missing,
            "pid, mount, network, ipc and uts namespaces per service",
            "the host's namespaces are shared by",
        ),
        unless(
            "unprivileged",
            which(&|one| one.host_config.privileged),
            Outcome::Missing,
            "no service is privileged",
            "privileged",
        ),
        unless(
            "no_new_privileges",
            which(&|one| !option(one, "no-new-privileges")),
            Outcome::Missing,
            "set for every service",
            "not set for",
        ),
        capabilities(containers),
        filter("seccomp", containers, around),
        filter("apparmor", containers, around),
    ];
    out.push(
        if around.security.iter().any(|one| one.contains("name=userns") || one.contains("name=rootless")) {
            control("user_namespace", Outcome::Enforced, "root inside is not root on the host")
        } else {
            control(
                "user_namespace",
                Outcome::Missing,
                "the engine does not remap users: root inside is root on the host, without its capabilities",
            )
        },
    );
    out.push(egress(around));
    out.push(unless(
        "host_paths",
        which(&|one| one.mounts.iter().any(|mount| mount.kind == "bind" && !below(&mount.source, project))),
        Outcome::Missing,
        "only the bundle and volumes of the stack are mounted",
        "other paths of the host are mounted by",
    ));
    out.push(unless(
        "read_only_root",
        which(&|one| !one.host_config.readonly_rootfs),
        Outcome::Missing,
        "every root file system is read-only",
        "as the compose file has it, the root file system is writable in",
    ));
    out.push(limit("memory_limit", resources.memory_mb.is_some(), which(&|one| one.host_config.memory <= 0)));
    out.push(limit("cpu_limit", resources.cpu.is_some(), which(&|one| one.host_config.nano_cpus <= 0)));
    out.push(limit(
        "pids_limit",
        resources.pids.is_some(),
        which(&|one| one.host_config.pids_limit.unwrap_or(0) <= 0),
    ));
    if resources.disk_mb.is_some() {
        out.push(control(
            "disk_limit",
            Outcome::Missing,
            "the engine has no quota for volumes and containers",
        ));
    }
    for danger in [
        Danger::Privileged,
        Danger::DockerSocket,
        Danger::HostPaths,
        Danger::HostNamespaces,
        Danger::OpenNetwork,
    ] {
        let what: Vec<String> = lifted
            .iter()
            .filter(|one| one.danger == danger)
            .map(|one| format!("{}: {}", one.place, one.what))
            .collect();
        if !what.is_empty() {
            let detail = format!("lifted by the profile: {}", what.join("; "));
            out.push(control(&format!("dangerously_allow.{}", word(danger)), Outcome::Missing, detail));
        }
    }
    out
}

fn below(path: &str, project: &str) -> bool {
    path.strip_prefix(project).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn option(container: &Container, name: &str) -> bool {
    let options = container.host_config.security_opt.as_deref().unwrap_or_default();
    options.iter().any(|one| one == name || one == &format!("{name}:true") || one == &format!("{name}=true"))
}

fn capabilities(containers: &[Container]) -> Control {
    let name = "capabilities";
    let has = |list: &Option<Vec<String>>, wanted: &str| {
        list.as_deref().unwrap_or_default().iter().any(|one| {
            let one = one.trim_start_matches("CAP_");
            one.eq_ignore_ascii_case(wanted) || one.eq_ignore_ascii_case("ALL")
        })
    };
    let added: Vec<&str> = containers
        .iter()
        .filter(|one| {
            one.host_config.privileged || !one.host_config.cap_add.as_deref().unwrap_or_default().is_empty()
        })
        .map(Container::service)
        .collect();
    if !added.is_empty() {
        return control(name, Outcome::Missing, format!("capabilities are added to {}", added.join(", ")));
    }
    if containers.iter().all(|one| has(&one.host_config.cap_drop, "ALL")) {
        return control(name, Outcome::Enforced, "all dropped");
    }
    let kept: Vec<&str> = containers
        .iter()
        .filter(|one| {
            DROPPED_CAPABILITIES.iter().any(|capability| !has(&one.host_config.cap_drop, capability))
        })
        .map(Container::service)
        .collect();
    let detail = "services keep the engine's default set, which many need to start";
    if kept.is_empty() {
        control(name, Outcome::Degraded, format!("{detail}, without {}", DROPPED_CAPABILITIES.join(" and ")))
    } else {
        control(name, Outcome::Degraded, format!("{detail}; in full: {}", kept.join(", ")))
    }
}

/// A filter of the engine that is on unless a service switched it off.
fn filter(name: &str, containers: &[Container], around: &Surroundings) -> Control {
    if !around.security.iter().any(|one| one.starts_with(&format!("name={name}"))) {
        return control(name, Outcome::Missing, "the engine has none on this host");
    }
    let off: Vec<&str> = containers
        .iter()
        .filter(|one| {
            let options = one.host_config.security_opt.as_deref().unwrap_or_default();
            one.host_config.privileged
                || options.iter().any(|option| option.starts_with(name) && option.contains("unconfined"))
        })
        .map(Container::service)
        .collect();
    unless(name, off, Outcome::Missing, "the engine's default profile", "switched off in")
}

/// Whether anything gets out.
fn egress(around: &Surroundings) -> Control {
    let name = "network_egress";
    let open: Vec<&str> =
        around.networks.iter().filter(|one| !one.internal).map(|one| one.name.as_str()).collect();
    if !open.is_empty() {
        return control(name, Outcome::Missing, format!("these networks reach out: {}", open.join(", ")));
    }
    if around.networks.is_empty() {
        return control(name, Outcome::Enforced, "the stack has no network");
    }
    let ruled = |id: &str| {
        let bridge = format!("br-{}", &id[..id.len().min(12)]);
        around.rules.as_deref().is_some_and(|rules| rules.contains(&bridge))
    };
    if around.networks.iter().all(|network| ruled(&network.id)) {
        let detail = "every network is internal and filtered on the host; services that listen on all addresses of the host stay reachable";
        return control(name, Outcome::Enforced, detail);
    }
    control(
        name,
        Outcome::Degraded,
        "every network is internal, but the engine's filter rules for them could not be read on the host",
    )
}

fn limit(name: &str, wanted: bool, without: Vec<&str>) -> Control {
    if without.is_empty() {
        return control(name, Outcome::Enforced, "divided among the services");
    }
    if wanted {
        control(name, Outcome::Missing, format!("not in force for {}", without.join(", ")))
    } else {
        control(name, Outcome::Missing, "the profile sets none")
    }
}
