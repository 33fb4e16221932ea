//! A look at a host: does it answer, does it show its pinned key, and can the extensions use it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sandboxer_core::extension::{CheckItem, CheckReport, Extension};
use sandboxer_core::host::{Host, HostAccess, HostSign, SshAccess};
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::scan;
use super::view::{ExtensionCheck, HostCheck};
use crate::caller::Action;
use crate::survey::can_use;
use crate::{Caller, Engine};

/// How long a host may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long one extension may take.
const PATIENCE: Duration = Duration::from_secs(30);

impl Engine {
    /// Looks at a host and remembers how it answered: one that recovered is used again at once.
    pub async fn host_check(&self, caller: &Caller, name: &str) -> Result<HostCheck> {
        caller.require(Action::Operate)?;
        let host = self.book().get(name).await?.host;
        let reached = reach(&host).await;
        let extensions = match &reached {
            Ok(_) => self.check_extensions(&host).await,
            Err(_) => Vec::new(),
        };
        let usable = extensions.iter().any(|check| check.report.ok);
        let (latency_ms, problem) = match reached {
            Ok(latency) => (latency, None),
            Err(error) => (None, Some(error)),
        };
        let sign = match &problem {
            Some(error) => HostSign::Failed { reason: error.chain().join(": ") },
            None if usable || extensions.is_empty() => HostSign::Answered { latency_ms },
            None => HostSign::Failed { reason: first_problem(&extensions) },
        };
        let record = self.inner.store.host_health(name, &sign, None, self.now()).await?;
        Ok(HostCheck {
            host: name.to_owned(),
            ok: problem.is_none() && usable,
            latency_ms,
            hint: problem.as_ref().and_then(|error| error.hint().map(str::to_owned)),
            problem: problem.map(|error| error.chain().join(": ")),
            extensions,
            health: record.health,
        })
    }

    async fn check_extensions(&self, host: &Host) -> Vec<ExtensionCheck> {
        let mut checks = JoinSet::new();
        for (index, extension) in self.inner.registry.iter().enumerate() {
            let about = extension.describe();
            if can_use(&about.capability, host) {
                let (extension, name) = (extension.clone(), host.name.clone());
                checks.spawn(async move {
                    let report = check_one(&extension, &name).await;
                    (index, ExtensionCheck { extension: about.id, report })
                });
            }
        }
        let mut out = Vec::new();
        while let Some(done) = checks.join_next().await {
            match done {
                Ok(check) => out.push(check),
                Err(error) => tracing::error!(%error, "the check of an extension broke off"),
            }
        }
        out.sort_by_key(|(index, _)| *index);
        out.into_iter().map(|(_, check)| check).collect()
    }
}

/// An extension's own check; what it fails with is an item like any other.
pub(crate) async fn check_one(extension: &Arc<dyn Extension>, host: &str) -> CheckReport {
    let checked = tokio::time::timeout(PATIENCE, extension.check(host)).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Timeout, format!("no answer within {} s", PATIENCE.as_secs())))
    });
    checked.unwrap_or_else(|error| CheckReport {
        ok: false,
        items: vec![CheckItem {
            name: "check".into(),
            ok: false,
            required: true,
            detail: error.chain().join(": "),
            hint: error.hint().map(str::to_owned),
        }],
    })
}

fn first_problem(extensions: &[ExtensionCheck]) -> String {
    let problems = extensions.iter().flat_map(|check| {
        let items = check.report.items.iter().filter(|item| !item.ok && item.required);
        items.map(|item| format!("{}: {}", check.extension, item.detail))
    });
    problems.into_iter().next().unwrap_or_else(|| "no extension can use it".into())
}

/// The way to the host and its key, with how long the way took.
async fn reach(host: &Host) -> Result<Option<u64>> {
    let HostAccess::Ssh(ssh) = &host.access else { return Ok(None) };
    let latency = connect(host, ssh).await?;
    let offered = scan::offered(ssh).await?;
    if offered.iter().any(|key| ssh.host_keys.iter().any(|pinned| pinned == key.text())) {
        return Ok(Some(latency));
    }
    let shown: Vec<String> =
        offered.iter().map(|key| format!("{} {}", key.kind(), key.fingerprint())).collect();
    Err(Error::new(
        ErrorKind::HostKeyRefused,
        format!("host `{}` shows another key than the pinned one: {}", host.name, shown.join(", ")),
    )
    .with_hint(format!(
        "if it was installed anew, `sandboxer hosts remove {}` and add it again with the new fingerprint; otherwise \
         somebody else answers in its place",
        host.name
    )))
}

async fn connect(host: &Host, ssh: &SshAccess) -> Result<u64> {
    let started = Instant::now();
    let failed = |why: String| {
        Error::new(ErrorKind::Unreachable, format!("host `{}` does not answer: {why}", host.name))
            .with_hint("is it up, and does its SSH server listen on that port?")
    };
    match tokio::time::timeout(CONNECT, TcpStream::connect((ssh.address.as_str(), ssh.port))).await {
        Ok(Ok(_)) => Ok(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)),
        Ok(Err(source)) => Err(failed(source.to_string())),
        Err(_) => Err(failed(format!("no connection within {} s", CONNECT.as_secs()))),
    }
}
