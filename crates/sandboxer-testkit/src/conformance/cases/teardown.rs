//! The end of a sandbox.

use std::sync::Arc;

use sandboxer_core::{ErrorKind, SandboxId};

use super::Case;
use crate::conformance::rig::{Outcome, Rig, ensure, fail};
use crate::conformance::sandbox::script;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("teardown", "a teardown removes everything, and twice is as good as once", &[], teardown),
        Case::new("teardown.unknown", "a teardown of what never was is clean and empty", &[], unknown).safe(),
    ]
}

async fn teardown(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.own().await?;
    let (host, handle) = (rig.subject.host.as_str(), &sandbox.handle);
    if rig.capability.exec {
        // Something that runs does not hold a teardown up.
        sandbox.sh("(trap '' TERM HUP; sleep 300) >/dev/null 2>&1 &", &[]).await?;
    }
    let report = sandbox.extension.teardown(host, &handle.tag, Some(handle)).await?;
    ensure(report.is_clean(), || format!("it left {:?}", report.left))?;
    ensure(!report.removed.is_empty(), || "the report does not say what was removed".into())?;
    for extension in [sandbox.extension.clone(), rig.instance()] {
        for handle in [Some(handle), None] {
            let again = extension.teardown(host, &sandbox.handle.tag, handle).await?;
            ensure(again.is_clean(), || format!("again it left {:?}", again.left))?;
        }
        let found = extension.list(host, &handle.tag).await?;
        ensure(found.is_empty(), || format!("it is still listed: {found:?}"))?;
        let life = extension.life(handle).await?;
        ensure(!life.is_alive(), || "`life` says that it lives".into())?;
        ensure(!extension.status(handle).await?.alive, || "its status says that it lives".into())?;
        if rig.capability.exec {
            match extension.exec(handle, script("true", &[])).await {
                Err(error) if error.kind() == ErrorKind::SandboxNotFound => {}
                Err(error) => return fail(format!("a command after the end is {error:?}")),
                Ok(_) => return fail("a command runs after the end"),
            }
        }
    }
    Ok(())
}

async fn unknown(rig: Arc<Rig>) -> Outcome {
    let tag = SandboxId::generate().to_string();
    for _ in 0..2 {
        let report = rig.instance().teardown(&rig.subject.host, &tag, None).await?;
        ensure(report.is_clean() && report.removed.is_empty(), || format!("it is {report:?}"))?;
    }
    Ok(())
}
