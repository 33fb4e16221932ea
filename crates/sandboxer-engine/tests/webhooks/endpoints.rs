//! Managing endpoints: secrets are shown once, rotated with an overlap, and gone when the endpoint is.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sandboxer_core::{Actor, Dur, ErrorKind, KeyId, WebhookId};
use sandboxer_engine::Caller;

use crate::receiver::{Answer, Receiver, Request};
use crate::support::*;

/// How many of the request's signatures were made with this secret.
fn signed_by(request: &Request, secret: &str) -> usize {
    let key = BASE64_STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    let mut text =
        format!("{}.{}.", request.header("webhook-id"), request.header("webhook-timestamp")).into_bytes();
    text.extend(&request.body);
    let signatures = request.header("webhook-signature").split(' ');
    signatures
        .filter(|signature| {
            let bytes = BASE64_STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
            ring::hmac::verify(&key, &text, &bytes).is_ok()
        })
        .count()
}

fn signatures(request: &Request) -> usize {
    request.header("webhook-signature").split(' ').count()
}

fn secrets_kept(workshop: &sandboxer_testkit::Workshop) -> usize {
    std::fs::read_dir(workshop.folder.path().join("secrets")).unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_secrets_sign_while_they_overlap() {
    let workshop = workshop().await;
    let engine = &workshop.engine;
    let receiver = Receiver::fine().await;
    let first = hook(engine, &receiver.url, &["sandbox.ready"]).await;
    let id = first.webhook.webhook_id;
    let last = || receiver.requests().pop().unwrap();
    sandbox(engine).await;
    deliver(engine).await;
    assert_eq!((signatures(&last()), signed_by(&last(), &first.secret)), (1, 1));

    let second = engine.webhook_rotate(&admin(), id, Some(Dur::from_secs(3_600))).await.unwrap();
    assert_ne!(first.secret, second.secret);
    assert_eq!(second.webhook.secrets.len(), 2);
    sandbox(engine).await;
    deliver(engine).await;
    assert_eq!(signatures(&last()), 2);
    assert_eq!((signed_by(&last(), &first.secret), signed_by(&last(), &second.secret)), (1, 1));

    workshop.clock.advance(Dur::from_secs(3_601));
    sandbox(engine).await;
    deliver(engine).await;
    assert_eq!((signatures(&last()), signed_by(&last(), &second.secret)), (1, 1));

    // An overlap of nothing ends the old one at once, and what is over leaves the disk.
    let third = engine.webhook_rotate(&admin(), id, Some(Dur::default())).await.unwrap();
    assert_eq!((third.webhook.secrets.len(), secrets_kept(&workshop)), (1, 1));
    for _ in 0..3 {
        engine.webhook_rotate(&admin(), id, None).await.unwrap();
    }
    let many = engine.webhook_rotate(&admin(), id, None).await.err().unwrap();
    assert_eq!(many.kind(), ErrorKind::Conflict, "a secret that was promised a day is not dropped: {many:?}");
    assert_eq!(secrets_kept(&workshop), 4, "not for ever more");
    // A short overlap ends nothing that was promised more.
    workshop.clock.advance(Dur::from_secs(86_401));
    engine.webhook_rotate(&admin(), id, None).await.unwrap();
    let short = engine.webhook_rotate(&admin(), id, Some(Dur::from_secs(60))).await.unwrap();
    let mut ends: Vec<_> = short.webhook.secrets.iter().filter_map(|secret| secret.expires_at).collect();
    ends.sort();
    let now = engine.now();
    assert_eq!(ends, [Dur::from_secs(60).after(now), Dur::from_secs(86_400).after(now)]);
    let long = engine.webhook_rotate(&admin(), id, Some(Dur::from_secs(31 * 86_400))).await.err().unwrap();
    assert_eq!(long.kind(), ErrorKind::InvalidInput);
    engine.webhook_remove(&admin(), id).await.unwrap();
    assert_eq!(secrets_kept(&workshop), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_secret_is_replaced_by_a_new_one() {
    let workshop = workshop().await;
    let engine = &workshop.engine;
    let receiver = Receiver::fine().await;
    let id = hook(engine, &receiver.url, &["*"]).await.webhook.webhook_id;
    for entry in std::fs::read_dir(workshop.folder.path().join("secrets")).unwrap().map(Result::unwrap) {
        std::fs::remove_file(entry.path()).unwrap();
    }
    let lost = engine.webhook_test(&admin(), id).await.unwrap();
    assert!(lost.error.unwrap().contains(&format!("webhooks rotate {id}")));
    let new = engine.webhook_rotate(&admin(), id, None).await.unwrap();
    assert!(engine.webhook_test(&admin(), id).await.unwrap().delivered);
    let sent = receiver.requests().pop().unwrap();
    assert_eq!((signatures(&sent), signed_by(&sent, &new.secret)), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_shown_once_and_is_not_in_the_store() {
    let workshop = workshop().await;
    let engine = &workshop.engine;
    let receiver = Receiver::fine().await;
    let new = hook(engine, &receiver.url, &["*"]).await;
    let secret = new.secret.strip_prefix("whsec_").unwrap();
    let listed = serde_json::to_string(&engine.webhook_list(&admin()).await.unwrap()).unwrap();
    assert!(!listed.contains(secret) && listed.contains(&receiver.url));
    for entry in std::fs::read_dir(workshop.folder.path()).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{entry:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_tells_what_came_back() {
    let workshop = workshop().await;
    let engine = &workshop.engine;
    let receiver = Receiver::start(|_, before| match before {
        0 => Answer::Status("200 OK"),
        _ => Answer::Status("404 Not Found"),
    })
    .await;
    let new = hook(engine, &receiver.url, &["meter.*"]).await;
    let id = new.webhook.webhook_id;
    let answer = engine.webhook_test(&admin(), id).await.unwrap();
    assert!(answer.delivered && answer.status == Some(200) && answer.error.is_none());
    let request = receiver.requests().pop().unwrap();
    assert_eq!(request.header("webhook-id"), answer.event_id.to_string());
    assert_eq!(signed_by(&request, &new.secret), 1);
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["type"], "dev.sandboxer.webhook.test");
    engine.webhook_enable(&admin(), id, false).await.unwrap();
    let answer = engine.webhook_test(&admin(), id).await.unwrap();
    assert!(!answer.delivered && answer.status == Some(404));
    assert!(answer.error.unwrap().contains("404"));
    let unknown = engine.webhook_test(&admin(), WebhookId::generate()).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_manages_money_manages_webhooks() {
    let workshop = workshop().await;
    let engine = &workshop.engine;
    let receiver = Receiver::fine().await;
    let id = hook(engine, &receiver.url, &["*"]).await.webhook.webhook_id;
    for actor in [Actor::Agt, Actor::Atm] {
        let caller = Caller::with_key(actor, KeyId::generate());
        let refusals = [
            engine.webhook_create(&caller, wanted(&receiver.url, &["*"])).await.err().unwrap(),
            engine.webhook_list(&caller).await.unwrap_err(),
            engine.webhook_get(&caller, id).await.unwrap_err(),
            engine.webhook_remove(&caller, id).await.unwrap_err(),
            engine.webhook_rotate(&caller, id, None).await.err().unwrap(),
            engine.webhook_enable(&caller, id, false).await.unwrap_err(),
            engine.webhook_test(&caller, id).await.unwrap_err(),
            engine.dead_letters(&caller, &Default::default(), None, Default::default()).await.unwrap_err(),
            engine.replay_events(&caller, &Default::default()).await.unwrap_err(),
        ];
        assert!(refusals.iter().all(|error| error.kind() == ErrorKind::Denied), "{refusals:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_and_what_they_name_are_bounded() {
    let workshop = workshop().await;
    let receiver = Receiver::fine().await;
    let mut none = wanted(&receiver.url, &[]);
    assert!(workshop.engine.webhook_create(&admin(), none.clone()).await.is_err());
    none.events = vec!["*".parse().unwrap(); 33];
    assert!(workshop.engine.webhook_create(&admin(), none).await.is_err());
    let mut long = wanted(&receiver.url, &["*"]);
    long.description = Some("x".repeat(257));
    assert!(workshop.engine.webhook_create(&admin(), long).await.is_err());
    for _ in 0..64 {
        hook(&workshop.engine, &receiver.url, &["*"]).await;
    }
    let error = workshop.engine.webhook_create(&admin(), wanted(&receiver.url, &["*"])).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(secrets_kept(&workshop), 64, "the secret of the one too many is gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_never_arrive_is_refused() {
    let workshop = workshop().await;
    let receiver = Receiver::fine().await;
    for (events, hint) in [("sandbx.*", "`sandbox.*`?"), ("sandbox.nope", "sandbox.ready")] {
        let wanted = wanted(&receiver.url, &["*", events]);
        let error = workshop.engine.webhook_create(&admin(), wanted).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.hint().unwrap().contains(hint), "{error:?} {:?}", error.hint());
    }
    let plain = wanted("http://1.1.1.1/", &["*"]);
    let error = workshop.engine.webhook_create(&admin(), plain).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(secrets_kept_or_none(&workshop), 0);
}

fn secrets_kept_or_none(workshop: &sandboxer_testkit::Workshop) -> usize {
    std::fs::read_dir(workshop.folder.path().join("secrets")).map_or(0, Iterator::count)
}
