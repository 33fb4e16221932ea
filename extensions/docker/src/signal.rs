//! Signals for commands. They are sent from inside, by the command's own user, who may signal nothing else.

use std::time::Duration;

use futures::future::BoxFuture;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::exec::Place;
use crate::inside;
use crate::outside;

pub(crate) const SCRIPT: &str = include_str!("scripts/signal.sh");
/// The script found no such command.
const NOT_THERE: i32 = 3;
const KILL: i32 = 9;
/// The engine tells that a command has started a moment before it has.
const TRIES: u32 = 10;

/// How the script finds a command's init and what belongs to it.
pub(crate) fn how(place: &Place, nested: bool) -> &'static str {
    match (place.reaper, nested) {
        (false, _) => "loose",
        (true, true) => "nested",
        (true, false) => "direct",
    }
}

/// What finds one command again.
#[derive(Clone)]
pub(crate) struct Killer {
    pub(crate) place: Place,
    pub(crate) user: String,
    pub(crate) mark: String,
    /// The command's init was started by a script of ours and not by the engine.
    pub(crate) nested: bool,
}

impl Killer {
    /// The short way, for who may take it: by the number that the engine gives the command on its machine.
    async fn end_outside(&self, exec: &str) -> bool {
        let Ok(state) = self.place.connected.api.inspect_exec(exec).await else { return false };
        let Some(pid) = state.pid.filter(|_| state.running == Some(true)) else { return false };
        let mark = self.mark.clone();
        tokio::task::spawn_blocking(move || outside::end(pid, &mark)).await.unwrap_or_default()
    }

    pub(crate) async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        if !(1..=64).contains(&signal) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{signal} is not a signal")));
        }
        let scope = if whole_tree { "tree" } else { "command" };
        let number = signal.to_string();
        let how = how(&self.place, self.nested);
        for round in 1..=TRIES {
            let done =
                inside::run(&self.place, &self.user, SCRIPT, &[&self.mark, &number, scope, how]).await?;
            match done.code {
                0 => return Ok(()),
                NOT_THERE if round < TRIES => tokio::time::sleep(Duration::from_millis(50)).await,
                NOT_THERE => return Err(Error::new(ErrorKind::ExecNotFound, "the command has ended")),
                _ => return Err(done.failed("signal a command")),
            }
        }
        Ok(())
    }

    /// Ends the command and everything that it started. One that is already gone is fine.
    ///
    /// Boxed, because a signal is a command as well.
    pub(crate) fn end<'a>(&'a self, exec: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if self.end_outside(exec).await {
                return Ok(());
            }
            match self.signal(KILL, true).await {
                Err(error)
                    if matches!(error.kind(), ErrorKind::ExecNotFound | ErrorKind::SandboxNotFound) =>
                {
                    Ok(())
                }
                other => other,
            }
        })
    }
}
