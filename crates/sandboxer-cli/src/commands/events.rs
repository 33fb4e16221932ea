//! `events`: what happened, what happens, and what could not be told to others.

mod outgoing;

use sandboxer_core::event::Event;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{EventId, SandboxId};

use crate::api::Api;
use crate::args::EventsArgs;
use crate::human::cell;
use crate::printer::Printer;
use crate::signals::Signals;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: EventsArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    if let Some(command) = args.command {
        return outgoing::run(command, api, printer).await;
    }
    let subject = args.id.as_deref().map(str::parse::<SandboxId>).transpose()?;
    let after = args.after.as_deref().map(str::parse::<EventId>).transpose()?;
    if args.follow {
        return follow(api, subject, after, args.limit, printer).await;
    }
    let items = collect(api, subject, after, args.limit).await?;
    if printer.is_json() {
        printer.document(&Page { items, next_cursor: None })?;
        return Ok(ExitStatus::SUCCESS);
    }
    if items.is_empty() {
        printer.note("nothing has happened yet");
    }
    for event in &items {
        printer.line(&line(event))?;
    }
    Ok(ExitStatus::SUCCESS)
}

async fn collect(
    api: &dyn Api,
    subject: Option<SandboxId>,
    mut after: Option<EventId>,
    limit: Option<u32>,
) -> Outcome<Vec<Event>> {
    let mut items: Vec<Event> = Vec::new();
    loop {
        let wanted = limit.map_or(Limit::MAX, |limit| (limit - items.len() as u32).min(Limit::MAX));
        let page = api.events(subject, after, Limit::new(wanted)?).await?;
        let is_last = page.len() < wanted as usize;
        items.extend(page);
        after = items.last().map(|event| event.id);
        if is_last || limit.is_some_and(|limit| items.len() as u32 >= limit) {
            return Ok(items);
        }
    }
}

/// Until interrupted, which is the normal end, or until so many came.
async fn follow(
    api: &dyn Api,
    subject: Option<SandboxId>,
    after: Option<EventId>,
    limit: Option<u32>,
    printer: &Printer,
) -> Outcome {
    let mut signals = Signals::new()?;
    let mut feed = api.follow_events(subject, after).await?;
    let mut left = limit.unwrap_or(u32::MAX);
    while left > 0 {
        let event = tokio::select! {
            _ = signals.next() => break,
            event = feed.recv() => match event {
                Some(event) => event?,
                None => break,
            },
        };
        if printer.is_json() {
            printer.record(&event)?;
        } else {
            printer.line(&line(&event))?;
        }
        left -= 1;
    }
    Ok(ExitStatus::SUCCESS)
}

/// `time  sandbox  sequence  what  facts`.
fn line(event: &Event) -> String {
    let what = event.kind.strip_prefix("dev.sandboxer.").unwrap_or(&event.kind);
    let facts: Vec<String> = event
        .data
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match value {
            serde_json::Value::String(text) => Some(format!("{key}={text}")),
            serde_json::Value::Number(number) => Some(format!("{key}={number}")),
            _ => None,
        })
        .collect();
    let time = event.time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ");
    let line = format!("{time}  {}  {:>3}  {what:<22}  {}", event.subject, event.sequence, facts.join(" "));
    cell(line.trim_end())
}
