//! `POST …/execs`: run a command and wait, stream, or leave it in the background.

use std::time::Instant;

use axum::Extension;
use axum::extract::{RawQuery, State};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sandboxer_core::exec::{ExecInfo, ExecOutcome};
use sandboxer_core::request::ExecRequest;
use sandboxer_core::{Error, ErrorKind, ExecId, SandboxId};
use sandboxer_engine::Caller;
use serde::Serialize;
use serde_json::json as value;

use super::record::ExecRecord;
use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult, to_json};
use crate::idempotency::{self, Answer, IdempotencyKey, Turn};
use crate::json::JsonBody;
use crate::openapi::Errors;
use crate::output::{Encoding, Kept};
use crate::path::SandboxPath;
use crate::pump::{Piece, Pump};
use crate::query::Params;
use crate::request_id::RequestContext;
use crate::stream::Form;

/// How a command that was waited for ended, and what it said.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(example = json!({
    "exec_id": "exe_01jx0000000000000000000000",
    "exit_code": 0, "timed_out": false, "out_of_memory": false,
    "stdout": "hello\n", "stderr": "", "truncated": false, "duration_ms": 3
}))]
pub(crate) struct ExecAnswer {
    exec_id: ExecId,
    #[serde(flatten)]
    outcome: ExecOutcome,
    stdout: String,
    stderr: String,
    /// The middle of a stream was cut; the text says how much.
    truncated: bool,
    duration_ms: u64,
}

/// Run a command
///
/// It waits and answers with everything. With `Accept: application/x-ndjson` or `text/event-stream` output comes as it
/// is made, and `X-Exec-Id` names the exec. With `background` it answers 202 at once; without `stdin` such a command's
/// input stays open for `POST …/stdin`. A caller that goes away ends a command that is not in the background.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/execs", tag = "execs",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("encoding" = Option<String>, Query, description = "`text` (lossy) or `base64`", example = "text"),
        ("Idempotency-Key" = Option<String>, Header, description = "Run once for the same key and body")
    ),
    request_body(content = ExecRequest, example = json!({ "command": ["sh", "-c", "echo hello"], "timeout": "30s" })),
    responses(
        (status = 200, description = "It ended; a time-out is `timed_out` with exit code 124", content(
            (ExecAnswer = "application/json"),
            (ExecRecord = "application/x-ndjson"),
            (ExecRecord = "text/event-stream")
        )),
        (status = 202, description = "It runs in the background", body = ExecInfo, headers(("Location" = String))),
        Errors
    )
)]
#[allow(clippy::too_many_arguments, reason = "each is one part of the request")]
pub(crate) async fn run_exec(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    key: IdempotencyKey,
    Extension(context): Extension<RequestContext>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<ExecRequest>,
) -> ApiResult {
    let encoding: Encoding =
        Params::parse(query.as_deref(), &["encoding"])?.typed("encoding")?.unwrap_or_default();
    let job = Job { app, caller, id, request, encoding };
    if job.request.background {
        return job.in_background(key).await;
    }
    match Form::accepted(&headers) {
        Some(form) => job.streamed(key, form, context).await,
        None => {
            let asked = || value!([id, job.request, encoding == Encoding::Base64]);
            idempotency::once(&job.app, &job.caller, key, "exec", asked, job.waited()).await
        }
    }
}

struct Job {
    app: App,
    caller: Caller,
    id: SandboxId,
    request: ExecRequest,
    encoding: Encoding,
}

impl Job {
    /// Starts it with the input that came with the request, or none.
    async fn start(&self, exec_id: ExecId) -> Result<Pump, ApiError> {
        let spec = self.request.to_spec(exec_id, self.request.stdin.is_some())?;
        let session = self.app.engine().exec(&self.caller, self.id, spec).await?;
        self.app.metrics().execs.inc();
        Ok(Pump::new(session, self.request.stdin.clone()))
    }

    async fn waited(&self) -> Result<Answer, ApiError> {
        let (exec_id, started) = (ExecId::generate(), Instant::now());
        let mut pump = self.start(exec_id).await?;
        let limit = self.app.limits().kept_output;
        let (mut stdout, mut stderr) = (Kept::new(limit), Kept::new(limit));
        let outcome = loop {
            match pump.next().await.map_err(|error| ApiError::from(error).after_effect())? {
                Piece::Stdout(data) => stdout.push(&data),
                Piece::Stderr(data) => stderr.push(&data),
                Piece::Exit(outcome) => break outcome,
            }
        };
        let answer = ExecAnswer {
            exec_id,
            outcome,
            truncated: stdout.is_cut() || stderr.is_cut(),
            stdout: stdout.finish(self.encoding),
            stderr: stderr.finish(self.encoding),
            duration_ms: millis_since(started),
        };
        Ok((StatusCode::OK, to_json(&answer)?))
    }

    async fn streamed(self, key: IdempotencyKey, form: Form, context: RequestContext) -> ApiResult {
        let asked = || value!([self.id, self.request, "stream"]);
        let ticket = match idempotency::begin(&self.app, &self.caller, key, "exec", asked).await? {
            Turn::Again(response) => return Ok(response),
            Turn::First(ticket) => Some(ticket),
            Turn::Free => None,
        };
        let (exec_id, started) = (ExecId::generate(), Instant::now());
        let pump = self.start(exec_id).await;
        let has_started = pump.is_ok();
        match ticket {
            Some(ticket) if has_started => ticket.keep(&not_again(exec_id)?).await?,
            Some(ticket) => ticket.forget().await?,
            None => {}
        }
        let records = super::stream::records(pump?, self.encoding, form, exec_id, started, context);
        let mut response = form.response(records);
        let name = HeaderValue::try_from(exec_id.to_string()).map_err(not_a_header)?;
        response.headers_mut().insert("x-exec-id", name);
        Ok(response)
    }

    async fn in_background(self, key: IdempotencyKey) -> ApiResult {
        let (id, exec_id) = (self.id, ExecId::generate());
        let asked = || value!([id, self.request]);
        let work = async {
            // Input stays open for `POST …/stdin`; what came with the request is fed and closed.
            let spec = self.request.to_spec(exec_id, true)?;
            let info = self.app.engine().exec_background(&self.caller, id, spec).await?;
            self.app.metrics().execs.inc();
            if let Some(text) = &self.request.stdin {
                self.feed(exec_id, text).await.map_err(|error| ApiError::from(error).after_effect())?;
            }
            Ok((StatusCode::ACCEPTED, to_json(&info)?))
        };
        let mut response = idempotency::once(&self.app, &self.caller, key, "exec", asked, work).await?;
        if !response.headers().contains_key(idempotency::REPLAYED) {
            let location = format!("/v1/sandboxes/{id}/execs/{exec_id}");
            let location = HeaderValue::try_from(location).map_err(not_a_header)?;
            response.headers_mut().insert(header::LOCATION, location);
        }
        Ok(response)
    }

    async fn feed(&self, exec: ExecId, text: &str) -> sandboxer_core::Result<()> {
        let engine = self.app.engine();
        if !text.is_empty() {
            engine.exec_stdin(&self.caller, self.id, exec, Some(text.as_bytes().to_vec())).await?;
        }
        engine.exec_stdin(&self.caller, self.id, exec, None).await
    }
}

pub(super) fn millis_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A stream is not kept, so a repeat is told that the command ran.
fn not_again(exec_id: ExecId) -> Result<Answer, ApiError> {
    let error = ApiError::new(
        ErrorKind::Conflict,
        "this idempotency key already ran a command, and its stream is not kept",
    )
    .hint("use a new key to run it again, or ask without streaming")
    .context("exec_id", exec_id.to_string());
    Ok((error.status(), to_json(&error.envelope(""))?))
}

fn not_a_header(source: http::header::InvalidHeaderValue) -> Error {
    Error::new(ErrorKind::Internal, "an id is not a header").with_source(source)
}
