//! What kind of boundary there is around a machine that somebody else made: only what it says about itself.

use sandboxer_core::isolation::{Control, IsolationLevel, Outcome};
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Remote};

/// The name of what the machine runs under, as far as it knows; nothing when it knows of nothing.
const DETECT: &str = r#"
if command -v systemd-detect-virt >/dev/null; then
    name=$(systemd-detect-virt --vm 2>/dev/null) && [ "$name" != none ] && { echo "$name (systemd-detect-virt)"; exit 0; }
fi
for file in /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name; do
    { read -r name <"$file"; } 2>/dev/null || continue
    case $name in
    *QEMU*|*KVM*|*VMware*|*VirtualBox*|*innotek*|*Xen*|*Bochs*|*"Virtual Machine"*|*"Amazon EC2"*|*"Google Compute"*|*OpenStack*|*Hetzner*|*Parallels*)
        echo "$name (DMI)"; exit 0;;
    esac
done
grep -qsw hypervisor /proc/cpuinfo && { echo "a hypervisor (processor flag)"; exit 0; }
exit 0
"#;

pub(super) async fn of(remote: &Remote, spec: &SandboxSpec) -> Result<(IsolationLevel, Vec<Control>)> {
    let said = remote.check("asking the machine what it is", Command::script(DETECT, [""; 0])).await?.text();
    let control = |name: &str, outcome, detail: String| Control { name: name.into(), outcome, detail };
    let mut controls = Vec::new();
    let level = if said.is_empty() {
        let detail = "the machine does not say that it is virtual; between here and there is only a network";
        controls.push(control("virtual_machine", Outcome::Missing, detail.into()));
        IsolationLevel::Network
    } else {
        controls.push(control(
            "virtual_machine",
            Outcome::Enforced,
            format!("it says that it runs under {said}"),
        ));
        IsolationLevel::Microvm
    };
    let detail =
        "the machine is shared: its own programs and other sandboxes on it are not kept apart from this one";
    controls.push(control("own_machine", Outcome::Missing, detail.into()));
    let detail = "the network is the machine's own; nothing here closes it";
    controls.push(control("network", Outcome::Missing, detail.into()));
    let resources = &spec.resources;
    for (name, asked) in [
        ("memory_limit", resources.memory_mb.is_some()),
        ("cpu_limit", resources.cpu.is_some()),
        ("disk_limit", resources.disk_mb.is_some()),
        ("pids_limit", resources.pids.is_some()),
    ] {
        if asked {
            controls.push(control(
                name,
                Outcome::Missing,
                "the machine's own limits are all there is".into(),
            ));
        }
    }
    Ok((level, controls))
}

/// Whether the boundary is weaker than asked for and somebody allowed that; an error when nobody did.
pub(super) fn judge(effective: IsolationLevel, spec: &SandboxSpec, vm: &str) -> Result<bool> {
    let wanted = spec.requires.isolation.into_iter().chain([spec.isolation.level]).max().unwrap_or_default();
    if effective >= wanted {
        return Ok(false);
    }
    if spec.allow_degraded {
        return Ok(true);
    }
    Err(Error::new(
        ErrorKind::IsolationUnavailable,
        format!("{vm} does not say that it is a virtual machine, so its isolation is `{effective}` and not `{wanted}`"),
    )
    .with_hint("use ext.ssh with a profile whose isolation is `network`, or allow it with --allow-degraded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weaker_boundary_is_refused_unless_it_is_allowed() {
        let mut spec = SandboxSpec::default();
        spec.isolation.level = IsolationLevel::Microvm;
        let error = judge(IsolationLevel::Network, &spec, "one").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsolationUnavailable);
        assert!(!judge(IsolationLevel::Microvm, &spec, "one").unwrap());
        spec.allow_degraded = true;
        assert!(judge(IsolationLevel::Network, &spec, "one").unwrap());
    }
}
