//! `route explain`, and how a route is shown by `create --dry-run` and `estimate`.

use jiff::Timestamp;
use sandboxer_core::host::LOCAL;
use sandboxer_core::route::{BreakerState, Offer, OfferHealth, RouteDecision};
use sandboxer_core::{ErrorKind, Money};

use super::show;
use crate::api::{Api, PlanView};
use crate::args::RouteCommand;
use crate::human;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};
use crate::table::{Fields, Rows};

pub(super) async fn run(command: RouteCommand, api: &dyn Api, printer: &Printer) -> Outcome {
    let RouteCommand::Explain(args) = command;
    print_plan(&api.plan(args.request.into_request(args.route)).await?, printer)
}

/// The route and the quote. Exits with 7 where nothing fits, as the create itself would.
pub(super) fn print_plan(plan: &PlanView, printer: &Printer) -> Outcome {
    let status = status(&plan.route);
    if printer.is_json() {
        printer.document(plan)?;
        return Ok(status);
    }
    let mut fields = Fields::default();
    fields
        .add("profile", &*plan.profile)
        .add("extension", plan.extension.as_deref().unwrap_or("none fits"))
        .add("host", &*plan.host)
        .add("ttl", human::dur(plan.ttl))
        .add("scope", plan.scope.as_str())
        .add("strategy", show::strategy(plan.route.strategy))
        .maybe("hedge", hedge(&plan.route))
        .maybe("quote", plan.extension.is_some().then(|| show::quote(&plan.quote, None)));
    if plan.extension.is_some() {
        show::upstream(&mut fields, &plan.quote);
    }
    fields.print(printer)?;
    printer.line("")?;
    offers(&plan.route, printer)?;
    Ok(status)
}

/// `a second one on ext.b if the first is not ready after 2s`.
fn hedge(route: &RouteDecision) -> Option<String> {
    let (first, after) = (route.chosen()?, route.hedge_after?);
    let second = route.untried_beside(&first.backend())?;
    Some(format!("a second one on {} if the first is not ready after {}", second.name(), human::dur(after)))
}

/// What is charged here, and what a key of the workspace's own pays beside it.
fn amount(here: Money, elsewhere: Option<Money>) -> String {
    match elsewhere {
        Some(elsewhere) => format!("{here} + {elsewhere} by own key"),
        None => here.to_string(),
    }
}

/// 7 where nothing fits.
pub(super) fn status(route: &RouteDecision) -> ExitStatus {
    if route.chosen().is_some() { ExitStatus::SUCCESS } else { ExitStatus::of(ErrorKind::NoBackend) }
}

/// Every candidate: those that fit in the order in which they are tried, then the others.
pub(super) fn offers(route: &RouteDecision, printer: &Printer) -> Outcome<()> {
    let now = Timestamp::now();
    let mut rows = Rows::new([
        "RANK",
        "EXTENSION",
        "HOST",
        "ANSWER",
        "PRICE/H",
        "QUOTE",
        "P50",
        "P95",
        "HEALTH",
        "REASON",
    ]);
    let mut rank = 0;
    for offer in &route.offers {
        rank += u32::from(offer.accepted);
        rows.row([
            if offer.accepted { rank.to_string() } else { String::new() },
            offer.extension.clone(),
            // A service elsewhere has no host of ours.
            if offer.host == LOCAL && !offer.self_hosted { String::new() } else { offer.host.clone() },
            if offer.accepted { "accepted" } else { "refused" }.into(),
            offer.quote.map(|quote| amount(quote.per_hour, quote.upstream_per_hour)).unwrap_or_default(),
            offer.quote.map(|quote| amount(quote.amount, quote.upstream)).unwrap_or_default(),
            offer.latency.map(|latency| human::dur(latency.p50)).unwrap_or_default(),
            offer.latency.map(|latency| human::dur(latency.p95)).unwrap_or_default(),
            health(offer, now),
            offer.reason.clone(),
        ]);
    }
    rows.print(printer)
}

fn health(offer: &Offer, now: Timestamp) -> String {
    let Some(OfferHealth { state, class, until }) = &offer.health else {
        let is_absent = !offer.accepted && offer.reason.contains("this extension is not installed");
        return if is_absent { String::new() } else { "ok".into() };
    };
    match (state, until) {
        (BreakerState::Closed, _) => "ok".into(),
        (BreakerState::HalfOpen, _) => format!("{class}, may try"),
        (BreakerState::Open, Some(until)) => format!("{class}, again {}", human::relative(*until, now)),
        (BreakerState::Open, None) => format!("{class}, left alone"),
    }
}
