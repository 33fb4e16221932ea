//! A create that tells how far it is: records while it goes on, the sandbox or the error at the end.

use std::pin::Pin;

use axum::response::Response;
use bytes::Bytes;
use sandboxer_core::Result;
use sandboxer_core::extension::Progress;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_engine::{Caller, CreateOptions, Created};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::app::App;
use crate::error::{ApiError, ErrorBody};
use crate::request_id::RequestContext;
use crate::stream::Form;

/// Lines that a caller has not read yet; more are left out.
const QUEUE: usize = 256;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Record {
    Progress { line: String },
    Sandbox { sandbox: Box<Sandbox> },
    Error { error: ErrorBody },
}

impl Record {
    fn name(&self) -> &'static str {
        match self {
            Self::Progress { .. } => "progress",
            Self::Sandbox { .. } => "sandbox",
            Self::Error { .. } => "error",
        }
    }
}

type Work = Pin<Box<dyn Future<Output = Result<Created>> + Send>>;

struct Telling {
    app: App,
    context: RequestContext,
    /// Dropped with the stream, which cancels the create as the end of a plain request does.
    work: Option<Work>,
    lines: mpsc::Receiver<String>,
}

pub(super) fn answer(
    app: App,
    caller: Caller,
    request: CreateRequest,
    mut options: CreateOptions,
    form: Form,
    context: RequestContext,
) -> Response {
    let (sender, lines) = mpsc::channel(QUEUE);
    options.progress = Progress::new(move |line| {
        let _ = sender.try_send(line.to_owned());
    });
    let engine = app.engine().clone();
    let work: Work = Box::pin(async move { engine.create(&caller, request, options).await });
    let telling = Telling { app, context, work: Some(work), lines };
    form.response(futures::stream::unfold(telling, move |mut telling| async move {
        let record = telling.next().await?;
        Some((record_bytes(form, &record), telling))
    }))
}

fn record_bytes(form: Form, record: &Record) -> Bytes {
    form.record(record.name(), None, record)
}

impl Telling {
    /// The next word; the sandbox or the error is the last one.
    async fn next(&mut self) -> Option<Record> {
        let work = self.work.as_mut()?;
        let outcome = tokio::select! {
            biased;
            Some(line) = self.lines.recv() => return Some(Record::Progress { line }),
            outcome = work => outcome,
        };
        self.work = None;
        super::create::count(&self.app, &outcome);
        Some(match outcome {
            Ok(created) => Record::Sandbox { sandbox: Box::new(created.sandbox) },
            Err(error) => Record::Error { error: ApiError::from(error).envelope(self.context.id()).error },
        })
    }
}
