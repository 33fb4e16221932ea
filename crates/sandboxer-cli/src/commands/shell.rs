//! `shell`: a login shell on a terminal.

use std::collections::BTreeMap;

use sandboxer_core::exec::Command;
use sandboxer_core::request::ExecRequest;
use sandboxer_core::{Error, ErrorKind, SandboxId};

use super::exec::pass_terminal_type;
use super::session::{self, Connection};
use crate::api::Api;
use crate::args::ShellArgs;
use crate::printer::Printer;
use crate::status::Outcome;
use crate::terminal;

/// bash if it is there. The prompt is set after the profile files, which would set one of their own.
const LOGIN: &str = "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi";

pub(super) async fn run(args: ShellArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    if printer.is_json() {
        return Err(Error::new(ErrorKind::InvalidInput, "a shell is for people and has no JSON form")
            .with_hint("`sandboxer exec --json ID -- CMD` gives one document")
            .into());
    }
    let id: SandboxId = args.id.parse()?;
    let request = ExecRequest {
        cwd: args.cwd,
        env: environment(id),
        user: args.user,
        tty: true,
        tty_size: terminal::size(),
        ..ExecRequest::new(Command::Shell(LOGIN.to_owned()))
    };
    let connection = Connection { stdin: true, tty: true };
    let (_, session) = api.exec(id, request, connection.stdin).await?;
    let ended = session::connect(session, connection, printer).await?;
    Ok(session::status(&ended, None, printer))
}

/// A prompt that says where one is, so that nobody takes the sandbox for the host.
fn environment(id: SandboxId) -> BTreeMap<String, String> {
    let name = id.to_string();
    let prompt = format!("[sbx …{}] \\w \\$ ", &name[name.len() - 6..]);
    let mut env = BTreeMap::from([
        ("PS1".to_owned(), format!("[sbx …{}] $ ", &name[name.len() - 6..])),
        ("PROMPT_COMMAND".to_owned(), format!("PS1='{prompt}'; unset PROMPT_COMMAND")),
    ]);
    pass_terminal_type(&mut env);
    env
}
