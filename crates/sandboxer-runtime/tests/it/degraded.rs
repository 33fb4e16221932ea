//! Kernels that lack something, and users that may do less.

use sandboxer_runtime::{ControlName, ErrorKind, Outcome, ProbeOverrides};
use std::os::unix::fs::PermissionsExt as _;

use crate::common::{Fixture, launcher, sh};

#[tokio::test]
async fn the_probe_names_every_feature_and_overrides_switch_them_off() {
    let fixture = Fixture::new();
    let probe = fixture.runtime.probe(ProbeOverrides::default()).unwrap();
    assert!(probe.user_namespaces.is_available(), "{:?}", probe.user_namespaces);
    assert!(probe.overlay_userxattr.is_available(), "{:?}", probe.overlay_userxattr);
    assert_eq!(probe.features().len(), 16);
    let overrides =
        ProbeOverrides { no_user_namespaces: true, no_landlock: true, ..ProbeOverrides::default() };
    let probe = fixture.runtime.probe(overrides).unwrap();
    assert!(!probe.user_namespaces.is_available() && !probe.landlock.is_available());
    assert!(!probe.mount_namespaces.is_available());
    assert_eq!(probe.landlock_abi, 0);
}

#[tokio::test]
async fn a_missing_control_is_an_error_unless_it_is_waived() {
    let no = ProbeOverrides::default();
    let cases = [
        (ProbeOverrides { no_landlock: true, ..no }, "landlock", Some(ControlName::Landlock)),
        (ProbeOverrides { no_seccomp: true, ..no }, "seccomp", Some(ControlName::Seccomp)),
        (
            ProbeOverrides { no_network_namespaces: true, ..no },
            "network_namespace",
            Some(ControlName::NetworkNamespace),
        ),
        (ProbeOverrides { no_uts_namespaces: true, ..no }, "uts_namespace", Some(ControlName::UtsNamespace)),
        (ProbeOverrides { no_ipc_namespaces: true, ..no }, "ipc_namespace", Some(ControlName::IpcNamespace)),
        (
            ProbeOverrides { no_cgroup_namespaces: true, ..no },
            "cgroup_namespace",
            Some(ControlName::CgroupNamespace),
        ),
        (ProbeOverrides { no_user_namespaces: true, ..no }, "user_namespace", None),
        (ProbeOverrides { no_overlay: true, ..no }, "root_filesystem", None),
    ];
    for (overrides, control, waivable) in cases {
        let fixture = Fixture::with_overrides(overrides);
        let mut spec = fixture.spec("missing");
        let error = fixture.runtime.launch(spec.clone()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::MissingControl { control: control.to_owned() });
        assert!(error.hint().is_some());
        fixture.assert_nothing_left(&spec.id);
        spec.allow_degraded = true;
        let Some(name) = waivable else {
            assert!(fixture.runtime.launch(spec).await.is_err(), "{control} must not be waived");
            continue;
        };
        let launched = fixture.runtime.launch(spec).await.unwrap();
        assert_eq!(launched.enforced.get(name).unwrap().outcome, Outcome::Missing, "{control}");
        assert!(!launched.enforced.is_complete());
        assert_eq!(sh(&launched.control, "echo hi").await.stdout, "hi\n");
        fixture.end(&launched).await;
    }
}

#[tokio::test]
async fn limits_that_cannot_be_enforced_are_said() {
    let fixture = Fixture::with_overrides(ProbeOverrides { no_cgroups: true, ..ProbeOverrides::default() });
    let mut spec = fixture.spec("limits");
    spec.limits.memory_mb = Some(64);
    spec.limits.cpu = Some(1.0);
    spec.limits.disk_mb = Some(5);
    let launched = fixture.runtime.launch(spec).await.unwrap();
    let outcome = |control| launched.enforced.get(control).unwrap().outcome;
    assert_eq!(outcome(ControlName::MemoryLimit), Outcome::Missing);
    assert_eq!(outcome(ControlName::CpuLimit), Outcome::Missing);
    assert_eq!(outcome(ControlName::DiskLimit), Outcome::Degraded);
    let ran = sh(&launched.control, "head -c 10m /dev/zero > big; stat -c %s big").await;
    assert_eq!(ran.stdout, format!("{}\n", 5 << 20));
    fixture.end(&launched).await;
}

/// The launcher runs as a user without any privilege; what is tested is the example program of this crate.
#[tokio::test]
async fn an_ordinary_user_gets_the_same_sandbox() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let uid = 54_321;
    std::os::unix::fs::chown(&state, Some(uid), Some(uid)).unwrap();
    let binary = dir.path().join("launcher");
    std::fs::copy(launcher(), &binary).unwrap();
    let output = std::process::Command::new("setpriv")
        .args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "--inh-caps=-all"])
        .arg(&binary)
        .arg("self-test")
        .arg(&state)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for expected in [
        "uid 1000",
        "caps 0000000000000000 0000000000000000 1 2",
        "missing capabilities: none",
        "memory_limit missing",
        "root refused",
        "init hidden",
        "stopped clean",
    ] {
        assert!(text.contains(expected), "no `{expected}` in:\n{text}");
    }
    assert_eq!(std::fs::read_dir(state.join("sandboxes")).unwrap().count(), 0);
}
