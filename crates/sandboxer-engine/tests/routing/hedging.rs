//! Two are started, one stays, none is left behind.

use std::time::Duration;

use sandboxer_core::{Dur, Error, ErrorKind, State};

use crate::provider::Provider;
use crate::site::{Blueprint, Site, create, me, request};

async fn hedged() -> (Provider, Provider, Site) {
    let (one, two) = (Provider::new("ext.one"), Provider::new("ext.two"));
    let mut plan = Blueprint::of(&[&one, &two]);
    plan.profile = "extension: ext.one\nroute: {fallback: [ext.two], hedge: {after: 50ms}}\n".into();
    let site = plan.build().await;
    (one, two, site)
}

fn slow(provider: &Provider, ms: u64) {
    provider.script(|script| script.takes = Duration::from_millis(ms));
}

#[tokio::test]
async fn a_quick_first_one_stays_alone() {
    let (one, two, site) = hedged().await;
    assert_eq!(site.create().await.unwrap().extension, "ext.one");
    assert_eq!((one.calls(), two.calls()), (vec!["provision"], vec![]));
}

#[tokio::test]
async fn the_second_one_wins_and_the_first_is_removed() {
    let (one, two, site) = hedged().await;
    slow(&one, 3_000);
    let started = std::time::Instant::now();
    let sandbox = site.create().await.unwrap();
    site.engine.noted().await;
    assert!(started.elapsed() < Duration::from_millis(2_500), "nobody waits for the slower one");
    assert_eq!((sandbox.state, sandbox.extension.as_str()), (State::Ready, "ext.two"));
    assert_eq!(sandbox.route.hedge.as_ref().unwrap().extension, "ext.one", "it is named until it is gone");
    let told = site.story(&sandbox).await;
    for kind in ["sandbox.hedged", "sandbox.hedge_won"] {
        assert!(told.contains(&kind.to_owned()), "{told:?}");
    }
    site.engine.idle().await;
    assert_eq!((one.made(), one.living(), two.living()), (1, 0, 1));
    let seen = site.engine.get(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!((seen.state, seen.route.hedge), (State::Ready, None));
    let hedged = seen.route.hedged.unwrap();
    assert_eq!((hedged.extension.as_str(), hedged.won), ("ext.two", true), "it is known afterwards");
    assert_eq!(hedged.beside.extension, "ext.one");
    site.destroy(&sandbox).await;
    assert_eq!((one.living(), two.living()), (0, 0));
}

#[tokio::test]
async fn the_first_one_wins_and_the_second_is_removed() {
    let (one, two, site) = hedged().await;
    slow(&one, 400);
    slow(&two, 3_000);
    let sandbox = site.create().await.unwrap();
    assert_eq!(sandbox.extension, "ext.one");
    site.engine.idle().await;
    assert_eq!((one.living(), two.made(), two.living()), (1, 1, 0));
    assert_eq!(site.engine.get(&me(), sandbox.sandbox_id).await.unwrap().route.hedge, None);
}

#[tokio::test]
async fn one_that_fails_leaves_it_to_the_other() {
    let (one, two, site) = hedged().await;
    let broken = || Error::new(ErrorKind::BackendFailed, "500");
    slow(&one, 200);
    one.fails(broken());
    slow(&two, 300);
    let sandbox = site.create().await.unwrap();
    assert_eq!(sandbox.extension, "ext.two");
    assert_eq!(sandbox.route.attempts[0].extension, "ext.one");
    site.engine.idle().await;
    one.recovers();
    slow(&one, 300);
    two.fails(broken());
    slow(&two, 10);
    let sandbox = site.create().await.unwrap();
    assert_eq!((sandbox.extension.as_str(), sandbox.route.hedge), ("ext.one", None));
    assert_eq!(sandbox.route.attempts[0].extension, "ext.two");
    one.fails(broken());
    assert_eq!(site.create().await.unwrap_err().kind(), ErrorKind::NoBackend);
    site.engine.idle().await;
    assert_eq!((one.living(), two.living()), (1, 1), "nothing of the one that failed on both");
}

#[tokio::test]
async fn a_destroy_removes_both() {
    let (one, two, site) = hedged().await;
    slow(&one, 60_000);
    slow(&two, 60_000);
    let engine = site.engine.clone();
    let creating = tokio::spawn(async move { create(&engine, request()).await });
    while two.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let row = site.rows().await.remove(0);
    assert_eq!(row.route.hedge.as_ref().unwrap().extension, "ext.two", "written before it was started");
    site.destroy(&row).await;
    creating.abort();
    let _ = creating.await;
    assert_eq!((one.calls().contains(&"teardown"), two.calls().contains(&"teardown")), (true, true));
}

/// A runtime that is dropped in the middle runs no line of its tasks any more, as a killed process does.
#[test]
fn a_process_that_dies_leaves_nothing_of_either() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // While both are started, and after the second has won while the first is still under way.
    for (second_takes, dies_ready) in [(60_000, false), (0, true)] {
        let first = runtime();
        let (one, two, site) = first.block_on(hedged());
        let site = std::sync::Arc::new(site);
        slow(&one, if dies_ready { 2_000 } else { 60_000 });
        slow(&two, second_takes);
        let dying = site.clone();
        let creating = first.spawn(async move { dying.create().await });
        if dies_ready {
            first.block_on(creating).unwrap().unwrap();
        } else {
            while two.calls().is_empty() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        first.shutdown_timeout(Duration::from_secs(5));
        let second = runtime();
        second.block_on(async {
            let engine = site.reborn().await;
            site.clock.advance(Dur::from_secs(31));
            let _ = (one.calls(), two.calls());
            engine.reconcile().await.unwrap();
            let row = site.rows_of(&engine).await.remove(0);
            if dies_ready {
                assert_eq!((row.state, row.route.hedge), (State::Ready, None));
                assert!(one.calls().contains(&"teardown"), "what was slower is removed");
                assert_eq!(two.living(), 1);
            } else {
                assert_eq!(row.state, State::Destroyed);
                assert!(one.calls().contains(&"teardown") && two.calls().contains(&"teardown"));
            }
        });
    }
}

#[tokio::test]
async fn what_is_wrong_with_the_request_is_not_hidden_by_the_other_one() {
    let refused = || Error::new(ErrorKind::ImageNotFound, "there is no such image").without_effect();
    // The first says it: what the second makes afterwards is gone before the row has ended.
    let (one, two, site) = hedged().await;
    slow(&one, 200);
    one.fails(refused());
    slow(&two, 1_000);
    assert_eq!(site.create().await.unwrap_err().kind(), ErrorKind::ImageNotFound);
    assert_eq!((two.made(), two.living()), (1, 0));
    assert_eq!(site.rows().await[0].state, State::Destroyed);
    // The second says it, before or after the first one fails.
    for (first_takes, second_takes) in [(400, 0), (150, 400)] {
        let (one, two, site) = hedged().await;
        slow(&one, first_takes);
        one.script(|script| {
            (script.fails, script.after_effect) = (Some(Error::new(ErrorKind::BackendFailed, "500")), true);
        });
        slow(&two, second_takes);
        two.fails(refused());
        let error = site.create().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ImageNotFound, "{error:?}");
        let row = site.rows().await.remove(0);
        assert_eq!((row.state, row.route.attempts.len()), (State::Destroyed, 2), "both are told");
        assert_eq!((one.living(), two.living()), (0, 0), "what the first had made is gone");
    }
}
