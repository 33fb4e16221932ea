//! `webhooks`: endpoints that events are posted to. A secret is printed when it is made and never again.

use jiff::Timestamp;
use sandboxer_core::error::Failure;
use sandboxer_core::page::Page;
use sandboxer_engine::{NewWebhook, NewWebhookView, WebhookAnswer, WebhookView};
use sandboxer_store::EventPattern;
use serde_json::json;

use crate::api::Api;
use crate::args::{WebhooksAddArgs, WebhooksCommand};
use crate::human;
use crate::printer::{Printer, Tone};
use crate::status::{ExitStatus, Outcome};
use crate::table::{Fields, Rows};

pub(super) async fn run(command: WebhooksCommand, api: &dyn Api, printer: &Printer) -> Outcome {
    match command {
        WebhooksCommand::List => list(api.webhooks().await?, printer)?,
        WebhooksCommand::Get { id } => show(&api.webhook(id.parse()?).await?, printer)?,
        WebhooksCommand::Add(args) => made(&api.webhook_add(&request(args)).await?, printer)?,
        WebhooksCommand::Remove { ids } => return remove(ids, api, printer).await,
        WebhooksCommand::Rotate { id, overlap } => {
            made(&api.webhook_rotate(id.parse()?, overlap).await?, printer)?;
        }
        WebhooksCommand::Enable { id } => show(&api.webhook_enable(id.parse()?, true).await?, printer)?,
        WebhooksCommand::Disable { id } => show(&api.webhook_enable(id.parse()?, false).await?, printer)?,
        WebhooksCommand::Test { id } => return tested(&api.webhook_test(id.parse()?).await?, printer),
    }
    Ok(ExitStatus::SUCCESS)
}

fn request(args: WebhooksAddArgs) -> NewWebhook {
    let events = if args.event.is_empty() { vec![EventPattern::all()] } else { args.event };
    NewWebhook { url: args.url, events, description: args.description }
}

fn made(made: &NewWebhookView, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(made);
    }
    printer.line(&made.secret)?;
    printer.note(&format!(
        "this is the secret of {}; it is not shown again. Receivers verify signatures with it",
        made.webhook.webhook_id
    ));
    Ok(())
}

fn patterns(webhook: &WebhookView) -> String {
    webhook.events.iter().map(EventPattern::as_str).collect::<Vec<_>>().join(",")
}

fn list(items: Vec<WebhookView>, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(&Page { items, next_cursor: None });
    }
    if items.is_empty() {
        printer.note("no webhooks; `sandboxer webhooks add URL` makes one");
        return Ok(());
    }
    let mut rows = Rows::new(["WEBHOOK", "URL", "EVENTS", "STATE", "PENDING", "DEAD"]);
    for webhook in &items {
        rows.row([
            webhook.webhook_id.to_string(),
            webhook.url.clone(),
            patterns(webhook),
            state(webhook),
            webhook.pending.to_string(),
            webhook.dead.to_string(),
        ]);
    }
    rows.print(printer)
}

fn state(webhook: &WebhookView) -> String {
    match &webhook.disabled {
        None => "enabled".into(),
        Some(disabled) => format!("DISABLED: {}", disabled.reason),
    }
}

fn show(webhook: &WebhookView, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(webhook);
    }
    let now = Timestamp::now();
    let mut fields = Fields::default();
    fields
        .add("webhook", webhook.webhook_id.to_string())
        .add("url", &*webhook.url)
        .add("events", patterns(webhook))
        .maybe("description", webhook.description.clone())
        .toned("state", state(webhook), if webhook.enabled { Tone::Good } else { Tone::Bad })
        .add("created", human::moment(webhook.created_at, now))
        .add("pending", webhook.pending.to_string())
        .add("dead", webhook.dead.to_string())
        .maybe("last error", webhook.last_error.clone())
        .maybe("next try", webhook.next_try_at.map(|at| human::moment(at, now)));
    for (index, secret) in webhook.secrets.iter().enumerate() {
        let until = secret
            .expires_at
            .map_or_else(String::new, |end| format!(", signs until {}", human::moment(end, now)));
        fields.add(
            &format!("secret {}", index + 1),
            format!("made {}{until}", human::relative(secret.created_at, now)),
        );
    }
    fields.print(printer)
}

/// Several at once; one that fails does not stop the others.
async fn remove(ids: Vec<String>, api: &dyn Api, printer: &Printer) -> Outcome {
    let mut worst = ExitStatus::SUCCESS;
    let (mut removed, mut failures) = (Vec::new(), Vec::new());
    for id in ids {
        let outcome = match id.parse() {
            Ok(id) => api.webhook_remove(id).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(webhook) => {
                if !printer.is_json() {
                    printer.line(&webhook.webhook_id.to_string())?;
                }
                removed.push(webhook);
            }
            Err(error) => {
                failures.push(json!({ "webhook_id": id, "error": Failure::from(&error) }));
                worst = worst.max(printer.error(&error));
            }
        }
    }
    if printer.is_json() {
        printer.document(&json!({ "items": removed, "errors": failures }))?;
    }
    Ok(worst)
}

fn tested(answer: &WebhookAnswer, printer: &Printer) -> Outcome {
    let status = if answer.delivered { ExitStatus::SUCCESS } else { ExitStatus::FAILURE };
    if printer.is_json() {
        printer.document(answer)?;
        return Ok(status);
    }
    let mut fields = Fields::default();
    fields
        .toned(
            "delivered",
            if answer.delivered { "yes" } else { "NO" },
            if answer.delivered { Tone::Good } else { Tone::Bad },
        )
        .maybe("status", answer.status.map(|status| status.to_string()))
        .maybe("error", answer.error.clone())
        .add("took", format!("{} ms", answer.took_ms))
        .add("event", answer.event_id.to_string());
    fields.print(printer)?;
    Ok(status)
}
