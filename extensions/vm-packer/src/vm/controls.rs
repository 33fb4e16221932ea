//! What holds a machine, read back from the kernel and from QEMU itself.

use sandboxer_core::Result;
use sandboxer_core::isolation::{Control, Outcome};
use sandboxer_core::profile::Resources;

use super::process::Process;
use super::{Accelerator, Qmp, Size};

fn control(name: &str, outcome: Outcome, detail: impl Into<String>) -> Control {
    Control { name: name.into(), outcome, detail: detail.into() }
}

pub(crate) async fn read_back(
    qmp: &mut Qmp,
    process: Process,
    accelerator: Accelerator,
    size: Size,
    wanted: &Resources,
) -> Result<Vec<Control>> {
    let version = qmp.execute("query-version", serde_json::Value::Null).await?;
    let number = |part: &str| version["qemu"][part].as_u64().unwrap_or_default();
    let qemu = format!("QEMU {}.{}.{}", number("major"), number("minor"), number("micro"));
    let kvm = qmp.execute("query-kvm", serde_json::Value::Null).await?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
    let mut out = vec![
        control("virtual_machine", Outcome::Enforced, format!("a kernel of its own under {qemu}")),
        match kvm["enabled"].as_bool() {
            Some(true) => {
                control("accelerator", Outcome::Enforced, "kvm: the processor keeps the guest apart")
            }
            _ => control(
                "accelerator",
                Outcome::Degraded,
                format!(
                    "{}: software keeps the guest apart, for which QEMU's authors promise less than for kvm",
                    accelerator.as_str()
                ),
            ),
        },
        network(&qmp.monitor("info network").await?),
    ];
    out.extend(of_process(&status));
    out.push(memory(qmp, size).await?);
    out.push(cpu(wanted, size));
    out.push(control(
        "disk_limit",
        Outcome::Enforced,
        format!("the overlay's disk has {} MB", size.disk_bytes >> 20),
    ));
    if let Some(pids) = wanted.pids {
        out.push(control(
            "pids_limit",
            Outcome::Missing,
            format!("the guest's own kernel has its processes, and nothing there holds them to {pids}"),
        ));
    }
    Ok(out)
}

fn network(said: &str) -> Control {
    if said.contains("type=user") && said.contains("restrict=on") {
        control(
            "network",
            Outcome::Enforced,
            "QEMU's user network with restrict=on: the guest reaches nobody",
        )
    } else {
        control("network", Outcome::Missing, "QEMU does not confirm that the guest's network is restricted")
    }
}

/// What the kernel says about QEMU's own process.
fn of_process(status: &str) -> Vec<Control> {
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(|value| value.split_whitespace().next().unwrap_or_default().to_owned())
            .unwrap_or_default()
    };
    let seccomp = match field("Seccomp").as_str() {
        "2" => control(
            "qemu_seccomp",
            Outcome::Enforced,
            "QEMU may not start programs, gain rights or use old system calls",
        ),
        _ => control("qemu_seccomp", Outcome::Missing, "this QEMU has no seccomp filter"),
    };
    let user = match (field("Uid").as_str(), rustix::process::geteuid().as_raw()) {
        ("0", _) => control("qemu_user", Outcome::Missing, "QEMU runs as root"),
        (uid, ours) if uid == ours.to_string() => {
            control("qemu_user", Outcome::Degraded, format!("QEMU runs as the user who started it ({uid})"))
        }
        (uid, _) => {
            control("qemu_user", Outcome::Enforced, format!("QEMU runs as a user of its own ({uid})"))
        }
    };
    let rights = match (field("CapEff").trim_start_matches('0'), field("NoNewPrivs").as_str()) {
        ("", "1") => control("qemu_privileges", Outcome::Enforced, "no capabilities, and none to be gained"),
        ("", _) => control(
            "qemu_privileges",
            Outcome::Degraded,
            "no capabilities, but programs with setuid could give some",
        ),
        (held, _) => {
            control("qemu_privileges", Outcome::Missing, format!("QEMU holds the capabilities {held}"))
        }
    };
    vec![seccomp, user, rights]
}

async fn memory(qmp: &mut Qmp, size: Size) -> Result<Control> {
    let summary = qmp.execute("query-memory-size-summary", serde_json::Value::Null).await?;
    let bytes = summary["base-memory"].as_u64().unwrap_or_default();
    Ok(match bytes >> 20 == size.memory_mb {
        true => control("memory_limit", Outcome::Enforced, format!("the machine has {} MB", size.memory_mb)),
        false => control("memory_limit", Outcome::Degraded, format!("the machine has {} MB", bytes >> 20)),
    })
}

fn cpu(wanted: &Resources, size: Size) -> Control {
    let detail = format!("the machine has {} virtual processor(s)", size.cpus);
    match wanted.cpu {
        Some(cpu) if cpu < size.cpus as f64 => {
            control("cpu_limit", Outcome::Degraded, format!("{detail}; fractions of one are not held"))
        }
        _ => control("cpu_limit", Outcome::Enforced, detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_what_is_reported() {
        let held =
            of_process("Uid:\t1879048192\t1\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n");
        assert!(held.iter().all(|control| control.outcome == Outcome::Enforced), "{held:?}");
        let loose = of_process("Uid:\t0\t0\nCapEff:\t000001ffffffffff\nNoNewPrivs:\t0\nSeccomp:\t0\n");
        assert!(loose.iter().all(|control| control.outcome == Outcome::Missing), "{loose:?}");
        assert_eq!(network("net0: type=user,restrict=off").outcome, Outcome::Missing);
        assert_eq!(network(" \\ net: index=0,type=user,net=10.0.2.0,restrict=on").outcome, Outcome::Enforced);
    }
}
