//! How a sandbox is shown, wherever it is shown.

use jiff::Timestamp;
use sandboxer_core::bill::Cost;
use sandboxer_core::isolation::{IsolationReport, Outcome as ControlOutcome};
use sandboxer_core::profile::Strategy;
use sandboxer_core::route::{AttemptOutcome, Backend};
use sandboxer_core::sandbox::{Quote, Sandbox};
use sandboxer_core::tariff::{Item, MINIMUM, ProviderKey};
use sandboxer_core::{Dur, Money, State, exec::ExecInfo};

use crate::human;
use crate::printer::{Printer, Tone};
use crate::status::Outcome;
use crate::table::{Fields, Rows};

/// How much of a command fits in a table.
const LONGEST_COMMAND: usize = 60;

/// Everything about one sandbox that a person wants to know first.
pub(super) fn sandbox(sandbox: &Sandbox, printer: &Printer) -> Outcome<()> {
    let now = Timestamp::now();
    let mut fields = Fields::default();
    fields
        .toned("sandbox", sandbox.sandbox_id.to_string(), Tone::Strong)
        .toned("state", state_text(sandbox), state_tone(sandbox.state))
        .add("profile", &*sandbox.profile)
        .add("extension", format!("{} on {}", sandbox.extension, sandbox.host))
        .toned("isolation", isolation_text(&sandbox.isolation), isolation_tone(&sandbox.isolation))
        .maybe(
            "reachable by",
            sandbox.reachability.as_ref().map(|r| format!("{} {} ({})", r.method, r.endpoint, r.probe)),
        )
        .maybe("ports", sandbox.reachability.as_ref().and_then(ports_text))
        .add("scope", sandbox.scope.as_str())
        .add("created", human::moment(sandbox.created_at, now));
    if sandbox.state == State::Destroyed {
        fields.maybe("destroyed", sandbox.destroyed_at.map(|end| human::moment(end, now)));
    } else {
        fields.add("expires", human::moment(sandbox.expires_at, now));
    }
    fields
        .add("ttl", human::dur(sandbox.ttl))
        .maybe("idle reap", sandbox.idle_reap.map(human::dur))
        .maybe("labels", Some(human::pairs(&sandbox.labels)))
        .add("consumer", consumer_text(sandbox))
        .add("quote", quote(&sandbox.quote, sandbox.cost.is_none().then_some(sandbox.state)));
    upstream(&mut fields, &sandbox.quote);
    if let Some(cost) = &sandbox.cost {
        fields.add("cost", charged(cost));
    }
    fields.maybe("tried", tried(sandbox)).maybe("hedged", hedged(sandbox));
    if let Some(failure) = &sandbox.failure {
        fields.toned("failure", format!("{} ({})", failure.message, failure.code), Tone::Bad);
        fields.maybe("hint", failure.hint.clone());
    }
    if let Some(drift) = &sandbox.drift {
        fields.add("not reused", format!("{} differs in {}", drift.previous, drift.changed.join(", ")));
    }
    if let Some(cleanup) = sandbox.cleanup.as_ref().filter(|cleanup| !cleanup.is_clean()) {
        let left: Vec<String> =
            cleanup.left.iter().map(|left| format!("{} ({})", left.what, left.reason)).collect();
        fields.toned("left behind", left.join("\n"), Tone::Bad);
    }
    fields.print(printer)?;
    if let Some(cost) = sandbox.cost.as_ref().filter(|cost| !cost.items.is_empty()) {
        printer.line("")?;
        items(&cost.items).print(printer)?;
    }
    controls(&sandbox.isolation, printer)
}

/// Every try that did not go as it should, one a line.
pub(super) fn tried(sandbox: &Sandbox) -> Option<String> {
    let told = sandbox.route.attempts.iter().map(|attempt| match attempt.outcome {
        AttemptOutcome::Failed => attempt.told(),
        AttemptOutcome::Adopted => format!("{}, late and taken over", attempt.told()),
    });
    let lines: Vec<String> = told.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Which of two stayed, and whether the other is gone.
fn hedged(sandbox: &Sandbox) -> Option<String> {
    let hedged = sandbox.route.hedged.as_ref()?;
    let second = Backend { extension: hedged.extension.clone(), host: hedged.host.clone() };
    let (kept, other) = if hedged.won { (&second, &hedged.beside) } else { (&hedged.beside, &second) };
    let rest = if sandbox.route.hedge.is_some() { ", which is still to be removed" } else { "" };
    Some(format!("{} was kept instead of {}{rest}", kept.name(), other.name()))
}

/// `0.05 USD (metered, held)`.
pub(super) fn quote(quote: &Quote, state: Option<State>) -> String {
    let costs = quote.amount > Money::ZERO;
    let held = if costs && state.is_some() { ", held" } else { "" };
    let hourly =
        if quote.per_hour > Money::ZERO { format!(", {} an hour", quote.per_hour) } else { String::new() };
    format!("{} ({}{held}{hourly})", quote.amount, quote.basis)
}

/// Who pays what, where somebody beside the platform does or something is added.
pub(super) fn upstream(fields: &mut Fields, quote: &Quote) {
    if quote.provider_key == ProviderKey::Own {
        let told = format!(
            "the provider bills {} to the workspace; {} fee is charged here",
            quote.upstream, quote.fee
        );
        fields.add("own key", told);
    } else if quote.fee > Money::ZERO {
        fields.add("of which", format!("{} for the provider, {} fee", quote.upstream, quote.fee));
    }
}

/// `0.01 USD charged of 0.05 USD held, 0.04 USD given back`.
pub(super) fn charged(cost: &Cost) -> String {
    let back = Money::from_nanos(-cost.difference.nanos());
    let mut text = format!("{} charged of {} held, {back} given back", cost.charged, cost.quoted);
    if cost.provider_key == ProviderKey::Own {
        text.push_str(&format!("; {} are billed by the provider to the workspace's own key", cost.upstream));
    }
    if cost.absorbed > Money::ZERO {
        text.push_str(&format!("; {} above the hold are charged to nobody", cost.absorbed));
    }
    text
}

/// What is due at the start has no time; everything else has, if only none at all.
pub(super) fn time(meter: &str, time: Dur) -> String {
    /// The meters that are paid once.
    const ONCE: [&str; 2] = ["create", MINIMUM];
    if ONCE.contains(&meter) { "once".into() } else { human::dur(time) }
}

/// The lines of a quote and what is added to them, so that they sum to it.
pub(super) fn quoted(quote: &Quote) -> Rows {
    let mut rows = items(&quote.items);
    let exact: i128 = quote.items.iter().map(|item| item.cost.nanos()).sum();
    let more = Money::from_nanos(quote.upstream.nanos() - exact);
    let mut add = |what: &str, cost: Money| {
        if cost > Money::ZERO {
            rows.row([what.into(), String::new(), String::new(), cost.to_string(), String::new()]);
        }
    };
    add("rounding up", more);
    if quote.provider_key == ProviderKey::Platform {
        add("fee", quote.fee);
    }
    rows
}

/// The lines of a bill.
pub(super) fn items(items: &[Item]) -> Rows {
    let mut rows = Rows::new(["METER", "STATE", "TIME", "COST", "WHAT"]);
    for item in items {
        let assumed = if item.assumed { " (assumed)" } else { "" };
        rows.row([
            item.meter.clone(),
            item.state.as_str().into(),
            time(&item.meter, item.time),
            item.cost.to_string(),
            format!("{}{assumed}", item.what),
        ]);
    }
    rows
}

/// As it is written in a profile.
pub(super) fn strategy(strategy: Strategy) -> &'static str {
    Strategy::ALL.iter().find(|(_, known)| *known == strategy).map_or("", |(name, _)| name)
}

/// The controls that are not fully enforced, or a word that all are.
pub(super) fn controls(report: &IsolationReport, printer: &Printer) -> Outcome<()> {
    if report.effective.is_none() {
        return Ok(());
    }
    let mut rows = Rows::new(["CONTROL NOT ENFORCED", "OUTCOME", "DETAIL"]);
    for control in &report.controls {
        if control.outcome != ControlOutcome::Enforced {
            rows.row([control.name.clone(), outcome_text(control.outcome).into(), control.detail.clone()]);
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    printer.line("")?;
    rows.print(printer)
}

pub(super) fn outcome_text(outcome: ControlOutcome) -> &'static str {
    match outcome {
        ControlOutcome::Enforced => "enforced",
        ControlOutcome::Degraded => "degraded",
        ControlOutcome::Missing => "missing",
    }
}

/// One row a sandbox.
pub(super) fn list<'a>(sandboxes: impl IntoIterator<Item = &'a Sandbox>, printer: &Printer) -> Outcome<()> {
    let now = Timestamp::now();
    let mut rows = Rows::new(["ID", "STATE", "PROFILE", "EXTENSION", "AGE", "EXPIRES", "LABELS"]);
    for sandbox in sandboxes {
        let living = sandbox.state != State::Destroyed;
        let state = if sandbox.isolation.degraded {
            format!("{} DEGRADED", sandbox.state)
        } else {
            state_text(sandbox)
        };
        rows.row([
            sandbox.sandbox_id.to_string(),
            state,
            sandbox.profile.clone(),
            sandbox.extension.clone(),
            human::age(sandbox.created_at, now),
            if living { human::relative(sandbox.expires_at, now) } else { String::new() },
            human::pairs(&sandbox.labels),
        ]);
    }
    rows.print(printer)
}

pub(super) fn execs(execs: &[ExecInfo], printer: &Printer) -> Outcome<()> {
    let now = Timestamp::now();
    let mut rows = Rows::new(["EXEC", "STATE", "STARTED", "COMMAND"]);
    for exec in execs {
        let state = match (&exec.outcome, exec.running) {
            (_, true) => "running".to_owned(),
            (Some(outcome), _) if outcome.timed_out => "timed out".to_owned(),
            (Some(outcome), _) => format!("exited {}", outcome.exit_code),
            (None, false) => "ended".to_owned(),
        };
        let command: String = exec.command.join(" ").chars().take(LONGEST_COMMAND).collect();
        rows.row([exec.exec_id.to_string(), state, human::relative(exec.started_at, now), command]);
    }
    rows.print(printer)
}

/// Said on every command that gives a degraded sandbox to somebody.
pub(super) fn warn_if_degraded(sandbox: &Sandbox, printer: &Printer) {
    if sandbox.isolation.degraded {
        let missing = human::inert(&sandbox.isolation.missing.join(", "));
        printer
            .warn(&format!("the isolation of {} is DEGRADED; not enforced: {missing}", sandbox.sandbox_id));
    }
}

fn state_text(sandbox: &Sandbox) -> String {
    match &sandbox.reason {
        Some(reason) => format!("{} ({reason})", sandbox.state),
        None => sandbox.state.to_string(),
    }
}

fn state_tone(state: State) -> Tone {
    match state {
        State::Ready | State::Active => Tone::Good,
        State::Failed => Tone::Bad,
        State::Expired | State::Destroying => Tone::Warning,
        State::Destroyed => Tone::Faint,
        State::Requested | State::Provisioning | State::Paused => Tone::Plain,
    }
}

pub(super) fn isolation_text(report: &IsolationReport) -> String {
    let declared = report.declared;
    let Some(effective) = report.effective else {
        return format!("declared {declared}, not established yet");
    };
    let enforced =
        report.controls.iter().filter(|control| control.outcome == ControlOutcome::Enforced).count();
    let text = format!(
        "declared {declared}, effective {effective}; {enforced} of {} controls enforced",
        report.controls.len()
    );
    if report.degraded { format!("DEGRADED: {text}") } else { text }
}

pub(super) fn isolation_tone(report: &IsolationReport) -> Tone {
    if report.degraded { Tone::Bad } else { Tone::Plain }
}

fn consumer_text(sandbox: &Sandbox) -> String {
    let consumer = &sandbox.consumer;
    let named = [
        ("harness", &consumer.harness),
        ("agent", &consumer.agent_id),
        ("session", &consumer.session_id),
        ("run", &consumer.run_id),
        ("job", &consumer.job_id),
    ];
    let mut text = consumer.actor.to_string();
    for (name, value) in named {
        if let Some(value) = value {
            text.push_str(&format!(", {name} {value}"));
        }
    }
    text
}

/// Each published port with the address that reaches it.
fn ports_text(reachability: &sandboxer_core::extension::Reachability) -> Option<String> {
    let one = |port: &sandboxer_core::extension::PublishedPort| {
        let service = port.service.as_deref().map(|name| format!("{name} ")).unwrap_or_default();
        format!("{service}{} at {}", port.port, port.address)
    };
    let all: Vec<String> = reachability.ports.iter().map(one).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_no_time_is_paid_once() {
        assert_eq!(time("create", Dur::ZERO), "once");
        assert_eq!(time("vcpu", Dur::ZERO), "0s");
        assert_eq!(time("vcpu", Dur::from_secs(90)), "1m30s");
    }
}
