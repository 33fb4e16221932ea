//! What isolates a sandbox of this kind, in plain words.

use sandboxer_core::extension::ProvisionRequest;
use sandboxer_core::isolation::{Control, Outcome};

pub(crate) fn controls(request: &ProvisionRequest) -> Vec<Control> {
    let control = |name: &str, outcome: Outcome, detail: &str| Control {
        name: name.to_owned(),
        outcome,
        detail: detail.to_owned(),
    };
    let mut controls = vec![
        control(
            "boundary",
            Outcome::Enforced,
            "the network between this machine and the host, reached by SSH with a pinned key",
        ),
        control("filesystem", Outcome::Missing, "commands see what the account on the host sees"),
        control("processes", Outcome::Missing, "commands see and reach the account's other processes"),
        control("network", Outcome::Missing, "commands have the host's network"),
        control(
            "deadline",
            Outcome::Enforced,
            "a guard process on the host ends the sandbox, whoever lives then",
        ),
    ];
    let limits = &request.spec.resources;
    let asked = [
        ("cpu", limits.cpu.is_some()),
        ("memory", limits.memory_mb.is_some()),
        ("disk", limits.disk_mb.is_some()),
        ("pids", limits.pids.is_some()),
    ];
    for (name, _) in asked.into_iter().filter(|(_, asked)| *asked) {
        controls.push(control(name, Outcome::Missing, "an account on a host has no limits of ours"));
    }
    controls
}
