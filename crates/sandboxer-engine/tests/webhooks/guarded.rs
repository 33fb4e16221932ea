//! Where webhooks may go.

use sandboxer_core::ErrorKind;

use crate::receiver::Receiver;
use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_address_is_refused_at_creation() {
    let workshop = sandboxer_testkit::Workshop::new().await.unwrap();
    workshop.engine.keep_secrets_in(workshop.folder.path());
    for url in [
        "https://127.0.0.1/hook",
        "https://[::1]/hook",
        "https://169.254.169.254/",
        "https://[::ffff:10.0.0.1]/",
        "https://localhost/hook",
    ] {
        let error = workshop.engine.webhook_create(&admin(), wanted(url, &["*"])).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Refused, "{url}: {error}");
        assert!(error.hint().unwrap().contains("SANDBOXER_WEBHOOK_ALLOW_PRIVATE"), "{url}");
    }
    for url in ["http://example.com/", "https://a:b@example.com/", "ftp://example.com/", "nonsense", ""] {
        let error = workshop.engine.webhook_create(&admin(), wanted(url, &["*"])).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
    }
    assert!(workshop.engine.webhook_list(&admin()).await.unwrap().is_empty());
    assert!(!workshop.folder.path().join("secrets").exists(), "and no secret was made");
}

/// A name that led to a good place when the endpoint was made and leads home now, and an address that was allowed then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changed_its_mind_is_refused_at_connection() {
    let workshop = workshop().await;
    workshop.engine.allow_private_webhooks("all".parse().unwrap());
    let receiver = Receiver::fine().await;
    let by_name = receiver.url.replace("127.0.0.1", "localhost");
    // `localhost` may also be `::1`, which only `all` allows.
    let generous = workshop.second_engine();
    generous.keep_secrets_in(workshop.folder.path());
    generous.allow_private_webhooks("all".parse().unwrap());
    let hooks = [
        hook(&generous, &receiver.url, &["sandbox.ready"]).await.webhook.webhook_id,
        hook(&generous, &by_name, &["sandbox.ready"]).await.webhook.webhook_id,
    ];
    sandbox(&workshop.engine).await;
    let strict = workshop.second_engine();
    strict.keep_secrets_in(workshop.folder.path());
    strict.allow_private_webhooks("10.0.0.0/8".parse().unwrap());
    deliver(&strict).await;
    for hook in hooks {
        let error = last_error(&workshop, hook).await;
        assert!(error.contains("private address"), "{error}");
    }
    assert!(receiver.requests().is_empty(), "no byte went there");
    workshop.clock.advance(sandboxer_core::Dur::from_secs(6));
    deliver(&generous).await;
    assert_eq!(receiver.requests().len(), 2);
}
