//! `logs`: what background execs wrote.

use sandboxer_core::exec::{ExecInfo, LogStream};
use sandboxer_core::page::Page;
use sandboxer_core::{Error, ErrorKind, ExecId, Result, SandboxId};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::show;
use crate::api::{Api, Feed, LogPiece};
use crate::args::LogsArgs;
use crate::printer::Printer;
use crate::signals::Signals;
use crate::status::{ExitStatus, Outcome, Stop, io_error};

pub(super) async fn run(args: &LogsArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let id: SandboxId = args.id.parse()?;
    if args.list {
        return list(api.exec_list(id).await?, printer);
    }
    let exec = match &args.exec {
        Some(exec) => exec.parse()?,
        None => newest(api.exec_list(id).await?, id, printer)?,
    };
    let feed = api.logs(id, exec, args.follow).await?;
    let wanted = |stream| match stream {
        LogStream::Stdout => !args.stderr,
        LogStream::Stderr => !args.stdout,
    };
    let mut signals = Signals::new()?;
    tokio::select! {
        copied = copy(feed, wanted, printer) => copied.map(|()| ExitStatus::SUCCESS),
        // The normal end of a follow. The exec itself goes on.
        _ = signals.next() => Ok(ExitStatus::SUCCESS),
    }
}

fn list(items: Vec<ExecInfo>, printer: &Printer) -> Outcome {
    if printer.is_json() {
        printer.document(&Page { items, next_cursor: None })?;
    } else if items.is_empty() {
        printer.note("nothing has run in it in the background");
    } else {
        show::execs(&items, printer)?;
    }
    Ok(ExitStatus::SUCCESS)
}

fn newest(execs: Vec<ExecInfo>, id: SandboxId, printer: &Printer) -> Result<ExecId> {
    let mut background: Vec<&ExecInfo> = execs.iter().filter(|exec| exec.background).collect();
    background.sort_by_key(|exec| exec.started_at);
    let newest = background.last().ok_or_else(|| {
        Error::new(ErrorKind::ExecNotFound, format!("nothing has run in the background of {id}"))
            .with_hint(format!("`sandboxer exec --background {id} -- CMD` keeps its output here"))
    })?;
    if background.len() > 1 && printer.talks() {
        printer.note(&format!(
            "{} of {} execs, see `sandboxer logs --list {id}`",
            newest.exec_id,
            background.len()
        ));
    }
    Ok(newest.exec_id)
}

async fn copy(
    mut feed: Feed<LogPiece>,
    wanted: impl Fn(LogStream) -> bool,
    printer: &Printer,
) -> Outcome<()> {
    let (mut stdout, mut stderr) = (printer.stdout_stream(), printer.stderr_stream());
    while let Some(piece) = feed.recv().await {
        match piece? {
            LogPiece::Output { stream, data, skipped } if wanted(stream) => {
                if printer.is_json() {
                    let text = String::from_utf8_lossy(&data);
                    let mut record = json!({ "type": stream, "data": text });
                    if skipped > 0 {
                        record["skipped"] = skipped.into();
                    }
                    printer.record(&record)?;
                    continue;
                }
                if skipped > 0 {
                    printer.warn(&format!("{skipped} bytes were not kept"));
                }
                let written = match stream {
                    LogStream::Stdout => write(&mut stdout, &data).await,
                    LogStream::Stderr => write(&mut stderr, &data).await,
                };
                written?;
            }
            LogPiece::Output { .. } => {}
            LogPiece::Exit(outcome) if printer.is_json() => {
                let mut record = json!({ "type": "exit" });
                if let (Some(record), Ok(serde_json::Value::Object(fields))) =
                    (record.as_object_mut(), serde_json::to_value(outcome))
                {
                    record.extend(fields);
                }
                printer.record(&record)?;
            }
            LogPiece::Exit(_) => {}
        }
    }
    Ok(())
}

async fn write(target: &mut (impl tokio::io::AsyncWrite + Unpin), data: &[u8]) -> Outcome<()> {
    let written = async {
        target.write_all(data).await?;
        target.flush().await
    };
    match written.await {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Stop::BrokenPipe),
        Err(error) => Err(io_error("the output cannot be written", error).into()),
    }
}
