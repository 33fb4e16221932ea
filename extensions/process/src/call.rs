//! One request: made, waited for, given up.

use std::sync::Arc;

use sandboxer_core::{Error, ErrorKind, Result};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};

use crate::connection::{Connection, Step};
use crate::streams::ChunkReader;
use crate::wire::{self, Stream, WINDOW};

/// A request that is under way. Dropped before its answer, it is cancelled.
pub(crate) struct Request {
    id: u64,
    connection: Arc<Connection>,
    steps: mpsc::UnboundedReceiver<Step>,
    credit: Arc<Semaphore>,
    over: bool,
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.over {
            self.connection.shared.cancel(self.id);
        }
    }
}

impl Request {
    /// Makes a request whose output goes to the readers that are returned, one for each stream.
    pub(crate) async fn open(
        connection: &Arc<Connection>,
        method: &str,
        params: impl Serialize,
        outputs: &[Stream],
    ) -> Result<(Self, Vec<ChunkReader>)> {
        let (steps, hear) = mpsc::unbounded_channel();
        let credit = Arc::new(Semaphore::new(WINDOW));
        let (senders, receivers): (Vec<_>, Vec<_>) = outputs
            .iter()
            .map(|stream| {
                let (sender, receiver) = mpsc::unbounded_channel();
                ((*stream, sender), (*stream, receiver))
            })
            .unzip();
        let shared = &connection.shared;
        let id = shared.enter(steps, senders, credit.clone())?;
        let request = Self { id, connection: connection.clone(), steps: hear, credit, over: false };
        let readers = receivers.into_iter();
        let readers =
            readers.map(|(stream, chunks)| ChunkReader::new(shared.clone(), id, stream, chunks)).collect();
        shared.send(wire::line(Some(id), method, params)).await?;
        Ok((request, readers))
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The number of the request and what is needed to feed it from elsewhere.
    pub(crate) fn feeder(&self) -> Feeder {
        Feeder { id: self.id, connection: self.connection.clone(), credit: self.credit.clone() }
    }

    pub(crate) async fn step(&mut self) -> Step {
        let step = self.steps.recv().await;
        let step = step.unwrap_or_else(|| Step::Answer(Err(self.connection.shared.broken("went away"))));
        self.over |= matches!(step, Step::Answer(_));
        step
    }

    /// The answer, whatever comes before it.
    pub(crate) async fn answer(&mut self, mut progress: impl FnMut(&str)) -> Result<Value> {
        loop {
            match self.step().await {
                Step::Answer(answer) => return answer,
                Step::Progress(line) => progress(&line),
                Step::Started => {}
            }
        }
    }

    /// Waits until the process says that the request is on its way.
    pub(crate) async fn started(&mut self) -> Result<()> {
        loop {
            match self.step().await {
                Step::Started => return Ok(()),
                Step::Progress(_) => {}
                Step::Answer(Err(error)) => return Err(error),
                Step::Answer(Ok(_)) => {
                    return Err(self.connection.shared.broken("answered before it said that it started"));
                }
            }
        }
    }
}

/// Sends input to a request.
pub(crate) struct Feeder {
    id: u64,
    connection: Arc<Connection>,
    credit: Arc<Semaphore>,
}

impl Feeder {
    /// Sends one piece as soon as the process takes it; `false` when the request is over.
    pub(crate) async fn feed(&self, data: &[u8]) -> bool {
        let Ok(count) = u32::try_from(data.len()) else { return false };
        match self.credit.acquire_many(count).await {
            Ok(permit) => permit.forget(),
            Err(_) => return false,
        }
        let params = serde_json::json!({ "request": self.id, "data": wire::encode(data) });
        self.connection.shared.send(wire::line(None, "input", params)).await.is_ok()
    }

    pub(crate) async fn end(&self) {
        let params = serde_json::json!({ "request": self.id, "eof": true });
        let _ = self.connection.shared.send(wire::line(None, "input", params)).await;
    }
}

/// An answer as what it must be; anything else is the extension's failure.
pub(crate) fn typed<T: serde::de::DeserializeOwned>(
    extension: &str,
    method: &str,
    value: Value,
) -> Result<T> {
    serde_json::from_value(value).map_err(|why| lie(extension, method, &why.to_string()))
}

pub(crate) fn lie(extension: &str, method: &str, why: &str) -> Error {
    let why: String = why.chars().take(500).collect();
    Error::new(
        ErrorKind::BackendFailed,
        format!("{extension} answered `{method}` against the contract: {why}"),
    )
    .with_context("extension", extension)
    .with_hint("docs/extension-sdk.md has the form of every answer")
}
