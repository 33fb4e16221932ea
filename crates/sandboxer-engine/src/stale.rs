//! What is stale: remains with our tag and no living row, and rows with nothing behind them.
//!
//! Another installation may use the same host and the same tags. What no row of ours has ever known is therefore
//! shown, and removed only by somebody who says so.

use sandboxer_core::host::Host;
use sandboxer_core::ledger::Seat;
use sandboxer_core::{Error, ErrorKind, Result, SandboxId, SnapshotId, State};
use sandboxer_store::Stored;

use crate::caller::Action;
use crate::reach::own_key_of;
use crate::survey::{Look, Pair};
use crate::{Caller, Engine, Work};

/// Sandboxes of this one lie in the home, beside the store: nobody else's can be among them.
const PRIVATE: &str = "ext.native";

/// What was found, and with `applied` what became of it.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct StaleReport {
    /// Something was to be removed, and not only shown.
    pub applied: bool,
    /// What carries our tag and belongs to no living row.
    pub remains: Vec<Remains>,
    /// Rows that are not destroyed and have nothing behind them, or whose cleanup is not finished.
    pub rows: Vec<EmptyRow>,
    /// Where nobody could look.
    pub unanswered: Vec<Unanswered>,
}

/// Everything under one tag on one host.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Remains {
    pub host: String,
    pub extension: String,
    /// The id of the sandbox or of the snapshot.
    pub tag: String,
    /// The workspace in whose own account at the provider it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_key_of: Option<Seat>,
    pub alive: bool,
    /// What a removal takes away, piece by piece.
    pub parts: Vec<String>,
    pub why: String,
    /// A row of ours knows it. Otherwise it may belong to another installation, and stays unless `unknown` is given.
    pub known: bool,
    /// Removed, or still to be.
    pub removed: bool,
    /// Why it could not be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A row without its sandbox.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct EmptyRow {
    pub sandbox_id: SandboxId,
    pub host: String,
    pub extension: String,
    pub state: State,
    pub why: String,
    /// Brought to its end, or still to be.
    pub ended: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An extension that could not look at a host.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Unanswered {
    pub host: String,
    pub extension: String,
    pub reason: String,
}

impl StaleReport {
    /// Something that should be gone is still there.
    pub fn has_problems(&self) -> bool {
        self.remains.iter().any(|remains| remains.problem.is_some())
            || self.rows.iter().any(|row| row.problem.is_some())
    }
}

/// Which stale things to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReapRequest {
    /// Do it; otherwise it is only shown.
    #[serde(default)]
    pub apply: bool,
    /// Only on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Also what no row of ours knows: it may belong to another installation on the same host.
    #[serde(default)]
    pub unknown: bool,
}

impl Engine {
    /// Everything that is stale, on every host, without changing anything.
    pub async fn inspect_stale(&self, caller: &Caller, host: Option<&str>) -> Result<StaleReport> {
        caller.require(Action::Operate)?;
        Ok(self.find_stale(&self.hosts_named(host).await?).await?.0)
    }

    /// Shows what is stale and, with `apply`, removes it.
    pub async fn reap_stale(&self, caller: &Caller, request: &ReapRequest) -> Result<StaleReport> {
        caller.require(Action::Operate)?;
        let (mut report, pairs) = self.find_stale(&self.hosts_named(request.host.as_deref()).await?).await?;
        if !request.apply {
            return Ok(report);
        }
        report.applied = true;
        for remains in &mut report.remains {
            if remains.known || request.unknown {
                self.remove(remains, &pairs).await;
            }
        }
        for row in &mut report.rows {
            self.end_row(row).await;
        }
        Ok(report)
    }

    async fn hosts_named(&self, name: Option<&str>) -> Result<Vec<Host>> {
        Ok(match name {
            Some(name) => vec![self.book().get(name).await?.host],
            None => self.book().all().await?.into_iter().map(|record| record.host).collect(),
        })
    }

    pub(crate) fn find_stale<'a>(&'a self, hosts: &'a [Host]) -> Work<'a, (StaleReport, Vec<Pair>)> {
        Box::pin(async move {
            // Rows first: one that is written later cannot be missed for want of its sandbox.
            let living = self.inner.store.living().await?;
            let (looks, unanswered) = self.survey(hosts).await?;
            let mut report = StaleReport { unanswered, ..StaleReport::default() };
            for look in &looks {
                match &look.found {
                    Err(error) => report.unanswered.push(Unanswered {
                        host: look.pair.host.clone(),
                        extension: look.pair.id.clone(),
                        reason: error.chain().join(": "),
                    }),
                    Ok(found) => {
                        for found in found {
                            if let Some((why, known)) = self.why_stale(&look.pair, &found.tag).await? {
                                report.remains.push(Remains {
                                    host: look.pair.host.clone(),
                                    extension: look.pair.id.clone(),
                                    tag: found.tag.clone(),
                                    own_key_of: look.pair.own_key_of.clone(),
                                    alive: found.alive,
                                    parts: found.parts.clone(),
                                    why,
                                    known,
                                    removed: false,
                                    problem: None,
                                });
                            }
                        }
                    }
                }
            }
            for stored in living {
                if let Some(why) = self.why_empty(&stored, &looks).await? {
                    let sandbox = stored.record.sandbox;
                    report.rows.push(EmptyRow {
                        sandbox_id: sandbox.sandbox_id,
                        host: sandbox.host,
                        extension: sandbox.extension,
                        state: sandbox.state,
                        why,
                        ended: false,
                        problem: None,
                    });
                }
            }
            Ok((report, looks.into_iter().map(|look| look.pair).collect()))
        })
    }

    /// Why what was found belongs to no living row, and whether a row of ours knows it. Asked after it was found: a
    /// row that was written in between is there by now.
    async fn why_stale(&self, pair: &Pair, tag: &str) -> Result<Option<(String, bool)>> {
        let private = pair.id == PRIVATE;
        if let Ok(id) = tag.parse::<SandboxId>() {
            return Ok(match self.inner.store.get(id).await? {
                None => Some(("no row knows it".to_owned(), private)),
                Some(stored) => why_stale_row(self, pair, &stored).map(|why| (why, true)),
            });
        }
        if let Ok(id) = tag.parse::<SnapshotId>() {
            return Ok(match self.snapshot_place(id).await? {
                None => Some(("no row knows this snapshot".to_owned(), private)),
                Some((_, host)) if host == pair.host => None,
                Some((extension, host)) => Some((format!("its row says {extension} on {host}"), true)),
            });
        }
        Ok(None)
    }

    async fn why_empty(&self, stored: &Stored, looks: &[Look]) -> Result<Option<String>> {
        let sandbox = &stored.record.sandbox;
        let (tag, seat) = (sandbox.sandbox_id.to_string(), own_key_of(&stored.record));
        let there = |look: &&Look| look.pair.host == sandbox.host && look.pair.id == sandbox.extension;
        let look = looks.iter().filter(there).find(|look| look.pair.own_key_of == seat);
        // Nothing is said about what nobody could look at.
        let Some(Ok(found)) = look.map(|look| &look.found) else { return Ok(None) };
        if self.is_being_worked_on(stored) {
            return Ok(None);
        }
        let lives = found.iter().any(|found| found.tag == tag && found.alive);
        let why = match sandbox.state {
            State::Requested | State::Provisioning => "whoever was creating it is gone",
            State::Ready | State::Active | State::Paused if lives => return Ok(None),
            State::Ready | State::Active | State::Paused => "nothing of it lives",
            _ => "its cleanup is not finished",
        };
        // It may have ended in the meantime, in the ordinary way.
        let now = self.inner.store.get(sandbox.sandbox_id).await?;
        Ok(now.filter(|now| now.version == stored.version).map(|_| why.to_owned()))
    }

    pub(crate) async fn remove(&self, remains: &mut Remains, pairs: &[Pair]) {
        // With the key that it was found with.
        let found_by = |pair: &&Pair| {
            (&pair.host, &pair.id, &pair.own_key_of)
                == (&remains.host, &remains.extension, &remains.own_key_of)
        };
        let Some(pair) = pairs.iter().find(found_by) else { return };
        // Looked up again: time has passed since it was found.
        match self.why_stale(pair, &remains.tag).await {
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => {
                remains.problem = Some(error.chain().join(": "));
                return;
            }
        }
        let timeout = self.inner.limits.teardown_timeout;
        let work = async {
            match remains.tag.parse::<SnapshotId>() {
                Ok(id) => pair.extension.snapshot_delete(&remains.host, id, None).await,
                Err(_) => pair.extension.teardown(&remains.host, &remains.tag, None).await,
            }
        };
        let done = tokio::time::timeout(timeout.as_std(), work).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, format!("the teardown did not end within {timeout}")))
        });
        match done {
            Ok(report) if report.is_clean() => remains.removed = true,
            Ok(report) => {
                let left: Vec<String> =
                    report.left.iter().map(|left| format!("{} ({})", left.what, left.reason)).collect();
                remains.problem = Some(format!("left {}", left.join(", ")));
            }
            Err(error) => remains.problem = Some(error.chain().join(": ")),
        }
    }

    async fn end_row(&self, row: &mut EmptyRow) {
        let ended: Result<bool> = async {
            match self.inner.store.get(row.sandbox_id).await? {
                None => Ok(true),
                Some(stored) => Ok(self.settle(stored).await?.record.state() == State::Destroyed),
            }
        }
        .await;
        match ended {
            Ok(ended) => row.ended = ended,
            Err(error) => row.problem = Some(error.chain().join(": ")),
        }
    }

    /// Where a snapshot of ours is, by its row, which is there before and after its backend has anything of it.
    async fn snapshot_place(&self, id: SnapshotId) -> Result<Option<(String, String)>> {
        let row = self.inner.store.snapshot_get(id).await?;
        Ok(row.map(|row| (row.record.snapshot.extension, row.record.snapshot.host)))
    }
}

/// Why a row does not account for what was found under its tag.
fn why_stale_row(engine: &Engine, pair: &Pair, stored: &Stored) -> Option<String> {
    let sandbox = &stored.record.sandbox;
    if sandbox.state == State::Destroyed {
        return Some("its sandbox is destroyed".into());
    }
    // Two extensions may look at one engine: what a usable sandbox of this host is made of is never another one's remains.
    if sandbox.host == pair.host && (sandbox.extension == pair.id || sandbox.state.is_usable()) {
        return None;
    }
    // While it is being made, it may be on its way from one host to another.
    (!engine.is_being_worked_on(stored))
        .then(|| format!("its sandbox is {} on {}", sandbox.extension, sandbox.host))
}
