use sandboxer_core::{Dur, ErrorKind, Money};

use super::*;

fn parsed(text: &str) -> Behaviour {
    let mut behaviour = Behaviour::default();
    behaviour.apply(text).unwrap();
    behaviour
}

#[test]
fn words_become_behaviour() {
    let behaviour = parsed(
        " latency=200ms, jitter=50ms,ready_latency=1s,hang=2s,create=500-after,create_times=3,retry_after=7s,\
         death=30s,lost=1m,teardown=500,teardown_times=2,status=hang,list=500,max_sandboxes=4,require_key=true,\
         vcpu_second=0.00002,gib_second=0,create_fee=0.5,region=eu-1,residency=eu,",
    );
    let expected = Behaviour {
        latency: Dur::from_millis(200),
        jitter: Dur::from_millis(50),
        ready_latency: Dur::from_secs(1),
        hang: Dur::from_secs(2),
        create: CreateFault::ServerErrorAfter,
        create_times: Some(3),
        create_rate: None,
        retry_after: Dur::from_secs(7),
        death: Some(Dur::from_secs(30)),
        lost: Some(Dur::from_secs(60)),
        teardown: CallFault::ServerError,
        teardown_times: Some(2),
        status: CallFault::Hang,
        list: CallFault::ServerError,
        max_sandboxes: Some(4),
        require_key: true,
        vcpu_second: Money::from_nanos(20_000),
        gib_second: Money::ZERO,
        create_fee: Money::from_nanos(500_000_000),
        region: Some("eu-1".into()),
        residency: Some("eu".into()),
        nothing_behind: false,
    };
    assert_eq!(behaviour, expected);
    assert_eq!(parsed(""), Behaviour::default());
}

#[test]
fn a_file_says_the_same() {
    let mut from_file = Behaviour::default();
    let text =
        "latency = \"200ms\"\ncreate = 429\ncreate_rate = 0.5\nrequire_key = true\nmax_sandboxes = 2\n";
    from_file.apply_toml(text).unwrap();
    let words = "latency=200ms,create=429,create_rate=0.5,require_key=true,max_sandboxes=2";
    assert_eq!(from_file, parsed(words));
}

#[test]
fn a_fault_that_is_named_anew_begins_anew() {
    let mut behaviour = parsed("latency=1s,create=500,create_times=3,teardown=500,teardown_times=1");
    behaviour.apply("create_times=1,create=402").unwrap();
    assert_eq!((behaviour.create, behaviour.create_times), (CreateFault::PaymentRequired, Some(1)));
    behaviour.apply("create=429,teardown=hang").unwrap();
    assert_eq!((behaviour.create, behaviour.create_times), (CreateFault::TooManyRequests, None));
    assert_eq!((behaviour.teardown, behaviour.teardown_times), (CallFault::Hang, None));
    assert_eq!(behaviour.latency, Dur::from_secs(1), "what is not named stays");
}

#[test]
fn what_cannot_be_is_refused_with_a_way_out() {
    for (text, says, hint) in [
        ("laetncy=1s", "no word", "did you mean `latency`?"),
        ("kubernetes=1", "no word", "the words are"),
        ("create=501", "no such value", "did you mean `500`?"),
        ("create=4299", "no such value", "did you mean `429`?"),
        ("create=timeout-afer", "no such value", "did you mean `timeout-after`?"),
        ("create=tomorrow", "no such value", "one of ok, timeout-after"),
        ("teardown=42", "no such value", "one of ok, 500, hang"),
        ("latency", "says nothing", "word=value"),
        ("latency=fast", "a duration was expected", "durations are written"),
        ("latency=2h", "above 1h", ""),
        ("death=10ms", "below 100ms", ""),
        ("create_times=-1", "whole number", ""),
        ("create_times=99999999999", "whole number", ""),
        ("create_rate=1.5", "from 0 to 1", ""),
        ("create_rate=NaN", "from 0 to 1", ""),
        ("vcpu_second=-1", "below zero", ""),
        ("vcpu_second=1e5", "an amount was expected", "amounts are"),
        ("region=no where", "a short name", ""),
        ("require_key=yes", "no such value", "one of true, false"),
    ] {
        let error = Behaviour::default().apply(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        assert!(error.to_string().contains(says), "{text}: {error}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{text}: {:?}", error.hint());
    }
    let long = Behaviour::default().apply(&"latency=1s,".repeat(1_000)).unwrap_err();
    assert_eq!(long.kind(), ErrorKind::TooLarge);
    for file in ["latency = [1]", "latency = ", "x = \"1\""] {
        let error = Behaviour::default().apply_toml(file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{file}");
    }
}

#[test]
fn jitter_and_rate_are_the_same_for_a_tag_each_time() {
    let behaviour = parsed("latency=100ms,jitter=50ms,create_rate=0.5");
    let tags: Vec<String> = (0..400).map(|n| format!("sbx_{n}")).collect();
    let delays: std::collections::BTreeSet<u64> =
        tags.iter().map(|tag| behaviour.delay(tag).as_millis()).collect();
    assert!(delays.len() > 20 && delays.iter().all(|ms| (100..=150).contains(ms)), "{delays:?}");
    let chosen = tags.iter().filter(|tag| behaviour.is_chosen(tag)).count();
    assert!((140..=260).contains(&chosen), "{chosen} of 400");
    for tag in &tags {
        assert_eq!(behaviour.is_chosen(tag), behaviour.is_chosen(tag));
        assert!(!parsed("create_rate=0").is_chosen(tag) && parsed("create_rate=1").is_chosen(tag));
    }
}
