//! Commands that outlive whoever started them.

use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::exec::{ExecInfo, LogStream};
use sandboxer_core::{Dur, ErrorKind, ExecId};

use super::Case;
use crate::conformance::rig::{Outcome, Rig, ensure, fail};
use crate::conformance::sandbox::{Sandbox, script};

pub(super) fn cases() -> Vec<Case> {
    let needs = &["exec", "exec_background"];
    vec![
        Case::new("background.logs", "output is kept for whoever comes later", needs, logs),
        Case::new(
            "background.stdin",
            "input reaches a background command later",
            &["exec_background", "exec_stdin"],
            stdin,
        ),
        Case::new("background.signal", "a signal ends a background command", needs, signal),
        Case::new("background.unknown", "an exec that is not there is typed so", needs, unknown),
    ]
}

async fn info(sandbox: &Sandbox, id: ExecId) -> Outcome<ExecInfo> {
    let listed = sandbox.extension.exec_list(&sandbox.handle).await?;
    match listed.into_iter().find(|info| info.exec_id == id) {
        Some(info) => Ok(info),
        None => fail(format!("{id} is not in the list")),
    }
}

async fn ended(sandbox: &Sandbox, id: ExecId) -> Outcome<i32> {
    for _ in 0..150 {
        let info = info(sandbox, id).await?;
        if let Some(outcome) = info.outcome.filter(|_| !info.running) {
            return Ok(outcome.exit_code);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    fail(format!("{id} did not end"))
}

async fn read_all(sandbox: &Sandbox, id: ExecId, stream: LogStream) -> Outcome<Vec<u8>> {
    let mut data = Vec::new();
    let mut offset = 0;
    for _ in 0..200 {
        let wait = Dur::from_secs(2);
        let chunk = sandbox.extension.exec_logs(&sandbox.handle, id, stream, offset, wait).await?;
        data.extend(chunk.data);
        offset = chunk.next_offset;
        if chunk.finished {
            return Ok(data);
        }
    }
    fail("the log never says that it is finished")
}

async fn logs(rig: Arc<Rig>) -> Outcome {
    let shared = rig.shared().await?;
    let spec = script("echo out; echo err >&2; sleep 1; printf '\\000\\377 end'; exit 5", &[]);
    let id = spec.exec_id;
    {
        let starter = shared.through(rig.instance());
        let started = starter.extension.exec_background(&starter.handle, spec).await?;
        ensure(started.exec_id == id && started.background, || format!("it started as {started:?}"))?;
    }
    let later = shared.through(rig.instance());
    ensure(info(&later, id).await?.running, || "it ended with the instance that started it".into())?;
    ensure(read_all(&later, id, LogStream::Stdout).await? == b"out\n\x00\xff end", || {
        "stdout is not as written".into()
    })?;
    let errors = read_all(&later, id, LogStream::Stderr).await?;
    ensure(errors == b"err\n", || "stderr is not as written".into())?;
    ensure(ended(&later, id).await? == 5, || "its exit code got lost".into())?;
    let tail = later.extension.exec_logs(&later.handle, id, LogStream::Stdout, 4, Dur::ZERO).await?;
    ensure(tail.data == b"\x00\xff end", || format!("from 4 on there is {:?}", tail.data))
}

async fn stdin(rig: Arc<Rig>) -> Outcome {
    let shared = rig.shared().await?;
    let mut spec = script("while read line; do echo \"got $line\"; done; echo end", &[]);
    spec.stdin = true;
    let id = spec.exec_id;
    shared.extension.exec_background(&shared.handle, spec).await?;
    let later = shared.through(rig.instance());
    later.extension.exec_stdin(&later.handle, id, Some(b"one\n".to_vec())).await?;
    shared.extension.exec_stdin(&shared.handle, id, Some(b"two\n".to_vec())).await?;
    later.extension.exec_stdin(&later.handle, id, None).await?;
    let said = read_all(&shared, id, LogStream::Stdout).await?;
    ensure(said == b"got one\ngot two\nend\n", || format!("it said {:?}", String::from_utf8_lossy(&said)))
}

async fn signal(rig: Arc<Rig>) -> Outcome {
    let shared = rig.shared().await?;
    let mut spec = script("exec sleep 300", &[]);
    spec.timeout = None;
    let id = spec.exec_id;
    shared.extension.exec_background(&shared.handle, spec).await?;
    ensure(info(&shared, id).await?.running, || "it does not run".into())?;
    let later = shared.through(rig.instance());
    later.extension.exec_signal(&later.handle, id, 15).await?;
    let code = ended(&shared, id).await?;
    ensure(code == 143, || format!("after TERM its code is {code}"))
}

async fn unknown(rig: Arc<Rig>) -> Outcome {
    let shared = rig.shared().await?;
    let id = ExecId::generate();
    let logs = shared.extension.exec_logs(&shared.handle, id, LogStream::Stdout, 0, Dur::ZERO).await;
    let signal = shared.extension.exec_signal(&shared.handle, id, 15).await;
    for kind in [logs.err().map(|error| error.kind()), signal.err().map(|error| error.kind())] {
        ensure(kind == Some(ErrorKind::ExecNotFound), || format!("it is {kind:?}"))?;
    }
    Ok(())
}
