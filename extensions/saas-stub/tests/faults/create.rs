//! Creates that fail, before and after they have made something.

use std::time::{Duration, Instant};

use sandboxer_core::error::Class;
use sandboxer_core::profile::{Mount, MountAccess};
use sandboxer_core::{Dur, ErrorKind, Extension as _};

use crate::rig::{HOST, Rig, asking, is_kind, request, until, wait, with_key};

/// A refusal: typed, known to have had no effect, and nothing is there.
async fn refused(words: &str, kind: ErrorKind, class: Class, says: &str) -> sandboxer_core::Error {
    let rig = Rig::new("");
    let request = asking(words);
    let error = rig.fails(&request).await;
    is_kind(&error, kind, says);
    assert_eq!(error.class(), Some(class));
    assert!(error.had_no_effect());
    rig.has_nothing(&request.tag).await;
    error
}

pub(crate) async fn too_many_requests() {
    let error = refused("create=429,retry_after=7s", ErrorKind::RateLimited, Class::Quota, "429").await;
    assert!(error.hint().unwrap().contains("7s"));
    assert_eq!(error.retry_after(), Some(Dur::from_secs(7)));
}

pub(crate) async fn payment() {
    refused("create=402", ErrorKind::BackendFailed, Class::Payment, "402").await;
}

pub(crate) async fn unauthorized() {
    refused("create=401", ErrorKind::BackendFailed, Class::Auth, "401").await;
}

pub(crate) async fn capacity() {
    refused("create=capacity", ErrorKind::NoSpace, Class::Capacity, "no capacity").await;
}

pub(crate) async fn server_error() {
    let (rig, request) = (Rig::new("create=500"), request());
    let error = rig.fails(&request).await;
    is_kind(&error, ErrorKind::BackendFailed, "500");
    assert!(!error.had_no_effect(), "after a 500 nobody knows");
    assert_eq!(error.class(), Some(Class::Backend));
    rig.has_nothing(&request.tag).await;
}

pub(crate) async fn timeout_before() {
    let (rig, request) = (Rig::new("create=timeout-before"), request());
    let provision = rig.stub.provision(request.clone());
    assert!(tokio::time::timeout(Duration::from_millis(300), provision).await.is_err(), "it answered");
    rig.has_nothing(&request.tag).await;
    // With an end to the hanging it is a time-out of the provider's own.
    let again = crate::rig::asking("create=timeout-before,hang=50ms");
    let error = rig.fails(&again).await;
    is_kind(&error, ErrorKind::Timeout, "did not answer within 50ms");
    assert!(!error.had_no_effect());
}

pub(crate) async fn timeout_after() {
    let (rig, request) = (Rig::new("create=timeout-after"), request());
    {
        let provision = rig.stub.provision(request.clone());
        let made = until(async || rig.found(&request.tag).await.is_some_and(|found| found.alive));
        tokio::select! {
            answer = provision => panic!("it answered: {answer:?}"),
            () = async { made.await; wait(300).await } => {}
        }
    }
    let found = rig.found(&request.tag).await.unwrap();
    assert!(found.alive && found.parts.len() == 2, "{found:?}");
    // Whoever asks again by the tag gets what was made; it works.
    let handle = rig.create(&request).await.unwrap();
    rig.runs(&handle).await;
    let removed = rig.remove(&request.tag).await;
    assert!(removed.contains(&found.parts[0]) && removed.len() > 1, "{removed:?}");
    // And another one is removed without ever having been adopted.
    let other = crate::rig::asking("create=timeout-after,hang=10ms");
    is_kind(&rig.fails(&other).await, ErrorKind::Timeout, "did not answer");
    assert!(rig.found(&other.tag).await.unwrap().alive);
    rig.remove(&other.tag).await;
    rig.has_nothing(&other.tag).await;
}

pub(crate) async fn server_error_after() {
    let (rig, request) = (Rig::new("create=500-after"), request());
    is_kind(&rig.fails(&request).await, ErrorKind::BackendFailed, "500");
    assert!(rig.found(&request.tag).await.unwrap().alive, "it was to be made");
    rig.remove(&request.tag).await;
    rig.has_nothing(&request.tag).await;
}

/// Counted in the provider's folder, whoever asks.
pub(crate) async fn times() {
    let rig = Rig::new("create=500,create_times=2");
    let (first, second, third) = (request(), request(), request());
    is_kind(&rig.fails(&first).await, ErrorKind::BackendFailed, "500");
    let other = rig.again("create=500,create_times=2");
    is_kind(&other.fails(&second).await, ErrorKind::BackendFailed, "500");
    let handle = rig.create(&third).await.unwrap();
    rig.runs(&handle).await;
    rig.create(&first).await.unwrap();
    for request in [first, third] {
        rig.remove(&request.tag).await;
    }
}

/// The tag decides, and decides again the same way.
pub(crate) async fn rate() {
    let rig = Rig::new("create=429,create_rate=0.5,backing=none");
    let mut failed = 0;
    for _ in 0..40 {
        let request = request();
        let outcomes = [
            rig.stub.provision(request.clone()).await,
            rig.again("create=429,create_rate=0.5,backing=none").stub.provision(request).await,
        ];
        assert_eq!(outcomes[0].is_ok(), outcomes[1].is_ok());
        failed += usize::from(outcomes[0].is_err());
    }
    assert!((5..=35).contains(&failed), "{failed} of 40");
}

/// Two creates at the same time cannot share the last place.
pub(crate) async fn full() {
    let rig = Rig::new("max_sandboxes=2");
    let requests = [request(), request(), request()];
    let other = rig.again("max_sandboxes=2");
    let (one, two, three) = tokio::join!(
        rig.stub.provision(requests[0].clone()),
        other.stub.provision(requests[1].clone()),
        rig.stub.provision(requests[2].clone()),
    );
    let outcomes = [one, two, three];
    let refused: Vec<usize> = (0..3).filter(|place| outcomes[*place].is_err()).collect();
    assert_eq!(refused.len(), 1, "{outcomes:?}");
    is_kind(outcomes[refused[0]].as_ref().unwrap_err(), ErrorKind::NoSpace, "no capacity");
    rig.has_nothing(&requests[refused[0]].tag).await;
    // A place that is free again is given away.
    let living: Vec<_> = requests.iter().enumerate().filter(|(place, _)| !refused.contains(place)).collect();
    rig.remove(&living[0].1.tag).await;
    rig.create(&requests[refused[0]]).await.unwrap();
    for request in [&requests[refused[0]], living[1].1] {
        rig.remove(&request.tag).await;
    }
}

pub(crate) async fn key_required() {
    let rig = Rig::new("require_key=true");
    let without = request();
    is_kind(&rig.fails(&without).await, ErrorKind::BackendFailed, "401: a key is required");
    rig.has_nothing(&without.tag).await;
    let (with, own) = (request(), with_key(&rig, "sk-test"));
    let handle = own.provision(with.clone()).await.unwrap();
    own.wait_ready(&handle).await.unwrap();
    assert_eq!(own.teardown(HOST, &with.tag, None).await.unwrap().left, []);
}

pub(crate) async fn latency() {
    let rig = Rig::new("latency=300ms,jitter=50ms,ready_latency=200ms,backing=none");
    let (request, start) = (request(), Instant::now());
    let handle = rig.stub.provision(request.clone()).await.unwrap();
    let created = start.elapsed();
    assert!(created >= Duration::from_millis(300), "{created:?}");
    rig.stub.wait_ready(&handle).await.unwrap();
    assert!(start.elapsed() >= created + Duration::from_millis(200));
    let start = Instant::now();
    rig.stub.teardown(HOST, &request.tag, None).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300));
}

/// With nothing behind it a whole life is a few file operations, so that everything around it can be measured.
pub(crate) async fn cheap() {
    let rig = Rig::new("backing=none");
    let mut times = Vec::new();
    for _ in 0..200 {
        let (request, start) = (request(), Instant::now());
        let handle = rig.stub.provision(request.clone()).await.unwrap();
        rig.stub.wait_ready(&handle).await.unwrap();
        times.push(start.elapsed());
        rig.stub.teardown(HOST, &request.tag, None).await.unwrap();
    }
    times.sort();
    println!("       create to ready with nothing behind: median {:?}", times[100]);
    assert!(times[100] < Duration::from_millis(10), "{:?}", times[100]);
}

pub(crate) async fn words_are_checked() {
    let rig = Rig::new("");
    for (words, says) in [
        ("laetncy=1s", "the input `stub`: `laetncy` is no word"),
        ("create=tomorrow", "no such value"),
        ("backing=none", "cannot be chosen by a request"),
        ("region=eu-1", "cannot be chosen by a request"),
    ] {
        let request = asking(words);
        let error = rig.fails(&request).await;
        is_kind(&error, ErrorKind::InvalidInput, says);
        assert!(error.had_no_effect() && error.hint().is_some());
        rig.has_nothing(&request.tag).await;
    }
    let mut request = request();
    request.tag = "../../escape".into();
    is_kind(&rig.fails(&request).await, ErrorKind::InvalidInput, "not a tag");
}

/// A provider elsewhere has no folders of this machine.
pub(crate) async fn mounts_are_refused() {
    let (rig, mut request) = (Rig::new(""), request());
    let (source, target) = (rig.folder.display().to_string(), "/mnt/x".into());
    request.spec.mounts.push(Mount { source, target, access: MountAccess::Ro });
    is_kind(&rig.fails(&request).await, ErrorKind::Unsupported, "ext.saas-stub does not support folders");
    rig.has_nothing(&request.tag).await;
}
