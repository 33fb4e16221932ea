//! What is not declared answers so, typed, and leaves nothing behind.

use std::sync::Arc;

use sandboxer_core::exec::{LogStream, TtySize};
use sandboxer_core::extension::Extension;
use sandboxer_core::snapshot::Taken;
use sandboxer_core::{Dur, Error, ErrorKind, ExecId, Result, SnapshotId};

use super::{Case, declares};
use crate::conformance::rig::{Outcome, Rig, after, ensure};
use crate::conformance::sandbox::{Sandbox, reader, script};

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("unsupported", "what is not declared is refused as unsupported", &[], unsupported).safe()]
}

/// The kinds of what each undeclared operation answered.
struct Answers<'a> {
    rig: &'a Rig,
    wrong: Vec<String>,
}

impl Answers<'_> {
    /// Only looks at the answer when nothing of `fields` is declared.
    fn judge<T>(&mut self, field: &str, operation: &str, answer: Result<T>) {
        let right = answer.as_ref().err().map(Error::kind) == Some(ErrorKind::Unsupported);
        if !declares(&self.rig.capability, field) && !right {
            let said = answer.map(drop);
            self.wrong.push(format!("{operation} (no {field}) answers {said:?}"));
        }
    }

    fn undeclared(&self, field: &str) -> bool {
        !declares(&self.rig.capability, field)
    }
}

async fn unsupported(rig: Arc<Rig>) -> Outcome {
    let Sandbox { extension, handle } = rig.shared().await?;
    let host = rig.subject.host.as_str();
    let mut answers = Answers { rig: &rig, wrong: Vec::new() };
    execs(&mut answers, &extension, &handle).await;
    files(&mut answers, &extension, &handle).await;
    if answers.undeclared("port") {
        answers.judge("port", "port_connect", extension.port_connect(&handle, 80).await);
    }
    if answers.undeclared("backend_logs") {
        answers.judge("backend_logs", "backend_logs", extension.backend_logs(&handle, false).await);
    }
    if answers.undeclared("pause") {
        answers.judge("pause", "pause", extension.pause(&handle).await);
        answers.judge("pause", "resume", extension.resume(&handle).await);
    }
    if answers.undeclared("extend_ttl") {
        let later = after(std::time::Duration::from_secs(1_800));
        answers.judge("extend_ttl", "extend", extension.extend(&handle, later).await);
    }
    let id = SnapshotId::generate();
    if answers.undeclared("snapshot") {
        answers.judge("snapshot", "snapshot", extension.snapshot(&handle, id).await);
        answers.judge("snapshot", "snapshot_delete", extension.snapshot_delete(host, id, None).await);
    }
    if answers.undeclared("restore") {
        let mut wish = rig.wish();
        let tag = wish.request.tag.clone();
        wish.request.from = Some(Taken { snapshot_id: id, size_bytes: None, data: serde_json::Value::Null });
        answers.judge("restore", "provision from a snapshot", extension.provision(wish.request).await);
        let found = extension.list(host, &tag).await?;
        ensure(found.is_empty(), || format!("a refused provision left {found:?}"))?;
    }
    ensure(answers.wrong.is_empty(), || answers.wrong.join("; "))
}

type Handle = sandboxer_core::extension::Handle;

async fn execs(answers: &mut Answers<'_>, extension: &Arc<dyn Extension>, handle: &Handle) {
    if answers.undeclared("exec") {
        answers.judge("exec", "exec", extension.exec(handle, script("true", &[])).await);
    } else {
        let mut spec = script("true", &[]);
        spec.tty = Some(TtySize::default());
        if answers.undeclared("exec_tty") {
            answers.judge("exec_tty", "exec with a terminal", extension.exec(handle, spec).await);
        }
        let mut spec = script("true", &[]);
        spec.user = Some("nobody".into());
        if answers.undeclared("exec_user") {
            answers.judge("exec_user", "exec as a user", extension.exec(handle, spec).await);
        }
        let mut spec = script("true", &[]);
        spec.stdin = true;
        if answers.undeclared("exec_stdin") {
            answers.judge("exec_stdin", "exec with input", extension.exec(handle, spec).await);
        }
    }
    if answers.undeclared("exec_background") {
        let (field, id) = ("exec_background", ExecId::generate());
        answers.judge(field, "exec_background", extension.exec_background(handle, script("true", &[])).await);
        answers.judge(field, "exec_list", extension.exec_list(handle).await);
        let logs = extension.exec_logs(handle, id, LogStream::Stdout, 0, Dur::ZERO).await;
        answers.judge(field, "exec_logs", logs);
        answers.judge(field, "exec_stdin", extension.exec_stdin(handle, id, None).await);
        answers.judge(field, "exec_signal", extension.exec_signal(handle, id, 15).await);
    }
}

async fn files(answers: &mut Answers<'_>, extension: &Arc<dyn Extension>, handle: &Handle) {
    if answers.undeclared("files") {
        answers.judge("files", "file_stat", extension.file_stat(handle, "x").await);
        answers.judge("files", "file_list", extension.file_list(handle, "x").await);
        answers.judge("files", "file_read", extension.file_read(handle, "x").await);
        answers.judge("files", "file_write", extension.file_write(handle, "x", 0o644, reader(b"x")).await);
        answers.judge("files", "file_delete", extension.file_delete(handle, "x", false).await);
        answers.judge("files", "file_mkdir", extension.file_mkdir(handle, "x").await);
        answers.judge("files", "file_rename", extension.file_rename(handle, "x", "y").await);
    }
    if answers.undeclared("archive") {
        answers.judge("archive", "archive_get", extension.archive_get(handle, "x").await);
        answers.judge("archive", "archive_put", extension.archive_put(handle, "x", reader(b"")).await);
    }
}
