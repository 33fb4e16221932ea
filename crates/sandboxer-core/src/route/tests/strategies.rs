use super::*;
use crate::error::Class;
use crate::profile::{Hedge, HedgeAfter, Strategy};

fn route(strategy: Strategy) -> Route {
    Route { strategy, ..Route::default() }
}

#[test]
fn own_machines_come_first_and_services_by_price() {
    let (own, hosted) = (able(true), able(false));
    let all = vec![
        candidate("ext.dear", &hosted, "0.9"),
        candidate("ext.own-b", &own, "0.5"),
        candidate("ext.cheap", &hosted, "0.1"),
        candidate("ext.own-a", &own, "0"),
    ];
    let decision = decide(&route(Strategy::PreferSelfHosted), all.clone(), now(), 1);
    assert_eq!(order(&decision), ["ext.own-b", "ext.own-a", "ext.cheap", "ext.dear"]);
    assert_eq!(decision.offers[2].reason, "fits the profile, hosted, 0.10 USD for the TTL");
    let chain = Route { is_chain: true, ..route(Strategy::PreferSelfHosted) };
    assert_eq!(
        order(&decide(&chain, all.clone(), now(), 1)),
        ["ext.dear", "ext.own-b", "ext.cheap", "ext.own-a"]
    );
    let ordered = Route {
        order: vec!["ext.cheap".into(), "ext.gone".into(), "ext.dear".into()],
        ..route(Strategy::PreferSelfHosted)
    };
    assert_eq!(order(&decide(&ordered, all, now(), 1)), ["ext.cheap", "ext.dear", "ext.own-b", "ext.own-a"]);
}

#[test]
fn the_cheapest_first_and_of_equals_the_quickest() {
    let hosted = able(false);
    let mut all = vec![
        candidate("ext.slow", &hosted, "0.2"),
        candidate("ext.quick", &hosted, "0.2"),
        candidate("ext.cheap", &hosted, "0.1"),
    ];
    all[0].latency = Some(measured(900, 9));
    all[1].latency = Some(measured(90, 9));
    let decision = decide(&route(Strategy::LowestCost), all, now(), 1);
    assert_eq!(order(&decision), ["ext.cheap", "ext.quick", "ext.slow"]);
    assert_eq!(decision.offers[0].score, Some(100_000_000));
}

#[test]
fn the_quickest_first_with_bounded_curiosity() {
    let hosted = able(false);
    let mut all = vec![
        candidate("ext.new", &hosted, "0.3"),
        candidate("ext.slow", &hosted, "0.2"),
        candidate("ext.quick", &hosted, "0.2"),
        candidate("ext.dear", &hosted, "0.41"),
    ];
    all[1].latency = Some(measured(900, 9));
    all[2].latency = Some(measured(90, 9));
    let mut first = std::collections::BTreeMap::new();
    for dice in 0..10_000 {
        let decision = decide(&route(Strategy::LowestLatency), all.clone(), now(), dice);
        *first.entry(order(&decision)[0].to_owned()).or_insert(0) += 1;
        if order(&decision)[0] == "ext.quick" {
            assert_eq!(order(&decision), ["ext.quick", "ext.slow", "ext.new", "ext.dear"]);
        }
    }
    let explored = first.remove("ext.new").unwrap();
    assert!((400..=600).contains(&explored), "about one in twenty: {explored}");
    assert_eq!(first.into_keys().collect::<Vec<_>>(), ["ext.quick"], "never one more than twice as dear");
}

#[test]
fn weights_decide_how_often_one_comes_first() {
    let (own, hosted) = (able(true), able(false));
    let all = vec![
        candidate("ext.one", &hosted, "0.1"),
        candidate("ext.two", &hosted, "0.2"),
        candidate("ext.none", &own, "0"),
    ];
    let mut weighted = route(Strategy::Weighted);
    weighted.weights = [("ext.one".to_owned(), 1), ("ext.two".to_owned(), 3)].into();
    let count = |route: &Route, all: &Vec<Candidate<'_>>, name: &str| {
        let first = |dice| order(&decide(route, all.clone(), now(), dice))[0] == name;
        (0..4_000).filter(|dice| first(*dice)).count()
    };
    assert!((2_850..3_150).contains(&count(&weighted, &all, "ext.two")));
    assert_eq!(count(&weighted, &all, "ext.none"), 0, "without a weight only after the others");
    weighted.weights.clear();
    // Twice the price, a quarter as often; who is free weighs as much as the cheapest: 4, 1 and 4 of 9.
    let ninth = 4_000 / 9;
    assert!((ninth - 90..ninth + 90).contains(&count(&weighted, &all, "ext.two")));
    assert!((4 * ninth - 150..4 * ninth + 150).contains(&count(&weighted, &all, "ext.none")));
}

#[test]
fn every_constraint_has_its_refusal() {
    let hosted = Capability { snapshot: true, ..able(false) };
    let bounds = |bounds: Bounds| Route { bounds, ..route(Strategy::LowestCost) };
    let refused = |route: &Route, change: &dyn Fn(&mut Candidate<'_>)| {
        let mut one = candidate("ext.x", &hosted, "0.2");
        change(&mut one);
        refusal(&decide(route, vec![one], now(), 1), "ext.x").to_owned()
    };
    let keep = |_: &mut Candidate<'_>| {};
    let some = Bounds::default;
    for (route, change, expected) in [
        (
            bounds(Bounds { max_cost_per_hour: Some(money("0.1")), ..some() }),
            &keep as &dyn Fn(&mut Candidate<'_>),
            "an hour costs 0.20 USD, above `max_cost_per_hour` of 0.10 USD",
        ),
        (
            bounds(Bounds { max_cost_total: Some(money("0.1")), ..some() }),
            &keep,
            "the TTL costs 0.20 USD, above the accepted 0.10 USD",
        ),
        (
            bounds(Bounds { isolation: Some(IsolationLevel::Microvm), ..some() }),
            &keep,
            "isolation `container` is weaker than the required `microvm`",
        ),
        (
            bounds(Bounds { capabilities: vec!["snapshot".into(), "gpu".into()], ..some() }),
            &keep,
            "it lacks the required capability `gpu`",
        ),
        (
            bounds(Bounds { regions: vec!["eu-1".into()], ..some() }),
            &|one| one.location.regions = vec!["us-1".into(), "us-2".into()],
            "it is in us-1 or us-2, and `eu-1` is required",
        ),
        (
            bounds(Bounds { residency: vec![vec!["eu".into(), "ch".into()]], ..some() }),
            &keep,
            "it keeps data in no named place, and eu or ch is required",
        ),
        (
            bounds(Bounds { max_latency: Some(Dur::from_millis(100)), ..some() }),
            &|one| one.latency = Some(measured(300, 9)),
            "its creates took 300ms (p95 of 9), above `max_latency` of 100ms",
        ),
        (
            bounds(some()),
            &|one| one.price = Price::Unknown("there is no price".into()),
            "its price is not known: there is no price",
        ),
        (bounds(some()), &|one| one.full = Some(Refusal::full(now(), "at its limit")), "at its limit"),
        (
            Route { only: Some(vec!["ext.y".into()]), ..route(Strategy::LowestCost) },
            &keep,
            "`route.only` does not name it",
        ),
        (
            Route { ignore: vec!["ext.x".into()], ..route(Strategy::LowestCost) },
            &keep,
            "`route.ignore` names it",
        ),
    ] {
        assert_eq!(refused(&route, change), expected);
    }
}

#[test]
fn an_unknown_latency_comes_late_and_an_old_one_is_unknown() {
    let hosted = able(false);
    let mut all = vec![candidate("ext.unknown", &hosted, "0.1"), candidate("ext.known", &hosted, "0.2")];
    all[1].latency = Some(measured(50, 6));
    let bounds = Bounds { max_latency: Some(Dur::from_millis(100)), ..Bounds::default() };
    let limited = Route { bounds, ..route(Strategy::LowestCost) };
    assert_eq!(order(&decide(&limited, all.clone(), now(), 1)), ["ext.known", "ext.unknown"]);
    all[1].latency = Some(measured(300, 6));
    assert_eq!(order(&decide(&limited, all.clone(), now(), 1)), ["ext.unknown"]);
    // Six samples weigh less than one after half an hour: it may show again how quick it is.
    let later = now() + SignedDuration::from_secs(1_800);
    assert_eq!(order(&decide(&limited, all, later, 1)), ["ext.unknown", "ext.known"]);
}

#[test]
fn who_failed_is_left_alone_then_tried_by_one() {
    let hosted = able(false);
    let breaker = Breaker::after_failure(None, Class::Payment, "no credit", None, now());
    let broken = [breaker.clone()];
    let mut one = candidate("ext.x", &hosted, "0.1");
    one.breakers = &broken;
    let decision = decide(&route(Strategy::LowestCost), vec![one.clone()], now(), 1);
    assert_eq!(
        refusal(&decision, "ext.x"),
        "left alone until 2027-01-15T08:15:00Z after 1 failure (payment): no credit"
    );
    assert_eq!(decision.offers[0].health.as_ref().unwrap().state, BreakerState::Open);
    let later = now() + SignedDuration::from_secs(900);
    let decision = decide(&route(Strategy::LowestCost), vec![one.clone()], later, 1);
    assert!(decision.offers[0].accepted);
    assert_eq!(decision.offers[0].health.as_ref().unwrap().state, BreakerState::HalfOpen);
    let probed = [Breaker { probe_until: Some(later + SignedDuration::from_secs(9)), ..breaker }];
    one.breakers = &probed;
    let decision = decide(&route(Strategy::LowestCost), vec![one], later, 1);
    assert!(refusal(&decision, "ext.x").starts_with("somebody else is trying it again"));
}

#[test]
fn a_second_one_is_started_when_the_first_is_slower_than_usual() {
    let hosted = able(false);
    let mut all = vec![candidate("ext.a", &hosted, "0.1"), candidate("ext.b", &hosted, "0.2")];
    let with = |hedge| Route { hedge: Some(hedge), ..route(Strategy::LowestCost) };
    let after = |route: &Route, all: &[Candidate<'_>]| decide(route, all.to_vec(), now(), 1).hedge_after;
    assert_eq!(after(&with(Hedge::Flag(true)), &all), Some(Dur::from_secs(5)));
    all[0].latency = Some(measured(700, 9));
    assert_eq!(after(&with(Hedge::Flag(true)), &all), Some(Dur::from_millis(700)));
    let fixed = with(Hedge::After(HedgeAfter { after: Dur::from_secs(2) }));
    assert_eq!(after(&fixed, &all), Some(Dur::from_secs(2)));
    assert_eq!(after(&fixed, &all[..1]), None, "nobody to ask");
    assert_eq!(after(&route(Strategy::LowestCost), &all), None, "off unless somebody asks for it");
}

#[test]
fn newer_samples_count_more() {
    let mut window = Window::default();
    let long_ago = now() - SignedDuration::from_secs(3_600);
    for _ in 0..60 {
        window.add(Dur::from_millis(1_000), long_ago);
    }
    let mut digest = Digest::default();
    for _ in 0..4 {
        digest = window.add(Dur::from_millis(100), now());
    }
    // Sixty samples of an hour ago weigh less than one of now: a 64th each.
    assert_eq!((digest.p50, digest.samples), (Dur::from_millis(100), 64));
    assert_eq!(digest.p95, Dur::from_millis(1_000));
    let back = window.add(Dur::from_millis(100), long_ago);
    assert_eq!(back.samples, 64, "the window does not grow, also when the clock goes back");
    assert!(!Digest { samples: 4, ..digest }.is_known(now()), "a few say nothing");
}

#[test]
fn limits_of_ours() {
    let limits = ExtensionLimits {
        max_sandboxes: Some(3),
        max_concurrent_creates: Some(2),
        creates_per_second: Some(0.5),
        ..ExtensionLimits::default()
    };
    assert_eq!(limits.window(), Dur::from_secs(2));
    let taken = |living, creating, recent| {
        let since = (recent > 0).then(|| now() - SignedDuration::from_millis(1_500));
        limits.refuse(Slots { living, creating, recent, since }, now())
    };
    assert_eq!(taken(2, 1, 0), None);
    assert_eq!(taken(3, 0, 0).unwrap().reason, "at its limit here: 3 of 3 sandboxes");
    assert_eq!(taken(2, 2, 0).unwrap().reason, "at its limit here: 2 of 2 creates are under way");
    let rate = taken(0, 0, 1).unwrap();
    assert_eq!(rate.reason, "at its limit here: 0.5 creates a second");
    assert_eq!(rate.again_at, Some(Dur::from_millis(500).after(now())), "when the oldest counts no more");
    assert!(taken(3, 0, 0).unwrap().again_at > Some(now()), "somebody may leave");
    let never = ExtensionLimits { max_sandboxes: Some(0), ..ExtensionLimits::default() };
    assert_eq!(never.refuse(Slots::default(), now()).unwrap().again_at, None, "nobody will");
    assert!(limits.validate("ext.x").is_ok());
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let wrong = ExtensionLimits { creates_per_second: Some(rate), ..ExtensionLimits::default() };
        assert!(wrong.validate("ext.x").is_err(), "{rate}");
    }
}

#[test]
fn what_a_key_of_ones_own_pays_counts() {
    let can = able(false);
    let mut own = candidate("ext.own-key", &can, "0.01");
    own.price = Price::Quoted(OfferQuote {
        amount: money("0.01"),
        per_hour: money("0.01"),
        upstream: Some(money("1.00")),
        upstream_per_hour: Some(money("1.00")),
    });
    let other = candidate("ext.other", &can, "0.50");
    let mut route = Route { strategy: crate::profile::Strategy::LowestCost, ..Route::default() };
    let decision = decide(&route, vec![own.clone(), other.clone()], now(), 0);
    assert_eq!(order(&decision), ["ext.other", "ext.own-key"], "by all that it costs");
    route.bounds.max_cost_total = Some(money("1.00"));
    let decision = decide(&route, vec![own.clone(), other.clone()], now(), 0);
    assert_eq!(refusal(&decision, "ext.own-key"), "the TTL costs 1.01 USD, above the accepted 1.00 USD");
    route.bounds = Bounds { max_cost_per_hour: Some(money("0.9")), ..Bounds::default() };
    let decision = decide(&route, vec![own, other], now(), 0);
    assert!(refusal(&decision, "ext.own-key").starts_with("an hour costs 1.01 USD"));
}
