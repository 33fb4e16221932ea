//! A host that fails while a sandbox is being made: it is left alone for a while, and the next offer is taken.
//!
//! The row always names the host on which something may exist. It moves on only when the old host is clean, and it is
//! written before anything is made on the new one.

use std::time::Duration;

use sandboxer_core::event::NewEvent;
use sandboxer_core::host::{HostAccess, HostSign, LOCAL};
use sandboxer_core::route::Attempt;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_store::{LeaseChange, Stored, Update};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::placement::is_hosts_fault;
use crate::{Engine, fault};

/// How long a host may take to accept a connection.
const KNOCK: Duration = Duration::from_secs(5);

/// Whether a host answered when the work on it began.
pub(crate) struct Knock(Option<JoinHandle<bool>>);

impl Knock {
    /// It did not: whatever was asked of it then cannot have had an effect.
    async fn unanswered(self) -> bool {
        match self.0 {
            Some(task) => !task.await.unwrap_or(true),
            None => false,
        }
    }
}

impl Engine {
    /// Knocks at a host that is reached by SSH, while other work goes on.
    pub(crate) async fn knock(&self, stored: &Stored) -> Knock {
        if stored.record.sandbox.host == LOCAL {
            return Knock(None);
        }
        let host = match self.book().get(&stored.record.sandbox.host).await {
            Ok(record) => record.host,
            Err(_) => return Knock(None),
        };
        let HostAccess::Ssh(ssh) = host.access else { return Knock(None) };
        Knock(Some(tokio::spawn(async move {
            let address = (ssh.address.trim_matches(['[', ']']).to_owned(), ssh.port);
            matches!(tokio::time::timeout(KNOCK, TcpStream::connect(address)).await, Ok(Ok(_)))
        })))
    }

    /// Takes the next offer after a failure that is the host's: the row then names the new host. The error comes back
    /// when it is not, when there is no other offer, or when the old host is not clean.
    pub(crate) async fn reroute(&self, stored: &mut Stored, error: Error, knock: Knock) -> Result<()> {
        if !is_hosts_fault(&error) {
            return Err(error);
        }
        let sandbox = &stored.record.sandbox;
        let (extension, host) = (sandbox.extension.clone(), sandbox.host.clone());
        let reason = error.chain().join(": ");
        if host != LOCAL {
            self.note_host(&host, &HostSign::Failed { reason: format!("{extension}: {reason}") }).await;
        }
        let mut record = stored.record.clone();
        let code = error.kind().code().to_owned();
        record.sandbox.route.attempts.push(Attempt { extension, host, code, reason });
        // Kept in any case: whoever ends the sandbox now writes down what was tried.
        stored.record = record.clone();
        let said_so = error.had_no_effect();
        let is_untouched = said_so
            || match error.kind() {
                // Refused before the first word was said to it.
                ErrorKind::HostKeyRefused => true,
                ErrorKind::Unreachable => knock.unanswered().await,
                _ => false,
            };
        let error = if is_untouched && !said_so { error.without_effect() } else { error };
        let Some(next) = record.sandbox.route.untried().cloned() else { return Err(error) };
        if !is_untouched {
            self.clean_up_for_next(stored, &error).await?;
        }
        fault::point("engine.reroute.after_teardown");
        let attempt = record.sandbox.route.attempts.last().cloned();
        record.sandbox.extension = next.extension.clone();
        record.sandbox.host = next.host.clone();
        let about = json!({ "failed": attempt, "extension": next.extension, "host": next.host });
        let update = Update {
            record,
            expected_version: stored.version,
            steps: Vec::new(),
            facts: vec![NewEvent::fact("sandbox.rerouted", self.now(), about)],
            lease: LeaseChange::Take(self.lease()),
        };
        *stored = self.inner.store.update(update).await?;
        fault::point("engine.reroute.after_intent");
        tracing::warn!(error = ?error, sandbox = %stored.record.id(), host = next.host, "took the next offer");
        Ok(())
    }

    /// The old host must be clean before the row may name another one.
    async fn clean_up_for_next(&self, stored: &Stored, error: &Error) -> Result<()> {
        let (tag, timeout) = (stored.record.id().to_string(), self.inner.limits.teardown_timeout);
        let extension = self.extension_of(stored)?;
        let work = extension.teardown(&stored.record.sandbox.host, &tag, None);
        match tokio::time::timeout(timeout.as_std(), work).await {
            Ok(Ok(report)) if report.is_clean() => Ok(()),
            Ok(Ok(report)) => {
                tracing::warn!(sandbox = tag, left = ?report.left, "not rerouted: the failed host is not clean");
                Err(error.clone())
            }
            Ok(Err(cleanup)) => {
                tracing::warn!(sandbox = tag, error = ?cleanup, "not rerouted: the failed host cannot be cleaned");
                Err(error.clone())
            }
            Err(_) => Err(error.clone()),
        }
    }
}
