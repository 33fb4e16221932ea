//! The serial console's log: bounded, whatever the guest writes.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

use sandboxer_core::exec::BoxRead;
use tokio::io::AsyncWriteExt as _;

use super::Place;
use super::process::Process;

/// Keeps the log in two halves, see the file.
pub(crate) const KEEP: &str = include_str!("console.sh");

const LAST_LINES: usize = 20;
const LAST_BYTES: u64 = 16 << 10;
const PANIC: &str = "Kernel panic - not syncing";

/// The last lines, without what steers terminals.
pub(crate) fn last_lines(place: &Place) -> String {
    let mut text = Vec::new();
    for half in [0, 1] {
        let Ok(mut file) = File::open(place.console(half)) else { continue };
        let length = file.metadata().map_or(0, |data| data.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)));
        let _ = file.take(LAST_BYTES).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<String> = text
        .split(['\n', '\r'])
        .map(|line| line.chars().filter(|c| !c.is_control()).collect::<String>())
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// Whether the guest's kernel gave up.
pub(crate) fn panicked(place: &Place) -> bool {
    last_lines(place).contains(PANIC)
}

/// The log from its beginning; with `follow`, what comes until the machine ends.
pub(crate) fn read(place: &Place, machine: Option<Process>, follow: bool) -> BoxRead {
    let (mut out, reader) = tokio::io::duplex(64 << 10);
    let place = place.clone();
    tokio::spawn(async move {
        if let Ok(older) = tokio::fs::read(place.console(0)).await
            && out.write_all(&older).await.is_err()
        {
            return;
        }
        let mut given = 0;
        loop {
            let alive = machine.is_some_and(Process::is_alive);
            let now = tokio::fs::read(place.console(1)).await.unwrap_or_default();
            if now.len() < given {
                // It was turned over: what was missed of the old half comes first.
                let old = tokio::fs::read(place.console(0)).await.unwrap_or_default();
                if out.write_all(old.get(given..).unwrap_or_default()).await.is_err() {
                    return;
                }
                given = 0;
            }
            if out.write_all(&now[given..]).await.is_err() {
                return;
            }
            given = now.len();
            if !follow || !alive {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    Box::pin(reader)
}
