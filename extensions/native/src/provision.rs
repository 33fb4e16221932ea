//! From the engine's request to the runtime's spec, and back to a handle.

use sandboxer_core::extension::{CleanupReport, Handle, Leftover, ProvisionRequest};
use sandboxer_core::isolation::{Control, IsolationLevel, Outcome};
use sandboxer_core::profile::{Image, MountAccess, WorkspaceAccess};
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_runtime as runtime;

/// The controls that are limits on resources: reported when they cannot be enforced, but no weaker isolation.
const LIMITS: [runtime::ControlName; 4] = [
    runtime::ControlName::MemoryLimit,
    runtime::ControlName::CpuLimit,
    runtime::ControlName::PidsLimit,
    runtime::ControlName::DiskLimit,
];

pub(crate) fn to_spec(request: &ProvisionRequest) -> Result<runtime::SandboxSpec> {
    let spec = &request.spec;
    if spec.image != Image::Host {
        return Err(Error::unsupported(crate::ID, "images other than `host`"));
    }
    if request.from.is_some() {
        return Err(Error::unsupported(crate::ID, "starting from a snapshot"));
    }
    let resources = &spec.resources;
    let mut out = runtime::SandboxSpec::new(request.tag.clone(), std::time::Duration::ZERO);
    out.deadline_unix_ms = u64::try_from(request.expires_at.as_millisecond()).unwrap_or_default();
    out.idle_timeout_ms = request.idle_reap.map(|idle| idle.as_millis());
    out.hostname = Some("sandbox".into());
    out.env = spec.variables.clone();
    out.limits = runtime::Limits {
        memory_mb: resources.memory_mb,
        cpu: resources.cpu,
        pids: resources.pids.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
        disk_mb: resources.disk_mb,
        tmp_mb: None,
    };
    out.mounts = spec
        .mounts
        .iter()
        .map(|mount| runtime::Mount {
            source: mount.source.clone().into(),
            target: mount.target.clone().into(),
            read_only: mount.access == MountAccess::Ro,
        })
        .collect();
    if spec.workspace.access == WorkspaceAccess::Ro {
        out.workspace_read_only = true;
        // Only the launch itself can still write there.
        out.seed.clone_from(&request.seed);
    }
    out.labels.insert("profile".into(), spec.profile.clone());
    out.allow_degraded = spec.allow_degraded;
    Ok(out)
}

pub(crate) fn to_handle(tag: String, enforced: &runtime::Enforced) -> Result<Handle> {
    let waived = enforced
        .controls
        .iter()
        .any(|control| control.outcome == runtime::Outcome::Missing && !LIMITS.contains(&control.control));
    let controls = enforced.controls.iter().map(to_control).collect::<Result<_>>()?;
    let effective = if waived { IsolationLevel::Policy } else { IsolationLevel::Container };
    let host = sandboxer_core::host::LOCAL.to_owned();
    Ok(Handle { tag, host, effective, controls, degraded: waived, data: serde_json::Value::Null })
}

fn to_control(control: &runtime::EnforcedControl) -> Result<Control> {
    let name = serde_json::to_value(control.control)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .ok_or_else(|| Error::new(ErrorKind::Internal, "a control has no name"))?;
    let outcome = match control.outcome {
        runtime::Outcome::Enforced => Outcome::Enforced,
        runtime::Outcome::Degraded => Outcome::Degraded,
        runtime::Outcome::Missing => Outcome::Missing,
    };
    Ok(Control { name, outcome, detail: control.detail.clone() })
}

pub(crate) fn to_report(report: runtime::CleanupReport) -> CleanupReport {
    let left = report
        .left
        .into_iter()
        .map(|left| Leftover { what: format!("{} {}", left.what, left.path.display()), reason: left.reason });
    CleanupReport { removed: report.removed, left: left.collect() }
}
