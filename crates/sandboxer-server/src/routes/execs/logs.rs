//! `GET …/execs/{exec}/stream`: the kept output of a background exec, from a place on, with or without what follows.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Extension;
use axum::extract::{RawQuery, State};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::HeaderMap;
use sandboxer_core::exec::{LogChunk, LogStream};
use sandboxer_core::{Dur, ExecId, Result, SandboxId};
use sandboxer_engine::Caller;

use super::record::{ExecRecord, ExitRecord, OutputRecord};
use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult};
use crate::openapi::Errors;
use crate::output::{Encoding, Pieces};
use crate::path::ExecPath;
use crate::query::Params;
use crate::request_id::RequestContext;
use crate::stream::Form;

/// How long one question for more output waits at the backend.
const WAIT: Dur = Dur::from_secs(10);
/// How often an exec that closed its output is asked whether it ended.
const POLL: Duration = Duration::from_millis(100);

/// Read the output of a background exec
///
/// Records as in the stream of `POST …/execs`, each with the offset to go on from. Without `follow` it ends with what
/// there is; `exit` comes last if the command has ended.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/execs/{exec}/stream", tag = "execs",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("exec" = String, Path, description = "Exec id"),
        ("stdout_offset" = Option<u64>, Query, description = "Start of stdout, in bytes"),
        ("stderr_offset" = Option<u64>, Query, description = "Start of stderr, in bytes"),
        ("follow" = Option<bool>, Query, description = "Wait for more until the command ends"),
        ("encoding" = Option<String>, Query, description = "`text` (lossy) or `base64`")
    ),
    responses(
        (status = 200, description = "Newline-delimited JSON, or events with `Accept: text/event-stream`", content(
            (ExecRecord = "application/x-ndjson"),
            (ExecRecord = "text/event-stream")
        )),
        Errors
    )
)]
pub(crate) async fn exec_stream(
    State(app): State<App>,
    Auth(caller): Auth,
    ExecPath(id, exec): ExecPath,
    Extension(context): Extension<RequestContext>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let known = ["stdout_offset", "stderr_offset", "follow", "encoding"];
    let params = Params::parse(query.as_deref(), &known)?;
    let encoding = params.typed("encoding")?.unwrap_or_default();
    // What is not there is said with its status, not in the middle of a stream.
    app.engine().exec_get(&caller, id, exec).await?;
    let form = Form::accepted(&headers).unwrap_or(Form::Ndjson);
    let follow = params.flag("follow")?;
    let logs = Logs {
        stdout: Side::new(LogStream::Stdout, params.number("stdout_offset")?, encoding),
        stderr: Side::new(LogStream::Stderr, params.number("stderr_offset")?, encoding),
        wait: if follow { WAIT } else { Dur::ZERO },
        follow,
        form,
        source: Source { app, caller, id, exec },
        context,
        ready: VecDeque::new(),
        ended: false,
    };
    Ok(form.response(futures::stream::unfold(logs, |mut logs| async move {
        let record = logs.next().await?;
        Some((record, logs))
    })))
}

#[derive(Clone)]
struct Source {
    app: App,
    caller: Caller,
    id: SandboxId,
    exec: ExecId,
}

struct Logs {
    source: Source,
    stdout: Side,
    stderr: Side,
    wait: Dur,
    follow: bool,
    form: Form,
    context: RequestContext,
    ready: VecDeque<Bytes>,
    ended: bool,
}

/// One of the two outputs: where it stands, and the question under way.
struct Side {
    stream: LogStream,
    offset: u64,
    pieces: Pieces,
    asking: Option<BoxFuture<'static, Result<LogChunk>>>,
    done: bool,
}

impl Side {
    fn new(stream: LogStream, offset: Option<u64>, encoding: Encoding) -> Self {
        Self { stream, offset: offset.unwrap_or(0), pieces: Pieces::new(encoding), asking: None, done: false }
    }

    /// The next chunk; never ready when nothing more will come. The question survives being dropped.
    async fn next(&mut self, source: &Source, wait: Dur) -> Result<LogChunk> {
        if self.done {
            return std::future::pending().await;
        }
        let (stream, offset) = (self.stream, self.offset);
        let asking = self.asking.get_or_insert_with(|| {
            let Source { app, caller, id, exec } = source.clone();
            Box::pin(async move { app.engine().exec_logs(&caller, id, exec, stream, offset, wait).await })
        });
        let chunk = asking.await;
        self.asking = None;
        chunk
    }

    fn record(&self, output: OutputRecord) -> ExecRecord {
        match self.stream {
            LogStream::Stdout => ExecRecord::Stdout(output),
            LogStream::Stderr => ExecRecord::Stderr(output),
        }
    }

    /// The records of a chunk, and whether the stream has come to its end.
    fn take(&mut self, chunk: LogChunk, follow: bool) -> Vec<ExecRecord> {
        let mut out = Vec::new();
        self.offset = chunk.next_offset;
        self.done = chunk.finished || (chunk.data.is_empty() && !follow);
        let data = self.pieces.next(&chunk.data);
        if !data.is_empty() || chunk.skipped > 0 {
            let skipped = (chunk.skipped > 0).then_some(chunk.skipped);
            out.push(self.record(OutputRecord { data, next_offset: Some(self.offset), skipped }));
        }
        if let Some(rest) = self.done.then(|| self.pieces.rest()).flatten() {
            out.push(self.record(OutputRecord { data: rest, next_offset: Some(self.offset), skipped: None }));
        }
        out
    }
}

impl Logs {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(record);
            }
            if self.ended {
                return None;
            }
            let draining = self.source.app.draining().clone();
            tokio::select! {
                () = draining.cancelled() => return None,
                stepped = self.step() => if let Err(error) = stepped {
                    let error = ApiError::from(error).envelope(self.context.id()).error;
                    self.push(&ExecRecord::Error { error });
                    self.ended = true;
                },
            }
        }
    }

    async fn step(&mut self) -> Result<()> {
        if self.stdout.done && self.stderr.done {
            return self.finish().await;
        }
        let (source, wait, follow) = (&self.source, self.wait, self.follow);
        let records = tokio::select! {
            chunk = self.stdout.next(source, wait) => self.stdout.take(chunk?, follow),
            chunk = self.stderr.next(source, wait) => self.stderr.take(chunk?, follow),
        };
        for record in &records {
            self.push(record);
        }
        Ok(())
    }

    /// Both outputs are at their end: how the command ended, if it has.
    async fn finish(&mut self) -> Result<()> {
        let Source { app, caller, id, exec } = &self.source;
        let info = app.engine().exec_get(caller, *id, *exec).await?;
        match info.outcome {
            Some(outcome) => {
                let took = info.ended_at.map(|end| end.as_millisecond() - info.started_at.as_millisecond());
                let duration_ms = took.and_then(|ms| u64::try_from(ms).ok());
                self.push(&ExecRecord::Exit(ExitRecord { exec_id: info.exec_id, outcome, duration_ms }));
                self.ended = true;
            }
            None if self.follow => tokio::time::sleep(POLL).await,
            None => self.ended = true,
        }
        Ok(())
    }

    fn push(&mut self, record: &ExecRecord) {
        self.ready.push_back(self.form.record(record.name(), None, record));
    }
}
