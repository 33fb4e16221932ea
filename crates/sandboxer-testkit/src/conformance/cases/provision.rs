//! A sandbox comes to be once per tag, and is ready when it says so.

use std::sync::Arc;

use sandboxer_core::extension::Handle;

use super::Case;
use crate::conformance::rig::{Outcome, Rig, Wish, ensure};
use crate::conformance::sandbox::Sandbox;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("provision.ready", "a sandbox that is ready answers at once", &[], ready).safe(),
        Case::new("provision.again", "a second provision of a tag gives the first one's sandbox", &[], again),
        Case::new("provision.race", "provisions of one tag at the same time make one sandbox", &[], race),
        Case::new("list", "list finds a sandbox by the start of its tag and nothing else", &[], list).safe(),
    ]
}

fn repeat(wish: &Wish) -> Wish {
    Wish { request: wish.request.clone() }
}

/// Handles of one sandbox agree in everything but words.
fn same(one: &Handle, other: &Handle) -> Outcome {
    let facts = |handle: &Handle| {
        let controls: Vec<_> =
            handle.controls.iter().map(|control| (control.name.clone(), control.outcome)).collect();
        (handle.tag.clone(), handle.host.clone(), handle.effective, controls, handle.data.clone())
    };
    ensure(facts(one) == facts(other), || format!("two handles of one tag differ: {one:?} and {other:?}"))
}

async fn ready(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let Sandbox { extension, handle } = &sandbox;
    ensure(handle.host == rig.subject.host, || format!("it is on `{}`", handle.host))?;
    ensure(extension.life(handle).await?.is_alive(), || "it is not alive".into())?;
    ensure(extension.status(handle).await?.alive, || "its status says that it is not alive".into())?;
    let reachability = extension.wait_ready(handle).await?;
    ensure(!reachability.method.is_empty() && !reachability.probe.is_empty(), || {
        format!("the reachability says nothing: {reachability:?}")
    })?;
    if rig.capability.exec {
        ensure(sandbox.sh("echo here", &[]).await? == "here", || "a command's words got lost".into())?;
    }
    Ok(())
}

/// What one handle writes, the other reads: they are one sandbox.
async fn one_sandbox(rig: &Rig, one: &Sandbox, other: &Sandbox) -> Outcome {
    same(&one.handle, &other.handle)?;
    if rig.capability.exec {
        one.sh("echo one > provision-mark", &[]).await?;
        let read = other.sh("cat provision-mark", &[]).await?;
        ensure(read == "one", || "the second handle is of another sandbox".into())?;
    }
    let found = other.extension.list(&rig.subject.host, &one.handle.tag).await?;
    ensure(found.len() == 1, || format!("one tag has {} sandboxes", found.len()))
}

async fn again(rig: Arc<Rig>) -> Outcome {
    let (first, second) = (rig.instance(), rig.instance());
    let wish = rig.wish();
    let one = rig.provision(&first, repeat(&wish)).await?;
    let other = rig.provision(&first, repeat(&wish)).await?;
    one_sandbox(&rig, &one, &other).await?;
    let other = rig.provision(&second, wish).await?;
    one_sandbox(&rig, &one, &other).await?;
    one.teardown().await
}

async fn race(rig: Arc<Rig>) -> Outcome {
    let (first, second) = (rig.instance(), rig.instance());
    let wish = rig.wish();
    let (one, two, three) = tokio::join!(
        rig.provision(&first, repeat(&wish)),
        rig.provision(&second, repeat(&wish)),
        rig.provision(&first, repeat(&wish)),
    );
    let (one, two, three) = (one?, two?, three?);
    one_sandbox(&rig, &one, &two).await?;
    one_sandbox(&rig, &one, &three).await?;
    two.teardown().await
}

async fn list(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let (extension, tag, host) = (rig.instance(), &sandbox.handle.tag, rig.subject.host.as_str());
    for prefix in [tag.as_str(), &tag[..tag.len() - 6], "sbx_"] {
        let found = extension.list(host, prefix).await?;
        let ours: Vec<_> = found.iter().filter(|found| &found.tag == tag).collect();
        ensure(ours.len() == 1, || format!("`{prefix}` finds it {} times", ours.len()))?;
        ensure(ours[0].alive, || "a living sandbox is listed as dead".into())?;
        ensure(!ours[0].parts.is_empty(), || "the listing does not say what a teardown would remove".into())?;
        let strangers: Vec<_> = found.iter().filter(|found| !found.tag.starts_with(prefix)).collect();
        ensure(strangers.is_empty(), || format!("`{prefix}` also finds {strangers:?}"))?;
    }
    for prefix in ["sbx_zzzzzzzz", &format!("{tag}x"), "snp_zzzz"] {
        let found = extension.list(host, prefix).await?;
        ensure(found.is_empty(), || format!("`{prefix}` finds {found:?}"))?;
    }
    Ok(())
}
