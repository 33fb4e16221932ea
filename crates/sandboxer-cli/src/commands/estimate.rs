//! `estimate`: what a sandbox would cost, line by line.

use sandboxer_engine::{Estimate, EstimateRequest};

use super::{route, show};
use crate::api::Api;
use crate::args::EstimateArgs;
use crate::human;
use crate::printer::Printer;
use crate::status::Outcome;
use crate::table::{Fields, Rows};

pub(super) async fn run(args: EstimateArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let EstimateArgs { place, duration, route: wishes } = args;
    let request = EstimateRequest {
        profile: place.profile,
        duration,
        inputs: place.input.into_iter().collect(),
        extension: place.extension,
        host: place.host,
        route: wishes.into_spec(),
    };
    let estimate = api.estimate(&request).await?;
    let status = route::status(&estimate.route);
    if printer.is_json() {
        printer.document(&estimate)?;
        return Ok(status);
    }
    print(&estimate, printer)?;
    Ok(status)
}

fn print(estimate: &Estimate, printer: &Printer) -> Outcome<()> {
    let mut fields = Fields::default();
    fields.add("profile", &*estimate.profile).add("duration", human::dur(estimate.duration)).add(
        "extension",
        match &estimate.extension {
            Some(extension) => format!("{extension} on {}", estimate.host),
            None => "none fits".into(),
        },
    );
    if let Some(quote) = &estimate.quote {
        fields.add("quote", show::quote(quote, None));
        fields.maybe("price", Some(quote.price.clone()));
        show::upstream(&mut fields, quote);
    }
    fields.print(printer)?;
    if let Some(quote) = estimate.quote.as_ref().filter(|quote| !quote.items.is_empty()) {
        printer.line("")?;
        show::quoted(quote).print(printer)?;
    }
    if estimate.extension.is_none() {
        printer.line("")?;
        return route::offers(&estimate.route, printer);
    }
    let mut rows = Rows::new(["OTHERWISE", "HOST", "PRICE/H", "QUOTE"]);
    for offer in estimate.route.offers.iter().filter(|offer| offer.accepted).skip(1) {
        let money =
            |amount: Option<sandboxer_core::Money>| amount.map(|it| it.to_string()).unwrap_or_default();
        rows.row([
            offer.extension.clone(),
            offer.host.clone(),
            money(offer.quote.map(|quote| quote.per_hour)),
            money(offer.quote.map(|quote| quote.amount)),
        ]);
    }
    if !rows.is_empty() {
        printer.line("")?;
        rows.print(printer)?;
    }
    Ok(())
}
