//! `sync`: a mirror and its folder brought together, or a workspace brought out.

use std::path::PathBuf;

use sandboxer_core::{Error, ErrorKind, Result, SandboxId};
use sandboxer_engine::workspace::{Direction, Prefer, SyncOptions, SyncReport};
use sandboxer_workspace::{Limits, Unpacked};
use tokio_util::io::SyncIoBridge;

use crate::api::Api;
use crate::args::{PreferArg, SyncArgs};
use crate::human;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome, io_error};

pub(super) async fn run(args: SyncArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let id: SandboxId = args.id.parse()?;
    if let Some(folder) = args.folder {
        let done = bring_out(id, folder, api).await?;
        return print_brought_out(&done, printer);
    }
    let direction = match (args.up, args.down) {
        (true, _) => Direction::Up,
        (_, true) => Direction::Down,
        _ => Direction::Both,
    };
    let prefer = args.prefer.map(|side| match side {
        PreferArg::Local => Prefer::Local,
        PreferArg::Sandbox => Prefer::Sandbox,
    });
    let report = api.sync(id, SyncOptions { direction, dry_run: args.dry_run, prefer }).await?;
    print_report(&report, printer)
}

/// The exit code says whether both sides agree now.
fn print_report(report: &SyncReport, printer: &Printer) -> Outcome {
    let clean = report.conflicts.is_empty();
    let status = if clean { ExitStatus::SUCCESS } else { ExitStatus::of(ErrorKind::Conflict) };
    if printer.is_json() {
        printer.document(report)?;
        return Ok(status);
    }
    let parts = [
        ("up", &report.uploaded),
        ("down", &report.downloaded),
        ("delete here", &report.deleted_local),
        ("delete in the sandbox", &report.deleted_in_sandbox),
    ];
    for (what, paths) in parts {
        for path in &paths.named {
            printer.line(&human::inert(&format!("{what}: {path}")))?;
        }
        let more = paths.count.saturating_sub(paths.named.len() as u64);
        if more > 0 {
            printer.line(&format!("{what}: {more} more"))?;
        }
    }
    for left in &report.left_out {
        printer.warn(&human::inert(&format!("{} was left alone: {}", left.path, left.reason)));
    }
    for conflict in &report.conflicts {
        let kept = conflict.kept.as_ref().map(|path| format!("; the sandbox's version is kept as {path}"));
        printer.warn(&human::inert(&format!(
            "conflict: {} is {} here and {} in the sandbox{}",
            conflict.path,
            conflict.local,
            conflict.sandbox,
            kept.unwrap_or_default()
        )));
    }
    if !clean && printer.talks() {
        printer.note("nothing of these was touched; `--prefer local` or `--prefer sandbox` decides");
    }
    Ok(status)
}

/// Unpacks the workspace into a folder here. What comes out of a sandbox is not trusted.
async fn bring_out(id: SandboxId, folder: PathBuf, api: &dyn Api) -> Result<Unpacked> {
    let tar = api.archive_get(id, ".").await?;
    std::fs::create_dir_all(&folder)
        .map_err(|source| io_error(format!("{} cannot be made", folder.display()), source))?;
    let tar = SyncIoBridge::new(tar);
    let work =
        tokio::task::spawn_blocking(move || sandboxer_workspace::unpack(tar, &folder, &Limits::default()));
    work.await.map_err(|source| Error::new(ErrorKind::Internal, "unpacking broke off").with_source(source))?
}

fn print_brought_out(done: &Unpacked, printer: &Printer) -> Outcome {
    let left: Vec<_> = done
        .omitted
        .named
        .iter()
        .map(|left| serde_json::json!({ "path": left.path, "reason": left.why.text() }))
        .collect();
    if printer.is_json() {
        printer.document(&serde_json::json!({
            "entries": done.entries, "bytes": done.bytes, "left_out": left, "left_out_count": done.omitted.count,
        }))?;
        return Ok(ExitStatus::SUCCESS);
    }
    for left in &done.omitted.named {
        printer.warn(&human::inert(&format!("{} was left out: {}", left.path, left.why.text())));
    }
    if printer.talks() {
        printer.note(&format!("{} files and folders, {} bytes", done.entries, done.bytes));
    }
    Ok(ExitStatus::SUCCESS)
}
