//! The suite that every extension has to pass, on machines of the small image.

#![allow(clippy::unwrap_used, reason = "a test that fails shows where")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use sandboxer_testkit::conformance::{Subject, run};

#[tokio::test(flavor = "multi_thread")]
async fn machines_pass_the_suite() {
    let Some(()) = available() else { return };
    let state = shared_state();
    let subject = Subject {
        deadline: Duration::from_secs(180),
        short_ttl: Duration::from_secs(45),
        memory_mb: 256,
        crashes: 3,
        jobs: 2,
        user: "user".into(),
        ..Subject::new(move || extension(&state) as Arc<_>, spec())
    };
    run(&subject).await.assert_passed();
}
