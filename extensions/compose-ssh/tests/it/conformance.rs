//! The suite that every extension passes.

use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::Extension;
use sandboxer_ext_compose_ssh::ComposeSsh;
use sandboxer_testkit::conformance::{Subject, run};

use crate::support::{Bench, IMAGE, spec};

#[tokio::test(flavor = "multi_thread")]
async fn the_extension_keeps_the_contract() {
    let Some(bench) = Bench::new() else { return };
    bench.file(
        "compose.yaml",
        &format!(
            "services:\n  main:\n    image: {IMAGE}\n    command: [sleep, \"100000\"]\n    init: true\n"
        ),
    );
    let settings = bench.settings();
    let make = move || Arc::new(ComposeSsh::new(settings.clone())) as Arc<dyn Extension>;
    let only = std::env::var("CONFORMANCE_ONLY").unwrap_or_default();
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let subject = Subject {
        deadline: Duration::from_secs(60),
        short_ttl: Duration::from_secs(15),
        slack: Duration::from_secs(20),
        user: "sandbox".into(),
        listener: ["busybox", "nc", "-ll", "-p", "{port}", "-e", "cat"].map(str::to_owned).to_vec(),
        memory_mb: 64,
        crashes: 4,
        ..Subject::new(make, spec(&bench.repo()))
    }
    .only(&only);
    run(&subject).await.assert_passed();
}
