//! A command inside, as the host's `sandboxer exec` passes it on.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandboxer_core::exec::{ExecControl, ExecOutcome, TtySize};
use sandboxer_core::{Error, Result};

use super::Native;
use crate::sandbox::{Sandbox, gone};

/// Codes with which `sandboxer` itself fails; a command may use them too, so the sandbox is asked then.
const OWN_CODES: std::ops::RangeInclusive<i32> = 1..=7;
/// Signals that `sandboxer exec` passes on, and the one that ends it with everything inside.
const PASSED_ON: [i32; 5] = [1, 2, 3, 9, 15];

/// How long the host has to pass on a new size of the terminal.
const RESIZE: Duration = Duration::from_millis(150);

/// Tells a command that failed from a sandbox that is gone.
pub(crate) struct Inside {
    pub(crate) control: Arc<dyn ExecControl>,
    pub(crate) sandbox: Sandbox,
    pub(crate) native: Native,
}

#[async_trait]
impl ExecControl for Inside {
    async fn wait(&self) -> Result<ExecOutcome> {
        let outcome = self.control.wait().await?;
        if OWN_CODES.contains(&outcome.exit_code)
            && matches!(super::is_alive(&self.sandbox, &self.native).await, Ok(false))
        {
            return Err(gone(&self.sandbox.tag));
        }
        Ok(outcome)
    }

    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        if !PASSED_ON.contains(&signal) {
            return Err(Error::unsupported(crate::ID, "this signal, on a host that runs `sandboxer`")
                .with_hint("HUP, INT, QUIT, TERM and KILL are passed on"));
        }
        self.control.signal(signal, whole_tree).await
    }

    async fn resize(&self, size: TtySize) -> Result<()> {
        self.control.resize(size).await?;
        // It travels beside the input, by a signal to the program on the host: what is typed next must not overtake it.
        tokio::time::sleep(RESIZE).await;
        Ok(())
    }
}
