//! How far long work is: told to whoever waits for it, and kept, a little of it, as events of the sandbox.

use std::time::Duration;

use sandboxer_core::SandboxId;
use sandboxer_core::event::NewEvent;
use sandboxer_core::extension::Progress;
use serde_json::json;
use tokio::sync::watch;

use crate::Engine;

/// Between two events of one create.
const EVERY: Duration = Duration::from_millis(500);
/// Events of one create; the last line comes on top.
const MOST: usize = 200;
/// A longer line is cut.
const LONGEST: usize = 500;

impl Engine {
    /// Does the work with a place to tell how far it is. The newest line wins; the last one is always kept.
    pub(crate) async fn with_progress<T, W>(
        &self,
        id: SandboxId,
        also: &Progress,
        work: impl FnOnce(Progress) -> W,
    ) -> T
    where
        W: Future<Output = T>,
    {
        let (lines, heard) = watch::channel(String::new());
        let (tell, also) = (lines.clone(), also.clone());
        let progress = Progress::new(move |line| {
            let line = tidy(line);
            also.say(&line);
            tell.send_replace(line);
        });
        let (done, ended) = watch::channel(());
        let work = async {
            let outcome = work(progress).await;
            drop(done);
            outcome
        };
        let (outcome, ()) = tokio::join!(work, self.note_progress(id, heard, ended));
        outcome
    }

    async fn note_progress(
        &self,
        id: SandboxId,
        mut lines: watch::Receiver<String>,
        mut ended: watch::Receiver<()>,
    ) {
        for _ in 0..MOST {
            tokio::select! {
                changed = lines.changed() => if changed.is_err() { break },
                _ = ended.changed() => break,
            }
            self.record_progress(id, &mut lines).await;
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = ended.changed() => break,
            }
        }
        let _ = ended.changed().await;
        if lines.has_changed().unwrap_or(false) {
            self.record_progress(id, &mut lines).await;
        }
    }

    /// Progress that cannot be kept is not worth failing for.
    async fn record_progress(&self, id: SandboxId, lines: &mut watch::Receiver<String>) {
        let line = lines.borrow_and_update().clone();
        let fact = NewEvent::fact("sandbox.progress", self.now(), json!({ "line": line }));
        if let Err(error) = self.inner.store.facts(id, vec![fact]).await {
            tracing::debug!(error = ?error, sandbox = %id, "progress could not be recorded");
        }
    }
}

/// One line of printable text of a bearable length.
fn tidy(line: &str) -> String {
    line.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(tidy(" step 1/4\r\n"), "step 1/4");
        assert_eq!(tidy("a\x1b[2Jb\nc"), "a [2Jb c");
        assert_eq!(tidy(&"x".repeat(10_000)).len(), LONGEST);
    }
}
