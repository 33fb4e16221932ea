//! A command that runs in the extension's sandbox, as a session.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandboxer_core::exec::{ExecControl, ExecOutcome, ExecSession, ExecSpec, TtySize};
use sandboxer_core::{Error, Result};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::call::{Request, typed};
use crate::keeper::Keeper;
use crate::streams;
use crate::wire::Stream;

/// How much later than its time-out a command may be reported as ended.
const GRACE: Duration = Duration::from_secs(20);

pub(crate) async fn start(keeper: &Arc<Keeper>, params: Value, spec: ExecSpec) -> Result<ExecSession> {
    let connection = keeper.connection().await?;
    let wanted: &[Stream] = if spec.tty.is_some() || !keeper.manifest.capability.exec_split_streams {
        &[Stream::Stdout]
    } else {
        &[Stream::Stdout, Stream::Stderr]
    };
    let ask = async {
        let (mut request, readers) = Request::open(&connection, "exec", params, wanted).await?;
        request.started().await?;
        Ok((request, readers))
    };
    let (request, readers) =
        keeper.within(&connection, "exec", keeper.manifest.timeouts.default, ask).await?;
    let stdin = spec.stdin.then(|| streams::writer(request.feeder()));
    let id = request.id();
    let (tell, outcome) = watch::channel(None);
    let limit = spec.timeout.map(|timeout| timeout.as_std() + GRACE);
    let waiting = tokio::spawn(wait_for_end(keeper.clone(), request, limit, tell));
    let mut readers = readers.into_iter().map(|reader| Box::pin(reader) as _);
    let Some(stdout) = readers.next() else {
        return Err(Error::new(sandboxer_core::ErrorKind::Internal, "an exec has no output"));
    };
    let control =
        Running { keeper: keeper.clone(), connection, id, outcome, waiting: waiting.abort_handle() };
    Ok(ExecSession { stdin, stdout, stderr: readers.next(), control: Arc::new(control) })
}

type Ended = Option<Result<ExecOutcome>>;

/// Holds the request until its answer. Aborted, it drops the request, which ends the command.
async fn wait_for_end(
    keeper: Arc<Keeper>,
    mut request: Request,
    limit: Option<Duration>,
    tell: watch::Sender<Ended>,
) {
    let answer = async {
        let answer = request.answer(|_| {}).await;
        answer.and_then(|value| typed(keeper.id(), "exec", value))
    };
    let ended = match limit {
        Some(limit) => {
            tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(keeper.too_late("exec", limit)))
        }
        None => answer.await,
    };
    let _ = tell.send(Some(ended));
}

/// The last one to drop it ends the command.
struct Running {
    keeper: Arc<Keeper>,
    connection: Arc<crate::connection::Connection>,
    id: u64,
    outcome: watch::Receiver<Ended>,
    waiting: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

impl Running {
    /// Asks the process that runs the command, and no later one.
    async fn tell(&self, method: &str, params: serde_json::Value) -> Result<()> {
        let ask = async {
            let (mut request, _) = Request::open(&self.connection, method, params, &[]).await?;
            request.answer(|_| {}).await.map(drop)
        };
        self.keeper.within(&self.connection, method, self.keeper.manifest.timeouts.default, ask).await
    }
}

#[async_trait]
impl ExecControl for Running {
    async fn wait(&self) -> Result<ExecOutcome> {
        let mut outcome = self.outcome.clone();
        let ended = outcome.wait_for(Option::is_some).await;
        match ended.ok().and_then(|ended| ended.clone()) {
            Some(ended) => ended,
            None => Err(self.connection.shared.broken("went away")),
        }
    }

    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        self.tell("signal", json!({ "request": self.id, "signal": signal, "whole_tree": whole_tree })).await
    }

    async fn resize(&self, size: TtySize) -> Result<()> {
        self.tell("resize", json!({ "request": self.id, "rows": size.rows, "cols": size.cols })).await
    }
}
