//! The suite that every extension passes, against a real SSH server.

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
    // The guard of a staging folder whose maker was killed sees at its next look that the folder is gone.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let processes = host.processes();
        if !processes.iter().any(|line| line.contains(".guard")) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{processes:?}");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
}
