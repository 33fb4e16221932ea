//! The suite that every extension passes, against a real engine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use sandboxer_testkit::conformance::{self, Subject};

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_passes() {
    let Some(engine) = common::engine() else { return };
    let mut subject = Subject::new(move || common::extension(engine), common::spec());
    subject.user = "sandbox".into();
    subject.short_ttl = Duration::from_secs(6);
    subject.listener = ["busybox", "nc", "-ll", "-p", "{port}", "-e", "cat"].map(String::from).into();
    let report = conformance::run(&subject).await;
    report.assert_passed();
}
