//! Waiting until every service is what it should be: healthy, running, or done.
//!
//! `up --wait` of the newer compose is not used: it takes a service that did its work and ended well for a failure, and
//! the older one does not have it.

use std::time::Duration;

use sandboxer_core::extension::Progress;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::inspect::{Container, containers};
use crate::judge::{Service, Stack};
use crate::site::Site;

const PAUSE: Duration = Duration::from_millis(250);
/// A service without a health check has to be up in so many looks: one that crashes at once is seen as what it is.
const STEADY: u32 = 2;
const MAX_RESTARTS: u64 = 3;
const LIMIT: Duration = Duration::from_secs(600);
const LOG_LINES: &str = "30";

enum Verdict {
    Ready,
    Waiting(String),
    Failed(String),
}

/// The containers once all of them are ready.
pub(super) async fn wait(
    site: &Site,
    tag: &str,
    stack: &Stack,
    progress: &Progress,
) -> Result<Vec<Container>> {
    let end = tokio::time::Instant::now() + LIMIT;
    let mut steady = 0;
    let mut told = String::new();
    loop {
        let all = containers(site, tag).await?;
        let mut waiting = Vec::new();
        for service in stack.services.iter().filter(|service| !service.optional) {
            match judge(service, &all) {
                Verdict::Ready => {}
                Verdict::Waiting(what) => waiting.push(what),
                Verdict::Failed(what) => return Err(failed(site, service, &all, &what).await),
            }
        }
        steady = if waiting.is_empty() { steady + 1 } else { 0 };
        if steady >= STEADY {
            return Ok(all);
        }
        let now = waiting.join(", ");
        if !now.is_empty() && now != told {
            progress.say(format!("waiting for {now}"));
            told = now;
        }
        if tokio::time::Instant::now() > end {
            return Err(Error::new(
                ErrorKind::Timeout,
                format!("the stack is not ready after {} s: {told}", LIMIT.as_secs()),
            )
            .with_hint("a longer start needs a health check with a `start_period`"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn judge(service: &Service, all: &[Container]) -> Verdict {
    let name = &service.name;
    let mine: Vec<&Container> = all.iter().filter(|one| one.service() == name).collect();
    if (mine.len() as u64) < service.replicas {
        return Verdict::Failed(format!("`{name}` has {} of {} containers", mine.len(), service.replicas));
    }
    for one in mine {
        let code = one.state.exit_code;
        match (one.state.status.as_str(), one.health()) {
            _ if one.restart_count >= MAX_RESTARTS => {
                return Verdict::Failed(format!("`{name}` was restarted {} times", one.restart_count));
            }
            ("running", "unhealthy") => return Verdict::Failed(format!("`{name}` is unhealthy")),
            ("running", "starting") => return Verdict::Waiting(format!("`{name}` to become healthy")),
            ("running" | "paused", _) => {}
            ("exited", _) if code == 0 => {}
            ("exited", _) => return Verdict::Failed(format!("`{name}` ended with code {code}")),
            ("dead", _) => return Verdict::Failed(format!("`{name}` is dead: {}", one.state.error)),
            ("created", _) if !one.state.error.is_empty() => {
                return Verdict::Failed(format!("`{name}` does not start: {}", one.state.error));
            }
            (status, _) => return Verdict::Waiting(format!("`{name}`, which is {status}")),
        }
    }
    Verdict::Ready
}

/// The error of a service, with the last words of its log.
async fn failed(site: &Site, service: &Service, all: &[Container], what: &str) -> Error {
    let bad = all
        .iter()
        .filter(|one| one.service() == service.name)
        .max_by_key(|one| (one.state.exit_code != 0 || one.health() == "unhealthy", one.restart_count));
    let mut log = String::new();
    if let Some(bad) = bad
        && let Ok(output) =
            site.script("docker logs --tail \"$2\" \"$1\" 2>&1", &[bad.plain_name(), LOG_LINES]).await
    {
        log = output.last_words();
    }
    let error = Error::new(ErrorKind::BackendFailed, what.to_owned())
        .with_retry(sandboxer_core::Retry::Permanent)
        .with_context("service", service.name.as_str());
    if log.is_empty() {
        error.with_hint("it logged nothing")
    } else {
        error.with_source(std::io::Error::other(log))
    }
}
