//! Reads back from the kernel what holds for init, and with it for everything it starts.

use super::Sandbox;
use crate::report::{Control, Enforced, Outcome};
use std::fs;

pub(super) fn verify(sandbox: &Sandbox) -> Enforced {
    let mut report = sandbox.enforced.clone();
    let Some(init) = &sandbox.init else { return report };
    let pid = init.pid.as_raw_nonzero().get();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    for control in &mut report.controls {
        if control.outcome == Outcome::Missing {
            continue;
        }
        let read = match control.control {
            Control::NoNewPrivs => expect(field("NoNewPrivs:"), "NoNewPrivs", |v| v == "1"),
            Control::Seccomp => expect(field("Seccomp:"), "Seccomp", |v| v == "2"),
            Control::Capabilities => {
                expect(field("CapBnd:"), "bounding set of init", |v| v.trim_start_matches('0').len() <= 3)
            }
            Control::UidMapping => read_map(pid),
            Control::MemoryLimit | Control::CpuLimit | Control::PidsLimit => {
                sandbox.cgroup.read_back(control.control).map(|text| (true, text))
            }
            other => namespace(other).and_then(|name| compare_namespace(pid, name)),
        };
        if let Some((holds, text)) = read {
            control.detail = format!("{}; read back: {text}", control.detail);
            if !holds {
                control.outcome = Outcome::Missing;
            }
        }
    }
    report.verified = true;
    report
}

fn expect(value: Option<&str>, name: &str, holds: impl Fn(&str) -> bool) -> Option<(bool, String)> {
    value.map(|value| (holds(value), format!("{name} {value}")))
}

fn read_map(pid: i32) -> Option<(bool, String)> {
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).ok()?;
    let words: Vec<&str> = map.split_whitespace().collect();
    // Nobody inside may be the host's root.
    let harmless =
        words.get(1).is_some_and(|outside| *outside != "0") || !rustix::process::geteuid().is_root();
    Some((harmless, words.join(" ")))
}

fn namespace(control: Control) -> Option<&'static str> {
    Some(match control {
        Control::UserNamespace => "user",
        Control::MountNamespace => "mnt",
        Control::PidNamespace => "pid",
        Control::NetworkNamespace => "net",
        Control::IpcNamespace => "ipc",
        Control::UtsNamespace => "uts",
        Control::CgroupNamespace => "cgroup",
        _ => return None,
    })
}

/// An ordinary user may not look at init's, which is not dumpable; then the step's own word stands.
fn compare_namespace(pid: i32, name: &str) -> Option<(bool, String)> {
    let theirs = fs::read_link(format!("/proc/{pid}/ns/{name}")).ok()?;
    let ours = fs::read_link(format!("/proc/self/ns/{name}")).ok()?;
    Some((theirs != ours, theirs.display().to_string()))
}
