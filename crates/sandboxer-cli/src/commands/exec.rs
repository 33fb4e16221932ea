//! `exec`: a command in a sandbox, as if it ran here.

use std::time::Instant;

use sandboxer_core::SandboxId;
use sandboxer_core::exec::{Command, EXIT_TIMED_OUT};
use sandboxer_core::request::ExecRequest;
use serde_json::json;

use super::session::{self, Connection, Ended};
use crate::api::Api;
use crate::args::ExecArgs;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};
use crate::terminal;

/// How much of each stream a JSON document carries, as the server has it.
const KEPT: usize = 1 << 20;

pub(super) async fn run(args: ExecArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let id: SandboxId = args.id.parse()?;
    let timeout = args.timeout;
    let connection = Connection { stdin: args.interactive, tty: args.tty };
    let background = args.background;
    let request = request(args);
    if background {
        let info = api.exec_background(id, request).await?;
        if printer.is_json() {
            printer.document(&info)?;
        } else {
            printer.line(&info.exec_id.to_string())?;
        }
        return Ok(ExitStatus::SUCCESS);
    }
    if printer.is_json() {
        return collected(id, request, connection.stdin, api, printer).await;
    }
    let (_, session) = api.exec(id, request, connection.stdin).await?;
    let ended = session::connect(session, connection, printer).await?;
    Ok(session::status(&ended, timeout, printer))
}

fn request(args: ExecArgs) -> ExecRequest {
    let mut env: std::collections::BTreeMap<String, String> = args.env.into_iter().collect();
    if args.tty {
        pass_terminal_type(&mut env);
    }
    ExecRequest {
        cwd: args.cwd,
        env,
        timeout: args.timeout,
        user: args.user,
        tty: args.tty,
        tty_size: args.tty.then(terminal::size).flatten(),
        background: args.background,
        ..ExecRequest::new(Command::Args(args.command))
    }
}

/// Programs that draw need to know what they draw on.
pub(super) fn pass_terminal_type(env: &mut std::collections::BTreeMap<String, String>) {
    for name in ["TERM", "COLORTERM"] {
        if let Ok(value) = std::env::var(name) {
            env.entry(name.to_owned()).or_insert(value);
        }
    }
}

/// One document with what the command wrote, as `POST …/execs` answers it.
async fn collected(
    id: SandboxId,
    request: ExecRequest,
    stdin: bool,
    api: &dyn Api,
    printer: &Printer,
) -> Outcome {
    let (timeout, started) = (request.timeout, Instant::now());
    let (exec_id, session) = api.exec(id, request, stdin).await?;
    let (ended, out, err) = session::collect(session, stdin, KEPT).await?;
    let Ended::Exited(outcome) = &ended else { return Ok(ExitStatus::PIPE) };
    let truncated = out.is_cut() || err.is_cut();
    let mut document = json!({
        "exec_id": exec_id,
        "exit_code": if outcome.timed_out { EXIT_TIMED_OUT } else { outcome.exit_code },
        "stdout": out.text(),
        "stderr": err.text(),
        "truncated": truncated,
        "timed_out": outcome.timed_out,
        "duration_ms": u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(signal) = outcome.signal {
        document["signal"] = signal.into();
    }
    if outcome.out_of_memory {
        document["out_of_memory"] = true.into();
    }
    printer.document(&document)?;
    Ok(session::status(&ended, timeout, printer))
}
