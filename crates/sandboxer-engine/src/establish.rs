//! From the written intent to `ready`: provision, probe, set up. Whatever fails on the way is removed again.

use std::sync::Arc;

use sandboxer_core::event::NewEvent;
use sandboxer_core::exec::ExecSpec;
use sandboxer_core::extension::{Extension, Handle, Progress, ProvisionRequest, Reachability};
use sandboxer_core::isolation::{IsolationReport, Outcome};
use sandboxer_core::sandbox::{Sandbox, reason};
use sandboxer_core::snapshot::Taken;
use sandboxer_core::{Error, ErrorKind, ExecId, Result, SandboxId, State};
use sandboxer_store::{Lease, LeaseChange, Step, Stored, Update};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use crate::attempt::{Notes, Ready};
use crate::destroy::Ending;
use crate::plan::{ATTEMPTS, explained};
use crate::{Engine, fault};

/// How long a lease is believed without a word from its owner.
const LEASE: sandboxer_core::Dur = sandboxer_core::Dur::from_secs(30);
/// How much of a failing setup command's output goes into the error.
const KEPT_SETUP_OUTPUT: usize = 2_000;

/// What a create needs beyond its row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Making {
    /// The checkpoint to start from.
    pub(crate) from: Option<Taken>,
    /// Who waits, and hears how far it is.
    pub(crate) progress: Progress,
    pub(crate) notes: Notes,
}

impl Engine {
    /// A lease for this process from now on.
    pub(crate) fn lease(&self) -> Lease {
        Lease { owner: self.inner.owner.as_str().to_owned(), until: LEASE.after(self.now()) }
    }

    /// Runs in a task of its own and always ends in `ready` or in an ending.
    pub(crate) async fn establish(
        &self,
        mut stored: Stored,
        making: &Making,
        cancel: CancellationToken,
    ) -> Result<Sandbox> {
        let id = stored.record.id();
        let outcome = {
            let work = self.establish_somewhere(&mut stored, making);
            tokio::select! {
                biased;
                done = work => done,
                () = cancel.cancelled() => Err(Error::new(ErrorKind::Cancelled, "the create was cancelled")),
                () = self.keep_lease(id) => Err(Error::new(ErrorKind::Conflict, "somebody else took the sandbox over")),
            }
        };
        match outcome {
            Ok((handle, reachability)) => {
                let ready = self.record_ready(stored, handle, reachability).await?;
                self.note_made(making, &ready.profile);
                Ok(ready)
            }
            Err(error) => Err(self.give_up(stored, error).await),
        }
    }

    pub(crate) async fn provision(&self, stored: &Stored, making: &Making) -> Result<Ready> {
        let (record, extension) = (&stored.record, self.extension_of(&stored.record).await?);
        let seed = if making.from.is_some() { None } else { self.seed(record).await? };
        let request = |progress| ProvisionRequest {
            sandbox_id: record.id(),
            tag: record.id().to_string(),
            spec: record.spec.clone(),
            host: record.sandbox.host.clone(),
            seed: seed.as_ref().map(|seed| seed.path().to_owned()),
            from: making.from.clone(),
            progress,
            expires_at: record.sandbox.expires_at,
            idle_reap: record.sandbox.idle_reap,
        };
        let work = |progress| extension.provision(request(progress));
        let handle = self.with_progress(record.id(), &making.progress, work).await?;
        drop(seed);
        fault::point("engine.create.after_provision");
        let reachability = extension.wait_ready(&handle).await?;
        fault::point("engine.create.after_probe");
        // A checkpoint has in it what they did.
        let commands = record.spec.setup.commands.iter().filter(|_| making.from.is_none());
        for command in commands {
            making.notes.begin_setup();
            run_setup(&extension, &handle, command).await?;
        }
        fault::point("engine.create.after_setup");
        Ok((handle, reachability))
    }

    /// Renews the lease until it is lost, which for a quick create is never asked.
    async fn keep_lease(&self, id: SandboxId) {
        loop {
            tokio::time::sleep(LEASE.as_std() / 3).await;
            let lease = self.lease();
            if let Ok(false) = self.inner.store.renew_lease(id, &lease.owner, lease.until).await {
                return;
            }
        }
    }

    async fn record_ready(
        &self,
        stored: Stored,
        handle: Handle,
        reachability: Reachability,
    ) -> Result<Sandbox> {
        let now = self.now();
        let mut record = stored.record.clone();
        record.sandbox.state = State::Ready;
        record.sandbox.ready_at = Some(now);
        record.sandbox.isolation = report(&record.sandbox.isolation, &handle);
        record.sandbox.reachability = Some(reachability);
        record.handle = Some(handle);
        let money = match self.begin_charging(&mut record, now).await {
            Ok(money) => money,
            Err(error) => return Err(self.give_up(stored, error).await),
        };
        let event = NewEvent::transition(
            State::Ready,
            now,
            json!({ "isolation": record.sandbox.isolation, "expires_at": record.sandbox.expires_at }),
        );
        let update = Update {
            record,
            expected_version: stored.version,
            steps: vec![Step { to: State::Ready, event }],
            facts: money.facts,
            lease: LeaseChange::Release,
            books: money.books,
        };
        match self.inner.store.update(update).await {
            Ok(ready) => {
                fault::point("engine.create.after_ready");
                Ok(ready.record.sandbox)
            }
            // Somebody destroyed it in the meantime, or the store is gone: what was made must not stay.
            Err(error) => Err(self.give_up(stored, error).await),
        }
    }

    /// Records why a create failed and removes what it left. The answer is always the first error, with the sandbox that
    /// it was about, what was tried, and what could not be removed.
    async fn give_up(&self, stored: Stored, error: Error) -> Error {
        // First directly: somebody who destroyed the sandbox meanwhile may have looked before it was there.
        let (id, route) = (stored.record.id(), stored.record.sandbox.route.clone());
        let tag = id.to_string();
        if !error.had_no_effect()
            && let Ok(extension) = self.extension_of(&stored.record).await
            && let Err(cleanup) = extension.teardown(&stored.record.sandbox.host, &tag, None).await
        {
            tracing::warn!(error = ?cleanup, sandbox = tag, "a failed create left something behind");
        }
        let ending = if error.kind() == ErrorKind::Cancelled {
            Ending::because(reason::CANCELLED).with_failure(&error)
        } else {
            Ending::failed(reason::CREATE_FAILED, &error)
        };
        let ended = self.end(stored, ending).await;
        let is_told = error.context().iter().any(|(key, _)| *key == ATTEMPTS);
        let error = if is_told || route.attempts.is_empty() { error } else { explained(error, &route) };
        let error = error.with_context("sandbox_id", tag);
        match ended {
            Ok(_) => error,
            Err(cleanup) => {
                tracing::error!(error = ?cleanup, "a failed create could not be cleaned up; it will be tried again");
                with_remains(error, id, &cleanup)
            }
        }
    }
}

/// What a failed create left is not hidden behind why it failed.
fn with_remains(error: Error, id: SandboxId, cleanup: &Error) -> Error {
    let left = format!(
        "{id} could not be taken down ({}) and is tried again; `sandboxer get {id}` shows it",
        cleanup.chain().join(": ")
    );
    let hint = match error.hint() {
        Some(hint) => format!("{hint}; {left}"),
        None => left,
    };
    error.with_hint(hint).with_context("cleanup", cleanup.chain().join(": "))
}

fn report(declared: &IsolationReport, handle: &Handle) -> IsolationReport {
    let missing = handle.controls.iter().filter(|control| control.outcome != Outcome::Enforced);
    IsolationReport {
        declared: declared.declared,
        effective: Some(handle.effective),
        missing: missing.map(|control| control.name.clone()).collect(),
        controls: handle.controls.clone(),
        degraded: handle.degraded,
    }
}

/// One setup command; its failure carries the end of its output.
async fn run_setup(extension: &Arc<dyn Extension>, handle: &Handle, command: &str) -> Result<()> {
    let spec = ExecSpec {
        exec_id: ExecId::generate(),
        argv: vec!["/bin/sh".into(), "-c".into(), command.to_owned()],
        cwd: None,
        env: Default::default(),
        user: None,
        timeout: None,
        tty: None,
        stdin: false,
    };
    let mut session = extension.exec(handle, spec).await?;
    let mut stderr = session.stderr.take();
    let (out, err, outcome) =
        tokio::join!(tail(Some(&mut session.stdout)), tail(stderr.as_mut()), session.control.wait(),);
    let outcome = outcome?;
    if outcome.exit_code == 0 {
        return Ok(());
    }
    let output = if err.trim().is_empty() { out } else { err };
    Err(Error::new(
        ErrorKind::SetupFailed,
        format!(
            "setup command `{}` exited with {}",
            sandboxer_core::suggest::printable(command),
            outcome.exit_code
        ),
    )
    .with_context("output", output.clone())
    .with_hint(if output.trim().is_empty() {
        "it printed nothing".to_owned()
    } else {
        format!("its last words: {}", output.trim())
    }))
}

/// Reads a stream to its end and keeps the last part as text.
async fn tail(stream: Option<&mut sandboxer_core::exec::BoxRead>) -> String {
    let Some(stream) = stream else { return String::new() };
    let (mut kept, mut chunk) = (Vec::new(), [0_u8; 8_192]);
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..count]);
        if kept.len() > 2 * KEPT_SETUP_OUTPUT {
            kept.drain(..kept.len() - KEPT_SETUP_OUTPUT);
        }
    }
    let start = kept.len().saturating_sub(KEPT_SETUP_OUTPUT);
    String::from_utf8_lossy(&kept[start..]).into_owned()
}
