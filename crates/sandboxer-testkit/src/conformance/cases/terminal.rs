//! A command with a terminal.

use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::exec::TtySize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Case;
use crate::conformance::rig::{Outcome, Rig, ensure, fail};
use crate::conformance::sandbox::script;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(
        "exec.tty",
        "a terminal is one, of its size, and follows a resize",
        &["exec", "exec_tty"],
        terminal,
    )]
}

async fn terminal(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let line =
        "test -t 0 && test -t 1 && test -t 2 && stty size; read line; stty size; echo \"got $line\"; exit 6";
    let mut spec = script(line, &[]);
    spec.tty = Some(TtySize { rows: 31, cols: 101 });
    spec.stdin = true;
    let mut session = sandbox.start(spec).await?;
    ensure(session.stderr.is_none(), || "a terminal has one output".into())?;
    let Some(mut stdin) = session.stdin.take() else { return fail("a terminal without input") };
    let mut seen = read_until(&mut session.stdout, "31 101").await?;
    session.control.resize(TtySize { rows: 41, cols: 121 }).await?;
    stdin.write_all(b"words\n").await?;
    stdin.flush().await?;
    seen.push_str(&read_until(&mut session.stdout, "got words").await?);
    ensure(seen.contains("41 121"), || format!("the resize is not seen: {seen:?}"))?;
    let outcome = tokio::time::timeout(Duration::from_secs(20), session.control.wait()).await;
    match outcome {
        Ok(outcome) => ensure(outcome?.exit_code == 6, || "the exit code of a terminal got lost".into()),
        Err(_) => fail("a command with a terminal did not end"),
    }
}

/// Reads until the words were there. A terminal that closes after its last words may end with an error.
async fn read_until(stream: &mut sandboxer_core::exec::BoxRead, words: &str) -> Outcome<String> {
    let mut seen = Vec::new();
    let mut chunk = [0; 4_096];
    loop {
        let text = String::from_utf8_lossy(&seen).into_owned();
        if text.contains(words) {
            return Ok(text);
        }
        match tokio::time::timeout(Duration::from_secs(15), stream.read(&mut chunk)).await {
            Ok(Ok(count)) if count > 0 => seen.extend_from_slice(&chunk[..count]),
            _ => return fail(format!("`{words}` never came, only {text:?}")),
        }
    }
}
