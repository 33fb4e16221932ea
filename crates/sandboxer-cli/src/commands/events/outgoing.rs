//! `events dead`, `replay`, `sinks` and `forget`: who is told, what was given up, and sending again.

use sandboxer_core::page::{Limit, Page};
use sandboxer_engine::ReplayRequest;
use sandboxer_store::{DeadLetter, SinkStats};
use serde_json::json;

use crate::api::Api;
use crate::args::{EventsCommand, ReplayArgs};
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};
use crate::table::Rows;

pub(super) async fn run(command: EventsCommand, api: &dyn Api, printer: &Printer) -> Outcome {
    match command {
        EventsCommand::Dead { sink, limit } => {
            let items = collect(api, sink.as_deref(), limit).await?;
            dead(items, printer)?;
        }
        EventsCommand::Sinks => sinks(api.sinks().await?, printer)?,
        EventsCommand::Forget { sink } => {
            let dropped = api.sink_forget(&sink).await?;
            if printer.is_json() {
                printer.document(&json!({ "dropped": dropped }))?;
            } else {
                printer.line(&dropped.to_string())?;
                printer.note("deliveries were dropped, and nothing more is queued");
            }
        }
        EventsCommand::Replay(args) => {
            let replayed = replay(args, api).await?;
            if printer.is_json() {
                printer.document(&json!({ "replayed": replayed }))?;
            } else {
                printer.line(&replayed.to_string())?;
                printer.note("deliveries are queued again");
            }
        }
    }
    Ok(ExitStatus::SUCCESS)
}

async fn collect(api: &dyn Api, sink: Option<&str>, limit: Option<u32>) -> Outcome<Vec<DeadLetter>> {
    let (mut items, mut cursor): (Vec<DeadLetter>, Option<String>) = (Vec::new(), None);
    loop {
        let left = limit.map_or(Limit::MAX, |limit| limit - items.len() as u32);
        let page = api.dead_letters(sink, cursor.as_deref(), Limit::new(left.min(Limit::MAX))?).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() || limit.is_some_and(|limit| items.len() as u32 >= limit) {
            return Ok(items);
        }
    }
}

async fn replay(args: ReplayArgs, api: &dyn Api) -> Outcome<u64> {
    let ReplayArgs { sink, since, event, delivery, all: _ } = args;
    if since.is_some() {
        return Ok(api.replay(&ReplayRequest { sink, since, ..ReplayRequest::default() }).await?);
    }
    if sink.is_some() && event.is_empty() {
        return Ok(api.replay(&ReplayRequest { sink, ..ReplayRequest::default() }).await?);
    }
    let mut requests = Vec::new();
    for id in &event {
        let event_id = Some(id.parse()?);
        requests.push(ReplayRequest { event_id, sink: sink.clone(), ..ReplayRequest::default() });
    }
    let numbers = if event.is_empty() && delivery.is_empty() {
        // Oldest first, as they were meant to arrive.
        let letters = collect(api, None, None).await?;
        letters.into_iter().rev().map(|letter| letter.delivery_id).collect()
    } else {
        delivery
    };
    for number in numbers {
        requests.push(ReplayRequest { delivery_id: Some(number), ..ReplayRequest::default() });
    }
    // One that cannot be sent again holds up no other.
    let (mut replayed, mut refused) = (0, Vec::new());
    for request in &requests {
        match api.replay(request).await {
            Ok(queued) => replayed += queued,
            Err(error) => refused.push(error),
        }
    }
    let others = refused.len().saturating_sub(1);
    match refused.into_iter().next() {
        None => Ok(replayed),
        Some(error) if requests.len() == 1 => Err(error.into()),
        Some(error) => {
            let more = if others == 0 { String::new() } else { format!(", and {others} more") };
            let message = format!("{replayed} were queued again; not queued: {error}{more}");
            let hint = error.hint().unwrap_or("`sandboxer events dead` shows what is left").to_owned();
            Err(sandboxer_core::Error::new(error.kind(), message).with_hint(hint).into())
        }
    }
}

fn sinks(items: Vec<SinkStats>, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(&Page { items, next_cursor: None });
    }
    if items.is_empty() {
        printer.note("events go to nobody yet: `sandboxer webhooks add`, or a hub in config.toml");
        return Ok(());
    }
    let mut rows = Rows::new(["SINK", "WAITING", "GIVEN UP"]);
    for sink in items {
        rows.row([sink.sink, sink.pending.to_string(), sink.dead.to_string()]);
    }
    rows.print(printer)
}

fn dead(items: Vec<DeadLetter>, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(&Page { items, next_cursor: None });
    }
    if items.is_empty() {
        printer.note("nothing was given up");
        return Ok(());
    }
    let mut rows = Rows::new(["DELIVERY", "SINK", "EVENT", "TYPE", "SANDBOX", "TRIES", "DIED", "REASON"]);
    for letter in items {
        let kind = letter.kind.strip_prefix("dev.sandboxer.").unwrap_or(&letter.kind).to_owned();
        rows.row([
            letter.delivery_id.to_string(),
            letter.sink,
            letter.event_id.to_string(),
            kind,
            letter.subject.to_string(),
            letter.attempts.to_string(),
            letter.died_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            letter.reason,
        ]);
    }
    rows.print(printer)
}
