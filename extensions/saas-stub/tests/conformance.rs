//! `ext.saas-stub` on the native runtime passes the suite that every extension passes.
//!
//! The test has its own `main`: the native runtime starts this very binary as its launcher.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::sync::Arc;

use sandboxer_core::Extension;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_ext_native::{Native, NativeConfig};
use sandboxer_ext_saas_stub::{Backing, SaasStub, Settings};
use sandboxer_testkit::conformance::{Subject, run};

fn main() {
    sandboxer_runtime::run_if_launcher();
    // Words on the command line choose cases by the start of their names.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("saas-stub");
    let make = move || {
        let native = Native::new(NativeConfig::new(Settings::native_root(&root)));
        let settings = Settings::new(&root, None, Backing::Extension(Arc::new(native))).unwrap();
        Arc::new(SaasStub::new(settings)) as Arc<dyn Extension>
    };
    let subject = Subject::new(make, SandboxSpec::default()).only(&words);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run(&subject)).assert_passed();
}
