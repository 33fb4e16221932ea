//! The example of the documentation passes the suite that every extension passes.

use std::sync::Arc;

use sandboxer_core::Extension;
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_ext_process::{Manifest, ProcessExtension};
use sandboxer_testkit::conformance::{Subject, run};

use crate::common;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_passes() {
    let example = common::Example::new();
    let manifest = Manifest::read(&example.manifest).unwrap();
    let make = move || Arc::new(ProcessExtension::new(manifest.clone())) as Arc<dyn Extension>;
    let mut spec = SandboxSpec::default();
    spec.isolation.level = IsolationLevel::Network;
    let report = run(&Subject::new(make, spec)).await;
    report.assert_passed();
    assert_eq!(example.left(), Vec::<String>::new());
}
