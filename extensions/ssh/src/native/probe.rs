//! Whether a host can run sandboxes by its own `sandboxer`, asked once in a while.

use std::time::{Duration, Instant};

use sandboxer_core::Result;
use sandboxer_remote::{Command, Remote};
use serde_json::Value;

use super::sbx;

/// `$1` is not used. 44 says that something is not there.
const LOOK: &str = sbx!(
    r#"
for t in sandboxer flock sed tar; do command -v $t >/dev/null || { printf '%s is not on the PATH' $t; exit 44; }; done
mkdir -p -- "$HOME/.sandboxer" || exit 50
sbx doctor --json
"#
);

/// A look may not take long: a plain sandbox is made within a second.
const TIMEOUT: Duration = Duration::from_secs(15);
/// What is missing may be installed while we live.
const RECHECK: Duration = Duration::from_secs(60);
const LIMIT: usize = 1 << 20;

/// What was found on a host.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    /// Why it cannot; absent when it can.
    pub(crate) obstacle: Option<String>,
    at: Instant,
}

impl Probe {
    pub(crate) fn usable(&self) -> bool {
        self.obstacle.is_none()
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.usable() || self.at.elapsed() < RECHECK
    }
}

/// Asks the host. One that cannot be reached is an error, everything else an answer.
pub(crate) async fn look(remote: &Remote) -> Result<Probe> {
    let output = remote.output(Command::script(LOOK, [""]).timeout(TIMEOUT), LIMIT).await?;
    let obstacle = if output.outcome.timed_out {
        Some("`sandboxer doctor` does not answer".to_owned())
    } else if output.outcome.exit_code == 44 {
        Some(output.text())
    } else {
        match serde_json::from_slice::<Value>(&output.stdout) {
            Ok(report) => obstacle(&report),
            Err(_) => Some(format!("`sandboxer doctor` fails: {}", output.last_words())),
        }
    };
    Ok(Probe { obstacle, at: Instant::now() })
}

/// The first required check of the native runtime that did not pass.
fn obstacle(report: &Value) -> Option<String> {
    let checks = report.get("checks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is = |check: &Value, key: &str| check.get(key).and_then(Value::as_bool).unwrap_or(false);
    let text = |check: &Value, key: &str| {
        check.get(key).and_then(Value::as_str).unwrap_or_default().chars().take(300).collect::<String>()
    };
    let ours: Vec<_> = checks
        .iter()
        .filter(|check| ["ext.native", "home", "store"].contains(&text(check, "about").as_str()))
        .collect();
    if !ours.iter().any(|check| text(check, "about") == "ext.native") {
        return Some("its `sandboxer` has no native runtime".into());
    }
    let failed = ours.into_iter().find(|check| is(check, "required") && !is(check, "ok"))?;
    Some(format!("its native runtime lacks {}: {}", text(failed, "name"), text(failed, "detail")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::obstacle;

    #[test]
    fn only_what_the_native_runtime_needs_counts() {
        let check = |about: &str, ok: bool, required: bool| json!({ "about": about, "name": "thing", "ok": ok, "required": required, "detail": "why" });
        let report = |checks: &[serde_json::Value]| json!({ "ok": false, "checks": checks });
        let docker = check("ext.docker", false, true);
        assert_eq!(obstacle(&report(&[docker.clone(), check("ext.native", true, true)])), None);
        assert_eq!(
            obstacle(&report(&[check("ext.native", true, true), check("ext.native", false, false)])),
            None
        );
        assert!(obstacle(&report(&[check("ext.native", false, true)])).unwrap().contains("thing: why"));
        assert!(obstacle(&report(&[check("home", false, true), check("ext.native", true, true)])).is_some());
        assert!(obstacle(&report(&[docker])).is_some());
        assert!(obstacle(&json!("garbage")).is_some());
    }
}
