//! Pause by signals from inside instead of the engine's freezer, which would stop the process that keeps the deadline
//! as well: a paused sandbox must end on time like any other.

use std::collections::BTreeSet;

use sandboxer_core::{Error, ErrorKind, Result};

use crate::exec::Place;
use crate::inside;

const SCRIPT: &str = include_str!("scripts/pause.sh");
/// Every process that the caller may signal, except itself and the container's init. Its own reaper must go on.
const ALL_OF_MINE: &str = "kill -\"$1\" -1 2>/dev/null; kill -CONT \"$PPID\"; exit 0";
const ROOT: &str = "0:0";
/// Forks may outrun a round, but not many.
const ROUNDS: usize = 10;

/// Stops everything that runs for the workload. `false` when nothing ran.
pub(crate) async fn stop(place: &Place) -> Result<bool> {
    send(place, "STOP", "Tt").await
}

pub(crate) async fn go_on(place: &Place) -> Result<()> {
    send(place, "CONT", "RSDI").await.map(drop)
}

async fn send(place: &Place, signal: &str, done: &str) -> Result<bool> {
    let mut any = false;
    for _ in 0..ROUNDS {
        let answer = inside::run(place, ROOT, SCRIPT, &[signal, done]).await?.ok("pause the sandbox")?;
        let users: BTreeSet<String> = String::from_utf8_lossy(&answer)
            .lines()
            .filter(|line| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()))
            .map(str::to_owned)
            .collect();
        if users.is_empty() {
            return Ok(any);
        }
        any = true;
        for user in users {
            inside::run(place, &user, ALL_OF_MINE, &[signal]).await?.ok("pause the sandbox")?;
        }
    }
    Err(Error::new(ErrorKind::BackendFailed, "the sandbox starts processes faster than they can be stopped"))
}
