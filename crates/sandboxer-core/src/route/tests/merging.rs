use super::*;
use crate::profile::{Constraints, Hedge, Profile, ProfileFile, RouteSpec, Strategy, resolve};
use crate::request::CreateRequest;

fn profile(body: &str) -> Profile {
    let text = format!("id: profile.t\nversion: \"1.0.0\"\n{body}");
    resolve([&ProfileFile::parse(&text, "t.yaml").unwrap()]).unwrap()
}

fn request(route: RouteSpec) -> CreateRequest {
    CreateRequest { route: Some(route), ..CreateRequest::default() }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn limited(constraints: Constraints) -> RouteSpec {
    RouteSpec { constraints, ..RouteSpec::default() }
}

#[test]
fn the_upper_wish_wins() {
    let below = RouteSpec {
        strategy: Some(Strategy::LowestCost),
        order: words(&["ext.c"]),
        hedge: Some(Hedge::Flag(true)),
        ..RouteSpec::default()
    };
    let plain = profile("");
    let route = Route::new(&below, &plain, &CreateRequest::default());
    assert_eq!(
        (route.strategy, route.order, route.hedge),
        (Strategy::LowestCost, words(&["ext.c"]), Some(Hedge::Flag(true)))
    );
    let own = profile("route: {strategy: lowest-latency, order: [ext.p], hedge: false}\n");
    let route = Route::new(&below, &own, &CreateRequest::default());
    assert_eq!(
        (route.strategy, route.order, route.hedge),
        (Strategy::LowestLatency, words(&["ext.p"]), None)
    );
    let asked =
        RouteSpec { strategy: Some(Strategy::Explicit), order: words(&["ext.r"]), ..RouteSpec::default() };
    let route = Route::new(&below, &own, &request(asked));
    assert_eq!((route.strategy, route.order), (Strategy::Explicit, words(&["ext.r"])));
    let names = profile("extension: ext.p\n");
    assert!(Route::new(&below, &names, &CreateRequest::default()).is_chain, "the profile's order stands");
    assert!(!Route::new(&below, &plain, &CreateRequest::default()).is_chain);
}

#[test]
fn constraints_only_become_tighter() {
    let operator = limited(Constraints {
        max_cost_per_hour: Some(money("0.5")),
        residency: words(&["eu", "us"]),
        require_isolation: Some(IsolationLevel::Policy),
        ..Constraints::default()
    });
    let own = profile(
        "requires: {region: r1}\nroute: {only: [ext.a, ext.b], ignore: [ext.z], constraints: {max_cost_per_hour: 0.2, \
         require_isolation: container, capabilities: [snapshot], max_latency: 2s, max_cost_total: 3}}\n",
    );
    let asked = RouteSpec {
        only: words(&["ext.b", "ext.c"]),
        ignore: words(&["ext.y"]),
        ..limited(Constraints {
            max_cost_per_hour: Some(money("9")),
            max_cost_total: Some(money("2")),
            require_isolation: Some(IsolationLevel::Network),
            region: Some("r2".into()),
            capabilities: words(&["gpu", "snapshot"]),
            max_latency: Some(Dur::from_secs(9)),
            residency: words(&["eu"]),
        })
    };
    let route = Route::new(&operator, &own, &CreateRequest { max_cost: Some(money("1")), ..request(asked) });
    assert_eq!(
        route.bounds,
        Bounds {
            max_cost_per_hour: Some(money("0.2")),
            max_cost_total: Some(money("1")),
            isolation: Some(IsolationLevel::Container),
            regions: words(&["r1", "r2"]),
            capabilities: words(&["snapshot", "gpu"]),
            max_latency: Some(Dur::from_secs(2)),
            residency: vec![words(&["eu", "us"]), words(&["eu"])],
        }
    );
    assert_eq!(route.only, Some(words(&["ext.b"])));
    assert_eq!(route.ignore, words(&["ext.z", "ext.y"]));
}

#[test]
fn who_is_asked() {
    let known = [
        Known { id: "ext.a", only_by_name: false },
        Known { id: "ext.b", only_by_name: false },
        Known { id: "ext.special", only_by_name: true },
    ];
    let asked = |profile: &Profile, request: &CreateRequest| {
        let operator = RouteSpec { fallback: words(&["ext.last"]), ..RouteSpec::default() };
        candidates(&Route::new(&operator, profile, request), &known)
    };
    let plain = CreateRequest::default();
    assert_eq!(asked(&profile(""), &plain), ["ext.a", "ext.b", "ext.last"]);
    assert_eq!(
        asked(&profile("extension: ext.b\nroute: {fallback: [ext.x]}\n"), &plain),
        ["ext.b", "ext.x", "ext.last"]
    );
    let more = request(RouteSpec { fallback: words(&["ext.y"]), ..RouteSpec::default() });
    assert_eq!(asked(&profile("extension: ext.b\n"), &more), ["ext.b", "ext.y", "ext.last"]);
    assert_eq!(
        asked(&profile(""), &more),
        ["ext.a", "ext.b", "ext.y", "ext.last"],
        "a fallback replaces nobody"
    );
    let only = CreateRequest { extension: Some("ext.q".into()), ..CreateRequest::default() };
    assert_eq!(asked(&profile("extension: ext.b\n"), &only), ["ext.q"]);
    let named = profile("route: {order: [ext.special]}\n");
    assert_eq!(asked(&named, &plain), ["ext.a", "ext.b", "ext.special", "ext.last"], "a name is a name");
    let explicit = profile("route: {strategy: explicit, order: [ext.special]}\n");
    assert_eq!(asked(&explicit, &plain), ["ext.special", "ext.last"]);
}

#[test]
fn what_is_wrong_in_a_request_is_said() {
    let told = |route: RouteSpec| {
        let error = request(route).validate().unwrap_err();
        format!("{error} | {}", error.hint().unwrap_or_default())
    };
    let capable =
        |name: &str| limited(Constraints { capabilities: words(&[name]), ..Constraints::default() });
    assert_eq!(
        told(capable("snapshots")),
        "`route.constraints.capabilities[0]`: `snapshots` is not a capability | did you mean `snapshot`?"
    );
    assert_eq!(
        told(RouteSpec { only: words(&["docker"]), ..RouteSpec::default() }),
        "`route.only[0]`: `docker` is not the id of an extension: it does not begin with `ext.` | \
         extensions are named like `ext.native` or `ext.docker`"
    );
    let negative = Constraints { max_cost_total: Some(money("-1")), ..Constraints::default() };
    assert_eq!(told(limited(negative)), "`route.constraints.max_cost_total`: it is negative | ");
    let weights = RouteSpec {
        strategy: Some(Strategy::Weighted),
        weights: [("ext.a".to_owned(), 0)].into(),
        ..RouteSpec::default()
    };
    assert!(told(weights).starts_with("`route.weights.ext.a`: 0 is not between 1 and 1000000"));
    let json = r#"{"strategy":"weighted","weights":{"ext.a":2},"hedge":{"after":"2s"},"order":["ext.b"],
        "constraints":{"residency":["eu"],"max_latency":"3s","capabilities":["gpu"]}}"#;
    let read: RouteSpec = serde_json::from_str(json).unwrap();
    read.validate().unwrap();
    assert_eq!(serde_json::from_value::<RouteSpec>(serde_json::to_value(&read).unwrap()).unwrap(), read);
    assert!(serde_json::from_str::<RouteSpec>(r#"{"stratgy":"explicit"}"#).is_err());
    assert!(serde_json::from_str::<RouteSpec>(r#"{"hedge":{"afte":"2s"}}"#).is_err());
}
