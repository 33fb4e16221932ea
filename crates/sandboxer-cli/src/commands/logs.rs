//! `logs`: what background execs wrote, and what the backend itself logged.

use sandboxer_core::exec::{BoxRead, ExecInfo, LogStream};
use sandboxer_core::page::Page;
use sandboxer_core::{Error, ErrorKind, ExecId, Result, SandboxId};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

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
        None if args.backend => return backend(args, id, api, printer).await,
        None => match newest_or_none(id, api, printer).await? {
            Some(exec) => exec,
            // Where nothing has run in the background, the backend may still have something to say.
            None => match backend(args, id, api, printer).await {
                Err(Stop::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                    return Err(nothing_ran(id).into());
                }
                other => return other,
            },
        },
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

async fn newest_or_none(id: SandboxId, api: &dyn Api, printer: &Printer) -> Result<Option<ExecId>> {
    let execs = match api.exec_list(id).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(None),
        other => other?,
    };
    let mut background: Vec<&ExecInfo> = execs.iter().filter(|exec| exec.background).collect();
    background.sort_by_key(|exec| exec.started_at);
    let Some(newest) = background.last() else { return Ok(None) };
    if background.len() > 1 && printer.talks() {
        printer.note(&format!(
            "{} of {} execs, see `sandboxer logs --list {id}`",
            newest.exec_id,
            background.len()
        ));
    }
    Ok(Some(newest.exec_id))
}

fn nothing_ran(id: SandboxId) -> Error {
    Error::new(ErrorKind::ExecNotFound, format!("nothing has run in the background of {id}"))
        .with_hint(format!("`sandboxer exec --background {id} -- CMD` keeps its output here"))
}

/// What the backend itself logged, as it has it; lines as records with `--json`.
async fn backend(args: &LogsArgs, id: SandboxId, api: &dyn Api, printer: &Printer) -> Outcome {
    let logs = api.backend_logs(id, args.follow).await?;
    let mut signals = Signals::new()?;
    tokio::select! {
        copied = copy_backend(logs, printer) => copied.map(|()| ExitStatus::SUCCESS),
        _ = signals.next() => Ok(ExitStatus::SUCCESS),
    }
}

async fn copy_backend(mut logs: BoxRead, printer: &Printer) -> Outcome<()> {
    let failed = |source| Stop::from(io_error("the logs broke off", source));
    if printer.is_json() {
        let mut lines = BufReader::new(logs).split(b'\n');
        while let Some(line) = lines.next_segment().await.map_err(failed)? {
            printer.record(&json!({ "type": "backend", "data": String::from_utf8_lossy(&line) }))?;
        }
        return Ok(());
    }
    let (mut stdout, mut chunk) = (printer.stdout_stream(), vec![0_u8; 32 << 10]);
    loop {
        match logs.read(&mut chunk).await.map_err(failed)? {
            0 => return Ok(()),
            count => write(&mut stdout, &chunk[..count]).await?,
        }
    }
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
