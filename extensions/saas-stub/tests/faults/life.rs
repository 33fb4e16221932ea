//! Sandboxes that end otherwise than asked.

use std::sync::Arc;

use jiff::Timestamp;
use sandboxer_core::extension::{Life, ProvisionRequest};
use sandboxer_core::{Dur, ErrorKind, Extension as _};
use sandboxer_ext_saas_stub::{Backing, SaasStub, Settings};
use sandboxer_testkit::Scripted;

use crate::rig::{HOST, Rig, asking, is_kind, mortal, request, sh, until, wait};

/// It ends by itself at the provider: known as dead, until it is cleared away.
pub(crate) async fn death() {
    let rig = Rig::new("");
    let (request, handle) = mortal(&rig, |age| asking(&format!("death={age}"))).await;
    until(async || !rig.again("").stub.life(&handle).await.unwrap().is_alive()).await;
    let found = rig.found(&request.tag).await.unwrap();
    assert!(!found.alive, "{found:?}");
    let status = rig.stub.status(&handle).await.unwrap();
    assert!(!status.alive && status.detail["state"] == "ended", "{status:?}");
    // The provider knows when, to the moment, and also after it was cleared away.
    let dies_at = rig.file("sandboxes", &request.tag).unwrap()["dies_at"].as_str().unwrap().parse().unwrap();
    let ended = Life::Ended { at: Some(dies_at) };
    assert_eq!((status.life(), rig.stub.life(&handle).await.unwrap()), (ended, ended));
    until(async || {
        sh(&rig.stub, &handle, "true").await.is_err_and(|e| e.kind() == ErrorKind::SandboxNotFound)
    })
    .await;
    rig.remove(&request.tag).await;
    assert_eq!(rig.file("ended", &request.tag).unwrap()["reason"], "died");
    assert_eq!(rig.stub.life(&handle).await.unwrap(), ended);
}

/// The provider forgets it: nothing is listed, nothing lives, a teardown has nothing to say, and nothing is left.
pub(crate) async fn lost() {
    let rig = Rig::new("");
    let (request, handle) = mortal(&rig, |age| asking(&format!("lost={age}"))).await;
    until(async || rig.again("").found(&request.tag).await.is_none()).await;
    assert_eq!(rig.stub.life(&handle).await.unwrap(), Life::ENDED);
    let status = rig.stub.status(&handle).await.unwrap();
    assert!(!status.alive && status.ended_at.is_none() && status.detail.is_null(), "{status:?}");
    is_kind(
        &rig.stub.extend(&handle, Dur::from_secs(60).after(Timestamp::now())).await.unwrap_err(),
        ErrorKind::SandboxNotFound,
        "no such sandbox",
    );
    // What ran behind it ends by itself: nobody could find it to end it.
    let behind = rig.folder.join("native/sandboxes").join(&request.tag);
    until(async || !behind.exists()).await;
    assert!(rig.remove(&request.tag).await.is_empty());
    assert_eq!(rig.file("ended", &request.tag).unwrap()["reason"], "lost");
}

/// The TTL holds with nobody there.
pub(crate) async fn deadline() {
    let rig = Rig::new("");
    let ending = |age: Dur| ProvisionRequest { expires_at: age.after(Timestamp::now()), ..request() };
    let (request, handle) = mortal(&rig, ending).await;
    until(async || !rig.again("").stub.life(&handle).await.unwrap().is_alive()).await;
    assert!(Timestamp::now() >= request.expires_at, "it ended before its time");
    assert!(!rig.found(&request.tag).await.unwrap().alive);
    rig.remove(&request.tag).await;
    assert_eq!(rig.file("ended", &request.tag).unwrap()["reason"], "expired");
}

pub(crate) async fn extend_not_beyond_death() {
    let rig = Rig::new("");
    let (request, handle) = mortal(&rig, |age| asking(&format!("death={age}"))).await;
    // Where a busy machine let it die meanwhile, there is nothing to extend.
    let extended = rig.stub.extend(&handle, Dur::from_secs(900).after(Timestamp::now())).await;
    assert!(extended.is_ok() || !rig.stub.life(&handle).await.unwrap().is_alive(), "{extended:?}");
    until(async || !rig.again("").stub.life(&handle).await.unwrap().is_alive()).await;
    let behind = rig.folder.join("native/sandboxes").join(&request.tag);
    until(async || !behind.exists()).await;
    rig.remove(&request.tag).await;
}

/// A provider with nothing behind it keeps its books and runs nothing.
pub(crate) async fn nothing_behind() {
    let (rig, request) = (Rig::new("backing=none"), request());
    let can = rig.stub.describe().capability;
    assert!(!can.exec && !can.files && !can.self_hosted && can.only_by_name && can.image_host);
    let handle = rig.create(&request).await.unwrap();
    assert_eq!(rig.create(&request).await.unwrap(), handle);
    assert!(rig.stub.life(&handle).await.unwrap().is_alive());
    is_kind(&sh(&rig.stub, &handle, "true").await.unwrap_err(), ErrorKind::Unsupported, "exec");
    let later = Dur::from_secs(900).after(Timestamp::now());
    rig.stub.extend(&handle, later).await.unwrap();
    assert_eq!(rig.file("sandboxes", &request.tag).unwrap()["expires_at"], later.to_string());
    assert!(!rig.folder.join("native").exists());
    assert_eq!(rig.remove(&request.tag).await.len(), 1);
    assert!(!rig.stub.life(&handle).await.unwrap().is_alive());
    let brief = ProvisionRequest {
        expires_at: Dur::from_millis(100).after(Timestamp::now()),
        ..crate::rig::request()
    };
    let handle = rig.stub.provision(brief.clone()).await.unwrap();
    until(async || !rig.stub.life(&handle).await.unwrap().is_alive()).await;
    assert!(!rig.found(&brief.tag).await.unwrap().alive);
    rig.remove(&brief.tag).await;
    let mut seeded = crate::rig::request();
    seeded.seed = Some("/nothing.tar".into());
    is_kind(&rig.fails(&seeded).await, ErrorKind::Unsupported, "workspace");
}

/// Paused time is not billed. The native runtime cannot pause, and then the stub cannot, either.
pub(crate) async fn pause_where_it_can() {
    let rig = Rig::new("");
    assert!(!rig.stub.describe().capability.pause);
    let plain = request();
    let handle = rig.create(&plain).await.unwrap();
    is_kind(&rig.stub.pause(&handle).await.unwrap_err(), ErrorKind::Unsupported, "ext.saas-stub");
    rig.remove(&plain.tag).await;

    let scripted = Scripted::default();
    scripted.script(|script| script.checkpoints = true);
    let folder = tempfile::tempdir().unwrap();
    let backing = Backing::Extension(Arc::new(scripted.clone()));
    let stub = SaasStub::new(Settings::new(folder.path(), None, backing).unwrap());
    assert!(stub.describe().capability.pause);
    let request = request();
    let handle = stub.provision(request.clone()).await.unwrap();
    for _ in 0..2 {
        stub.pause(&handle).await.unwrap();
    }
    assert!(scripted.paused().contains(&request.tag));
    assert_eq!(stub.status(&handle).await.unwrap().detail["state"], "paused");
    wait(1_000).await;
    for _ in 0..2 {
        stub.resume(&handle).await.unwrap();
    }
    assert_eq!(stub.status(&handle).await.unwrap().detail["state"], "running");
    wait(200).await;
    stub.teardown(HOST, &request.tag, None).await.unwrap();
    let text = std::fs::read(folder.path().join(format!("ended/{}.json", request.tag))).unwrap();
    let ended: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let billed: Dur = ended["billed"].as_str().unwrap().parse().unwrap();
    let moment = |key: &str| ended[key].as_str().unwrap().parse::<Timestamp>().unwrap().as_millisecond();
    let paused = ended["paused_ms"].as_u64().unwrap();
    assert!(billed.as_millis() >= 200 && paused >= 1_000, "{ended}");
    let whole = u64::try_from(moment("ended_at") - moment("created_at")).unwrap();
    assert!(whole.abs_diff(billed.as_millis() + paused) <= 2, "{ended}");
}
