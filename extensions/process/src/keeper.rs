//! Keeps one process running while it is needed: starts it lazily, shakes hands, starts it again after it broke.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sandboxer_core::extension::{Description, Progress};
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::PROTOCOL;
use crate::call::{Request, lie, typed};
use crate::connection::Connection;
use crate::manifest::Manifest;

/// A process that lives as long as this has not failed at its start.
const SETTLED: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(crate) struct Keeper {
    pub(crate) manifest: Manifest,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    failures: u32,
    last_start: Option<Instant>,
}

/// What a process says about itself.
#[derive(Deserialize)]
struct Hello {
    protocol: u32,
    #[serde(flatten)]
    description: Description,
}

impl Keeper {
    pub(crate) fn new(manifest: Manifest) -> Self {
        Self { manifest, state: Mutex::default() }
    }

    pub(crate) fn id(&self) -> &str {
        &self.manifest.id
    }

    /// The running process; a new one if there is none.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            if !connection.is_dead() {
                return Ok(connection.clone());
            }
            let settled = connection.started.elapsed() > SETTLED;
            state.failures = if settled { 0 } else { state.failures.saturating_add(1) };
            state.connection = None;
        }
        if let Some(last) = state.last_start.filter(|_| state.failures > 0) {
            let pause = FIRST_PAUSE * 2u32.saturating_pow((state.failures - 1).min(10));
            tokio::time::sleep_until((last + pause.min(LONGEST_PAUSE)).into()).await;
        }
        state.last_start = Some(Instant::now());
        let connection = Arc::new(Connection::start(&self.manifest)?);
        if let Err(error) = self.shake_hands(&connection).await {
            connection.give_up("did not shake hands");
            state.failures = state.failures.saturating_add(1);
            return Err(error);
        }
        state.connection = Some(connection.clone());
        Ok(connection)
    }

    /// The process must be what its manifest says.
    async fn shake_hands(&self, connection: &Arc<Connection>) -> Result<()> {
        let ask = async {
            let (mut request, _) =
                Request::open(connection, "describe", json!({ "protocol": PROTOCOL }), &[]).await?;
            request.answer(|_| {}).await
        };
        let limit = self.manifest.timeouts.start.as_std();
        let Ok(answer) = tokio::time::timeout(limit, ask).await else {
            return Err(self.too_late("describe", limit));
        };
        let hello: Hello = typed(self.id(), "describe", answer?)?;
        if hello.protocol != PROTOCOL {
            let why = format!("it speaks version {} of the protocol, not {PROTOCOL}", hello.protocol);
            return Err(lie(self.id(), "describe", &why));
        }
        let (says, declares) = (hello.description, self.manifest.description());
        let mut differing: Vec<String> = Vec::new();
        if says.id != declares.id {
            differing.push("id".into());
        }
        if let (Ok(Value::Object(says)), Ok(Value::Object(declares))) =
            (serde_json::to_value(&says.capability), serde_json::to_value(&declares.capability))
        {
            let keys = declares.keys().filter(|key| says.get(*key) != declares.get(*key));
            differing.extend(keys.map(|key| format!("capability.{key}")));
        }
        if differing.is_empty() {
            return Ok(());
        }
        let file = self.manifest.file.display();
        Err(lie(self.id(), "describe", &format!("it differs from {file} in {}", differing.join(", "))))
    }

    /// A request and its answer within a limit.
    pub(crate) async fn call(&self, method: &str, params: impl Serialize, limit: Dur) -> Result<Value> {
        self.call_with(method, params, limit, &Progress::default()).await
    }

    pub(crate) async fn call_with(
        &self,
        method: &str,
        params: impl Serialize,
        limit: Dur,
        progress: &Progress,
    ) -> Result<Value> {
        let connection = self.connection().await?;
        let ask = async {
            let (mut request, _) = Request::open(&connection, method, params, &[]).await?;
            request.answer(|line| progress.say(line)).await
        };
        self.within(&connection, method, limit, ask).await
    }

    /// Runs something that waits for the process. When it takes too long and the process does not even answer a ping,
    /// it is ended, so that the next call finds a working one.
    pub(crate) async fn within<T>(
        &self,
        connection: &Arc<Connection>,
        method: &str,
        limit: Dur,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        if let Ok(done) = tokio::time::timeout(limit.as_std(), work).await {
            return done;
        }
        let ping = async {
            let (mut request, _) = Request::open(connection, "ping", json!({}), &[]).await?;
            request.answer(|_| {}).await
        };
        if !matches!(tokio::time::timeout(Duration::from_secs(1), ping).await, Ok(Ok(_))) {
            connection.give_up(&format!("hangs: it answered neither `{method}` nor a ping"));
        }
        Err(self.too_late(method, limit.as_std()))
    }

    pub(crate) fn too_late(&self, method: &str, limit: Duration) -> Error {
        let limit = Dur::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let words = format!("{} did not answer `{method}` within {limit}", self.id());
        Error::new(ErrorKind::Timeout, words)
            .with_context("extension", self.id())
            .with_hint(format!("`timeouts` in {} can be raised", self.manifest.file.display()))
    }
}
