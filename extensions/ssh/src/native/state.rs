//! How a sandbox of the host's runtime stands, and its deadline.

use jiff::Timestamp;
use sandboxer_core::extension::{BackendStatus, Usage};
use sandboxer_core::sandbox::Sandbox as Record;
use sandboxer_core::{Dur, ErrorKind, Result};
use sandboxer_remote::{Command, failure};
use serde_json::{Value, json};

use super::{Native, record};
use crate::sandbox::{Sandbox, gone};

/// Exit codes of the host's command line that say that there is no such sandbox, or no living one.
const NOT_THERE: [i32; 2] = [3, 4];
const LIMIT: usize = 1 << 20;

pub(super) fn lives(record: &Record) -> bool {
    record.state.is_usable()
}

/// Asks the host's runtime. Without the sandbox's folder there is none.
pub(crate) async fn is_alive(sandbox: &Sandbox, native: &Native) -> Result<bool> {
    let command = Command::new(native.argv(["get", "--json", &native.id])).cwd(&sandbox.data.dir);
    match sandbox.remote.output(command, LIMIT).await {
        Ok(output) if output.success() => Ok(lives(&record(&output.stdout)?)),
        Ok(output) if NOT_THERE.contains(&output.outcome.exit_code) => Ok(false),
        Ok(output) => Err(failure::of("asking the host's `sandboxer`", &output)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) async fn status(sandbox: &Sandbox, native: &Native) -> Result<BackendStatus> {
    let dead = BackendStatus::ended(None, Value::Null);
    let argv = native.argv(["inspect", "sandbox", "--json", &native.id]);
    let output = match sandbox.remote.output(Command::new(argv).cwd(&sandbox.data.dir), LIMIT).await {
        Ok(output) if output.success() => output,
        Ok(output) if NOT_THERE.contains(&output.outcome.exit_code) => return Ok(dead),
        Ok(output) => return Err(failure::of("asking the host's `sandboxer`", &output)),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(dead),
        Err(error) => return Err(error),
    };
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let backend = report.get("backend").cloned().unwrap_or_default();
    if backend.get("alive").and_then(Value::as_bool) != Some(true) {
        return Ok(dead);
    }
    let usage: Option<Usage> =
        backend.get("usage").and_then(|usage| serde_json::from_value(usage.clone()).ok());
    let detail = json!({
        "mode": "native",
        "directory": sandbox.data.dir,
        "remote_id": native.id,
        "remote": backend.get("detail"),
    });
    Ok(BackendStatus::alive(usage, detail))
}

/// The runtime's own deadline only moves later; the guard's moves either way, and whichever comes first ends it.
pub(crate) async fn extend(sandbox: &Sandbox, native: &Native, until: Timestamp) -> Result<()> {
    let left = until.duration_since(Timestamp::now()).as_millis();
    let left = Dur::from_millis(u64::try_from(left).unwrap_or(0).max(1_000)).to_string();
    let profiles = format!("{}/profiles", sandbox.data.dir);
    let argv = native.argv(["--profiles", &profiles, "extend-ttl", &native.id, "--duration", &left]);
    let moved = sandbox.remote.output(Command::new(argv).cwd(&sandbox.data.dir), LIMIT).await;
    let told = match moved {
        Ok(output) if output.success() => sandbox.guard().extend(until).await,
        Ok(output) if NOT_THERE.contains(&output.outcome.exit_code) => return Err(gone(&sandbox.tag)),
        Ok(output) => return Err(failure::of("moving the deadline", &output)),
        Err(error) => Err(error),
    };
    told.map_err(|error| if error.kind() == ErrorKind::NotFound { gone(&sandbox.tag) } else { error })
}
