//! The suite that every extension passes, against a real SSH server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_ext_ssh::{Settings, Ssh};
use sandboxer_testkit::conformance::{self, Subject};
use sandboxer_testkit::real::{FixedHosts, require, sshd::SshHost};

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_passes() {
    if require(SshHost::available()).is_none() {
        return;
    }
    let host = SshHost::start("far");
    let state = tempfile::tempdir().unwrap();
    let hosts = Arc::new(FixedHosts::new([host.host()]));
    let folder = state.path().to_owned();
    let make = move || Arc::new(Ssh::new(Settings::new(hosts.clone(), &folder))) as _;
    let mut spec = SandboxSpec::default();
    spec.isolation.level = IsolationLevel::Network;
    let mut subject = Subject::new(make, spec).on("far");
    if let Ok(only) = std::env::var("ONLY") {
        subject = subject.only(&only.split(',').collect::<Vec<_>>());
    }
    conformance::run(&subject).await.assert_passed();
    let left = std::fs::read_dir(host.home().join(".sandboxer/sandboxes")).unwrap().flatten().count();
    assert_eq!(left, 0, "nothing stays on the host");
    let processes = host.processes();
    assert!(!processes.iter().any(|line| line.contains(".guard")), "{processes:?}");
}
