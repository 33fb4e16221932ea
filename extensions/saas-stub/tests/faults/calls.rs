//! Every other call that fails, and where words come from.

use std::time::{Duration, Instant};

use sandboxer_core::{ErrorKind, Extension as _};

use crate::rig::{HOST, Rig, asking, is_kind, request};

pub(crate) async fn teardown_fails_so_often() {
    let (rig, request) = (Rig::new(""), asking("teardown=500,teardown_times=2"));
    let handle = rig.create(&request).await.unwrap();
    for _ in 0..2 {
        // Each time as another process: it is counted with the sandbox.
        let again = rig.again("");
        let error = again.stub.teardown(HOST, &request.tag, None).await.unwrap_err();
        is_kind(&error, ErrorKind::BackendFailed, "500 to the teardown");
        rig.runs(&handle).await;
    }
    assert!(!rig.remove(&request.tag).await.is_empty());
    rig.has_nothing(&request.tag).await;
}

pub(crate) async fn teardown_hangs() {
    let (rig, request) = (Rig::new(""), asking("teardown=hang"));
    rig.create(&request).await.unwrap();
    let teardown = rig.stub.teardown(HOST, &request.tag, None);
    assert!(tokio::time::timeout(Duration::from_millis(300), teardown).await.is_err());
    assert!(rig.found(&request.tag).await.unwrap().alive);
    // A provider that always fails does so whatever it is asked to remove; without the fault all is well again.
    let broken = rig.again("teardown=500");
    let unknown = crate::rig::request();
    is_kind(
        &broken.stub.teardown(HOST, &unknown.tag, None).await.unwrap_err(),
        ErrorKind::BackendFailed,
        "500",
    );
    let text = std::fs::read_to_string(rig.folder.join(format!("sandboxes/{}.json", request.tag))).unwrap();
    let mended = text.replace("teardown=hang", "teardown=ok");
    std::fs::write(rig.folder.join(format!("sandboxes/{}.json", request.tag)), mended).unwrap();
    rig.remove(&request.tag).await;
}

pub(crate) async fn status_fails() {
    let (rig, request) = (Rig::new(""), asking("status=500"));
    let handle = rig.create(&request).await.unwrap();
    is_kind(&rig.stub.life(&handle).await.unwrap_err(), ErrorKind::BackendFailed, "500 to the status");
    is_kind(&rig.stub.status(&handle).await.unwrap_err(), ErrorKind::BackendFailed, "500 to the status");
    rig.runs(&handle).await;
    rig.remove(&request.tag).await;

    let hanging = asking("status=hang,hang=100ms");
    let handle = rig.create(&hanging).await.unwrap();
    let start = Instant::now();
    is_kind(&rig.stub.life(&handle).await.unwrap_err(), ErrorKind::Timeout, "did not answer");
    assert!(start.elapsed() >= Duration::from_millis(100));
    rig.remove(&hanging.tag).await;
}

pub(crate) async fn list_fails() {
    let rig = Rig::new("list=500");
    is_kind(&rig.stub.list(HOST, "sbx_").await.unwrap_err(), ErrorKind::BackendFailed, "500 to the listing");
    let rig = Rig::new("list=hang,hang=50ms");
    is_kind(&rig.stub.list(HOST, "sbx_").await.unwrap_err(), ErrorKind::Timeout, "did not answer");
}

/// The file, then the environment, then the request; each word for itself, and the file is read each time.
pub(crate) async fn priority() {
    let rig = Rig::new("create=402");
    let in_file = |text: &str| std::fs::write(rig.folder.join("behaviour.toml"), text).unwrap();
    std::fs::create_dir_all(&rig.folder).unwrap();
    in_file("create = 401\nrequire_key = true\n");
    is_kind(&rig.fails(&request()).await, ErrorKind::BackendFailed, "a key is required");
    in_file("create = 401\n");
    is_kind(&rig.fails(&request()).await, ErrorKind::BackendFailed, "402");
    is_kind(&rig.fails(&asking("create=429")).await, ErrorKind::RateLimited, "429");
    is_kind(&rig.again("").fails(&request()).await, ErrorKind::BackendFailed, "401");
    let fine = asking("create=ok");
    rig.create(&fine).await.unwrap();
    rig.remove(&fine.tag).await;

    in_file("craete = 401\n");
    let error = rig.fails(&request()).await;
    is_kind(&error, ErrorKind::InvalidInput, "behaviour.toml: `craete` is no word");
    assert_eq!(error.hint(), Some("did you mean `create`?"));
    let report = rig.stub.check(HOST).await.unwrap();
    let item = report.items.iter().find(|item| item.name == "behaviour").unwrap();
    assert!(!report.ok && !item.ok && item.hint.is_some(), "{report:?}");
    assert!(rig.stub.location().regions.is_empty());
    in_file("region = \"eu-1\"\nresidency = \"eu\"\n");
    let location = rig.stub.location();
    assert_eq!((location.regions, location.residency), (vec!["eu-1".to_owned()], vec!["eu".to_owned()]));
    in_file("");
    assert!(rig.stub.check(HOST).await.unwrap().ok);
}
