//! `snapshot`, `restore` and `snapshots`: checkpoints.

use jiff::Timestamp;
use sandboxer_core::error::Failure;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::request::CreateRequest;
use sandboxer_core::snapshot::Snapshot;
use sandboxer_core::{SandboxId, SnapshotId};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::create;
use crate::api::Api;
use crate::args::{RestoreArgs, SnapshotArgs, SnapshotsCommand};
use crate::human;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};
use crate::table::{Fields, Rows};

/// `snapshot`.
pub(super) async fn take(args: &SnapshotArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let snapshot = api.snapshot(args.id.parse()?, args.name.clone()).await?;
    answer(&snapshot, printer)
}

/// `restore`.
pub(super) async fn restore(args: RestoreArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let id: SnapshotId = args.id.parse()?;
    let request = CreateRequest {
        from: Some(id.to_string()),
        ttl: args.ttl,
        labels: args.label.into_iter().collect(),
        ..CreateRequest::default()
    };
    let (cancel, told) = (CancellationToken::new(), create::Told::new(printer));
    let work = api.create(request, args.idempotency_key, cancel.clone(), told.progress());
    let sandbox = create::until_done(work, cancel, told, api, printer).await?;
    create::answer(&sandbox, printer)?;
    Ok(ExitStatus::SUCCESS)
}

pub(super) async fn run(command: SnapshotsCommand, api: &dyn Api, printer: &Printer) -> Outcome {
    match command {
        SnapshotsCommand::List { sandbox, limit, cursor } => {
            let sandbox = sandbox.map(|id| id.parse()).transpose()?;
            list(&collect(api, sandbox, cursor, limit).await?, printer)
        }
        SnapshotsCommand::Get { id } => show(&api.snapshot_get(id.parse()?).await?, printer),
        SnapshotsCommand::Delete { ids } => delete(ids, api, printer).await,
    }
}

fn answer(snapshot: &Snapshot, printer: &Printer) -> Outcome {
    if printer.is_json() {
        printer.document(snapshot)?;
    } else {
        printer.line(&snapshot.snapshot_id.to_string())?;
    }
    Ok(ExitStatus::SUCCESS)
}

/// Pages one after another until the end or the limit; the last one's cursor stays in the answer.
async fn collect(
    api: &dyn Api,
    sandbox: Option<SandboxId>,
    mut cursor: Option<String>,
    limit: Option<u32>,
) -> Outcome<Page<Snapshot>> {
    let mut items = Vec::new();
    loop {
        let wanted = limit.map_or(Limit::MAX, |limit| (limit - items.len() as u32).min(Limit::MAX));
        let page = api.snapshots(sandbox, cursor.as_deref(), Limit::new(wanted)?).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        let full = limit.is_some_and(|limit| items.len() as u32 >= limit);
        if cursor.is_none() || full {
            return Ok(Page { items, next_cursor: cursor });
        }
    }
}

fn list(page: &Page<Snapshot>, printer: &Printer) -> Outcome {
    if printer.is_json() {
        printer.document(page)?;
        return Ok(ExitStatus::SUCCESS);
    }
    if page.items.is_empty() {
        printer.note("no snapshots; `sandboxer snapshot ID` takes one");
        return Ok(ExitStatus::SUCCESS);
    }
    let now = Timestamp::now();
    let mut rows = Rows::new(["SNAPSHOT", "NAME", "SANDBOX", "PROFILE", "EXTENSION", "SIZE", "AGE"]);
    for snapshot in &page.items {
        rows.row([
            snapshot.snapshot_id.to_string(),
            snapshot.name.clone().unwrap_or_default(),
            snapshot.sandbox_id.to_string(),
            snapshot.profile.clone(),
            snapshot.extension.clone(),
            snapshot.size_bytes.map(human::bytes).unwrap_or_default(),
            human::age(snapshot.created_at, now),
        ]);
    }
    rows.print(printer)?;
    if let Some(cursor) = &page.next_cursor {
        printer.note(&format!("there are more: --cursor {cursor}"));
    }
    Ok(ExitStatus::SUCCESS)
}

fn show(snapshot: &Snapshot, printer: &Printer) -> Outcome {
    if printer.is_json() {
        printer.document(snapshot)?;
        return Ok(ExitStatus::SUCCESS);
    }
    let mut fields = Fields::default();
    fields
        .add("snapshot", snapshot.snapshot_id.to_string())
        .maybe("name", snapshot.name.clone())
        .add("sandbox", snapshot.sandbox_id.to_string())
        .add("profile", &*snapshot.profile)
        .add("extension", format!("{} on {}", snapshot.extension, snapshot.host))
        .add("created", human::moment(snapshot.created_at, Timestamp::now()))
        .maybe("size", snapshot.size_bytes.map(human::bytes));
    fields.print(printer)?;
    Ok(ExitStatus::SUCCESS)
}

/// Several at once; one that fails does not stop the others.
async fn delete(ids: Vec<String>, api: &dyn Api, printer: &Printer) -> Outcome {
    let mut worst = ExitStatus::SUCCESS;
    let (mut deleted, mut failures) = (Vec::new(), Vec::new());
    for id in ids {
        let outcome = match id.parse() {
            Ok(id) => api.snapshot_delete(id).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(snapshot) => {
                if !printer.is_json() {
                    printer.line(&snapshot.snapshot_id.to_string())?;
                }
                deleted.push(snapshot);
            }
            Err(error) => {
                failures.push(json!({ "snapshot_id": id, "error": Failure::from(&error) }));
                worst = worst.max(printer.error(&error));
            }
        }
    }
    if printer.is_json() {
        printer.document(&json!({ "items": deleted, "errors": failures }))?;
    }
    Ok(worst)
}
