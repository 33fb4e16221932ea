//! `extensions`: which there are, what they declare, and whether they can be used.

use sandboxer_core::extension::CheckItem;
use sandboxer_core::page::Page;
use sandboxer_core::price::{PricePeriod, PriceRate};
use sandboxer_core::tariff::Phase;
use sandboxer_core::{Dur, ErrorKind, Money};
use sandboxer_engine::ExtensionView;

use crate::api::Api;
use crate::args::ExtensionsCommand;
use crate::human;
use crate::printer::{Printer, Tone};
use crate::status::{ExitStatus, Outcome};
use crate::table::{Fields, Rows};
use crate::trial::{Trial, TrialWish, Verdict};

pub(super) async fn run(command: ExtensionsCommand, api: &dyn Api, printer: &Printer) -> Outcome {
    match command {
        ExtensionsCommand::List => list(api.extensions().await?, printer),
        ExtensionsCommand::Show { id } => show(&api.extension(&id).await?, printer),
        ExtensionsCommand::Check { id: Some(id), host, profile, input } => {
            let view = api.extension(&id).await?;
            let wish = TrialWish { host, profile, inputs: input };
            // What cannot be used need not be tried.
            let trial = if view.check.ok { api.try_extension(&id, wish).await? } else { None };
            check(vec![view], trial.as_ref(), printer)
        }
        ExtensionsCommand::Check { id: None, .. } => check(api.extensions().await?, None, printer),
    }
}

fn list(items: Vec<ExtensionView>, printer: &Printer) -> Outcome {
    if printer.is_json() {
        printer.document(&Page { items, next_cursor: None })?;
        return Ok(ExitStatus::SUCCESS);
    }
    let mut rows = Rows::new(["EXTENSION", "USABLE", "ISOLATION", "PRICING", "SUMMARY"]);
    for view in items {
        let about = view.description;
        let usable = if view.check.ok && view.price_problem.is_none() { "yes" } else { "no" };
        rows.row([
            about.id,
            usable.into(),
            about.capability.isolation.to_string(),
            about.pricing,
            about.summary,
        ]);
    }
    rows.print(printer)?;
    Ok(ExitStatus::SUCCESS)
}

fn show(view: &ExtensionView, printer: &Printer) -> Outcome {
    if printer.is_json() {
        printer.document(view)?;
        return Ok(ExitStatus::SUCCESS);
    }
    let about = &view.description;
    let (can, cannot) = capabilities(view);
    let mut fields = Fields::default();
    fields
        .add("extension", &*about.id)
        .add("summary", &*about.summary)
        .add(
            "usable",
            match (view.check.ok, &view.price_problem) {
                (true, None) => "yes",
                (true, Some(_)) => "no, without a price",
                (false, _) => "no; see `sandboxer extensions check`",
            },
        )
        .add("isolation", about.capability.isolation.to_string())
        .add("pricing", &*about.pricing);
    price(view, &mut fields);
    fields.maybe("can", Some(can)).maybe("cannot", Some(cannot));
    for (key, meaning) in &about.configuration {
        fields.add(&format!("option {key}"), meaning);
    }
    fields.print(printer)?;
    Ok(ExitStatus::SUCCESS)
}

/// What it asks, from when on, and who says so.
fn price(view: &ExtensionView, fields: &mut Fields) {
    if let Some(problem) = &view.price_problem {
        fields.toned("price", problem, Tone::Bad);
    }
    let Some(card) = &view.price else { return };
    // As it is written in a price file.
    let word = |value: serde_json::Result<serde_json::Value>| {
        value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let rate = |rate: &PriceRate| {
        let model = rate.model.as_deref().map(|model| format!(" ({model})")).unwrap_or_default();
        let (unit, per) = (word(serde_json::to_value(rate.unit)), word(serde_json::to_value(rate.per)));
        let span = if rate.per == PricePeriod::Once { "once".to_owned() } else { format!("a {per}") };
        let free = if rate.free > 0 { format!(" above {}", rate.free) } else { String::new() };
        let charged = word(serde_json::to_value(rate.charged));
        let paused = match (rate.states.contains(&Phase::Running), rate.states.contains(&Phase::Paused)) {
            (true, false) => "",
            (true, true) => ", also while paused",
            (false, _) => ", while paused",
        };
        let name = rate.meter.as_str();
        format!("{name}{model}: {} for a {unit}{free}, {span}, {charged}{paused}", rate.amount)
    };
    let bundled = card.bundled.iter().map(|meter| format!("{}: comes with the rest", meter.as_str()));
    let rates: Vec<String> = card.rates.iter().map(rate).chain(bundled).collect();
    fields.add("price", if rates.is_empty() { "nothing".to_owned() } else { rates.join("\n") });
    if card.minimum > Money::ZERO {
        fields.add("at least", card.minimum.to_string());
    }
    if card.granularity > Dur::ZERO {
        fields.add("rounded up to", human::dur(card.granularity));
    }
    fields.add("price as of", format!("{}, {}", card.as_of, card.source));
}

/// The names of what is declared and of what is not.
fn capabilities(view: &ExtensionView) -> (String, String) {
    let declared = serde_json::to_value(&view.description.capability).unwrap_or_default();
    let names = |wanted: bool| -> String {
        let fields = declared.as_object().into_iter().flatten();
        let named =
            fields.filter(|(_, value)| value.as_bool() == Some(wanted)).map(|(name, _)| name.as_str());
        named.collect::<Vec<_>>().join(", ")
    };
    (names(true), names(false))
}

/// What was looked at, and what was tried.
#[derive(serde::Serialize)]
struct Checked<'a> {
    items: Vec<ExtensionView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conformance: Option<&'a Trial>,
}

fn check(items: Vec<ExtensionView>, trial: Option<&Trial>, printer: &Printer) -> Outcome {
    let usable = items.iter().all(|view| view.check.ok);
    let status = match (usable, trial) {
        (false, _) => ExitStatus::of(ErrorKind::NoBackend),
        (true, Some(trial)) if !trial.passed() => ExitStatus::of(ErrorKind::BackendFailed),
        (true, _) => ExitStatus::SUCCESS,
    };
    if printer.is_json() {
        printer.document(&Checked { items, conformance: trial })?;
        return Ok(status);
    }
    let mut rows = Rows::new(["EXTENSION", "CHECK", "OUTCOME", "DETAIL"]);
    for view in &items {
        for item in &view.check.items {
            rows.row([view.description.id.clone(), item.name.clone(), outcome(item).into(), with_hint(item)]);
        }
    }
    for row in trial.into_iter().flat_map(|trial| &trial.rows) {
        let (word, detail) = match &row.verdict {
            Verdict::Passed => ("passed", row.proves.to_owned()),
            Verdict::Failed { why } => ("FAILED", why.clone()),
            Verdict::NotDeclared { why } => ("not declared", why.clone()),
        };
        let id = trial.map(|trial| trial.extension.clone()).unwrap_or_default();
        rows.row([id, row.name.to_owned(), word.to_owned(), detail]);
    }
    rows.print(printer)?;
    Ok(status)
}

/// `ok`, `MISSING` where nothing works without it, `missing` where something does.
pub(super) fn outcome(item: &CheckItem) -> &'static str {
    match (item.ok, item.required) {
        (true, _) => "ok",
        (false, true) => "MISSING",
        (false, false) => "missing",
    }
}

pub(super) fn with_hint(item: &CheckItem) -> String {
    match item.hint.as_ref().filter(|_| !item.ok) {
        Some(hint) => format!("{}; hint: {hint}", item.detail),
        None => item.detail.clone(),
    }
}
