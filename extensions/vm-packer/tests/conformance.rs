//! The suite that every extension has to pass, on machines of the small image.

#![allow(clippy::unwrap_used, reason = "a test that fails shows where")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use sandboxer_testkit::conformance::{Subject, run};

/// Software emulation needs minutes for the whole suite, so that a part of it has to do: each capability once.
const PART: &[&str] = &[
    "describe",
    "check",
    "host",
    "backend_logs",
    "provision.ready",
    "list",
    "exec.codes",
    "exec.stdin",
    "exec.timeout",
    "exec.tty",
    "exec.user",
    "files.content",
    "archive.round_trip",
    "port",
    "isolation.report",
    "isolation.loopback",
    "pause",
    "fork",
    "workspace.seed",
    "ttl.extend",
    "ttl.idle",
    "crash.provision",
    "teardown",
    "unsupported",
];

#[tokio::test(flavor = "multi_thread")]
async fn machines_pass_the_suite() {
    let Some(()) = available() else { return };
    let state = shared_state();
    let ext = extension(&state);
    let facts = ext.host_facts("local").await.unwrap();
    let whole = facts["isolation"]["vm_accelerator"] == "kvm"
        || std::env::var("CONFORMANCE").is_ok_and(|value| value == "full");
    // The image first, so that no case has to wait for its build.
    let wish = request(spec());
    {
        let _cleanup = Cleanup { extension: ext.clone(), tag: wish.tag.clone() };
        ext.provision(wish).await.unwrap();
    }
    let listener = "exec busybox nc -ll -p {port} -e cat";
    let subject = Subject {
        deadline: Duration::from_secs(180),
        short_ttl: Duration::from_secs(if whole { 45 } else { 30 }),
        memory_mb: 256,
        crashes: 3,
        jobs: 2,
        user: "user".into(),
        listener: ["/bin/sh", "-c", listener].map(str::to_owned).into(),
        only: if whole { Vec::new() } else { PART.iter().map(|name| (*name).to_owned()).collect() },
        ..Subject::new(move || extension(&state) as Arc<_>, spec())
    };
    run(&subject).await.assert_passed();
}
