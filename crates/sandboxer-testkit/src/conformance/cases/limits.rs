//! Limits that the report says are enforced.

use std::sync::Arc;

use sandboxer_core::Dur;
use sandboxer_core::isolation::Outcome as Result;

use super::Case;
use crate::conformance::rig::{Outcome, Rig, Stop, ensure};
use crate::conformance::sandbox::{Sandbox, script};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("limits.memory", "a memory limit holds, and the sandbox survives it", &["exec"], memory)
            .about(&["isolation"]),
        Case::new("limits.pids", "a limit of processes holds, and the sandbox survives it", &["exec"], pids)
            .about(&["isolation"]),
    ]
}

/// Whether a control with this word in its name is enforced.
fn enforced(sandbox: &Sandbox, word: &str) -> Outcome {
    let control = sandbox.handle.controls.iter().find(|control| control.name.contains(word));
    match control {
        Some(control) if control.outcome == Result::Enforced => Ok(()),
        Some(control) => {
            Err(Stop::NotDeclared(format!("{} is {:?}: {}", control.name, control.outcome, control.detail)))
        }
        None => Err(Stop::NotDeclared(format!("no control is about {word}"))),
    }
}

async fn memory(rig: Arc<Rig>) -> Outcome {
    let mut wish = rig.wish();
    wish.request.spec.resources.memory_mb = Some(rig.subject.memory_mb);
    let sandbox = rig.provision(&rig.instance(), wish).await?;
    enforced(&sandbox, "memory")?;
    let megabytes = (rig.subject.memory_mb + 200).to_string();
    let output = sandbox.run(script("dd if=/dev/zero of=/dev/null bs=${1}M count=1", &[&megabytes])).await?;
    ensure(output.outcome.exit_code != 0, || format!("{megabytes} MiB fit into {}", rig.subject.memory_mb))?;
    ensure(sandbox.sh("echo alive", &[]).await? == "alive", || "the sandbox does not answer".into())?;
    sandbox.teardown().await
}

async fn pids(rig: Arc<Rig>) -> Outcome {
    let mut wish = rig.wish();
    wish.request.spec.resources.pids = Some(40);
    let sandbox = rig.provision(&rig.instance(), wish).await?;
    enforced(&sandbox, "pids")?;
    let line = "i=0; while [ $i -lt 120 ]; do sleep 20 & i=$((i+1)); done; echo all";
    let mut spec = script(line, &[]);
    spec.timeout = Some(Dur::from_secs(10));
    let output = sandbox.run(spec).await?;
    ensure(!output.text().contains("all") || !output.stderr.is_empty(), || {
        "120 processes fit into a limit of 40".into()
    })?;
    // What was started may take its time; after a time-out or the command's end nothing of it is there.
    for _ in 0..20 {
        let answer = sandbox.run(script("echo alive", &[])).await;
        if answer.is_ok_and(|output| output.text() == "alive") {
            return sandbox.teardown().await;
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    crate::conformance::rig::fail("the sandbox does not answer any more")
}
