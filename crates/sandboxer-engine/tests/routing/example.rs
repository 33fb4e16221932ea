//! The worked example of `docs/routing.md`: its numbers are those of the built-in prices.

use jiff::Timestamp;
use sandboxer_core::Dur;
use sandboxer_core::capability::Capability;
use sandboxer_core::extension::Location;
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::profile::{Resources, Strategy};
use sandboxer_core::route::{
    Bounds, Candidate, Digest, Offer, OfferQuote, Price, Route, RouteDecision, Window, decide,
};
use sandboxer_core::tariff::Terms;
use sandboxer_engine::prices::Prices;

const DOCUMENT: &str = include_str!("../../../../docs/routing.md");

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn took(ms: u64) -> Option<Digest> {
    let mut window = Window::default();
    (0..20).fold(None, |_, _| Some(window.add(Dur::from_millis(ms), now())))
}

fn route(strategy: Strategy, bounds: Bounds) -> RouteDecision {
    let own = Capability { isolation: IsolationLevel::Container, self_hosted: true, ..Capability::default() };
    let hosted = Capability { isolation: IsolationLevel::Microvm, ..Capability::default() };
    let resources = Resources { cpu: Some(1.0), memory_mb: Some(2_048), ..Resources::default() };
    let book = Prices::default().book();
    let made = |(id, capability, latency): (&str, _, Option<Digest>)| {
        let is_own = id == "ext.native";
        let tariff = book.tariff(id, "local", &resources, is_own, now()).unwrap();
        let quote = tariff.quote(Dur::from_secs(1_800), Terms::default()).unwrap();
        Candidate {
            offer: Offer {
                extension: id.into(),
                host: "local".into(),
                accepted: !is_own,
                reason: if is_own { "full: 4 of 4 sandboxes" } else { "fits the profile" }.into(),
                ..Offer::default()
            },
            capability: Some(capability),
            location: Location::default(),
            price: Price::Quoted(OfferQuote::new(&quote, quote.per_hour)),
            latency,
            breakers: &[],
            full: None,
        }
    };
    let candidates =
        [("ext.native", &own, None), ("ext.e2b", &hosted, took(1_333)), ("ext.vercel", &hosted, took(666))];
    decide(&Route { strategy, bounds, ..Route::default() }, candidates.map(made).into(), now(), 1)
}

/// The rows of the table that the document shows.
fn rows(decision: &RouteDecision) -> Vec<String> {
    let row = |offer: &Offer| {
        let quote = offer.quote.unwrap();
        let accepted = if offer.accepted { "yes" } else { "no" };
        format!(
            "| `{}` | {accepted} | {} | {} | {} |",
            offer.extension, quote.amount, quote.per_hour, offer.reason
        )
    };
    decision.offers.iter().map(row).collect()
}

#[test]
fn the_document_shows_what_is_decided() {
    let dear = Bounds { max_cost_per_hour: Some("0.10".parse().unwrap()), ..Bounds::default() };
    for decision in [
        route(Strategy::PreferSelfHosted, Bounds::default()),
        route(Strategy::LowestLatency, Bounds::default()),
        route(Strategy::LowestCost, dear),
    ] {
        let expected = rows(&decision).join("\n");
        assert!(DOCUMENT.contains(&expected), "docs/routing.md lacks\n{expected}");
    }
}
