//! Runs cases side by side, gives them sandboxes, and removes whatever they made.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sandboxer_core::capability::Capability;
use sandboxer_core::extension::{Extension, Handle, Progress, ProvisionRequest};
use sandboxer_core::{Dur, Error, SandboxId, SnapshotId};
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinSet;

use super::sandbox::Sandbox;
use super::{Case, Report, Row, Subject, Verdict};

/// Why a case did not pass.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(String),
    /// The sandbox's own report says that this is missing, so that nothing is claimed.
    NotDeclared(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(format!("{error:?}"))
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(format!("a stream broke off: {error}"))
    }
}

pub(super) type Outcome<T = ()> = std::result::Result<T, Stop>;

pub(super) fn fail<T>(why: impl Into<String>) -> Outcome<T> {
    Err(Stop::Failed(why.into()))
}

/// A failure with these words unless it holds.
pub(super) fn ensure(holds: bool, why: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { fail(why()) }
}

/// What the cases of one run share.
pub(super) struct Rig {
    pub(super) subject: Subject,
    pub(super) capability: Capability,
    /// The instance that made the shared sandbox.
    pub(super) extension: Arc<dyn Extension>,
    shared: OnceCell<Sandbox>,
    /// How long the shared sandbox took, which tells where to break a provision off.
    provision_took: Mutex<Duration>,
    tags: Mutex<Vec<String>>,
    snapshots: Mutex<Vec<SnapshotId>>,
}

/// One provision to come: cases change what they are about.
pub(super) struct Wish {
    pub(super) request: ProvisionRequest,
}

impl Rig {
    fn new(subject: &Subject) -> Self {
        let extension = (subject.make)();
        Self {
            subject: subject.clone(),
            capability: extension.describe().capability,
            extension,
            shared: OnceCell::new(),
            provision_took: Mutex::default(),
            tags: Mutex::default(),
            snapshots: Mutex::default(),
        }
    }

    /// A fresh instance.
    pub(super) fn instance(&self) -> Arc<dyn Extension> {
        (self.subject.make)()
    }

    /// A request under a new tag, remembered for the clean-up.
    pub(super) fn wish(&self) -> Wish {
        let sandbox_id = SandboxId::generate();
        let tag = sandbox_id.to_string();
        lock(&self.tags).push(tag.clone());
        Wish {
            request: ProvisionRequest {
                sandbox_id,
                tag,
                spec: self.subject.spec.clone(),
                host: self.subject.host.clone(),
                seed: None,
                from: None,
                progress: Progress::default(),
                expires_at: after(Duration::from_secs(1_800)),
                idle_reap: None,
            },
        }
    }

    /// A new snapshot id, remembered for the clean-up.
    pub(super) fn snapshot_id(&self) -> SnapshotId {
        let id = SnapshotId::generate();
        lock(&self.snapshots).push(id);
        id
    }

    /// Provisions and waits until it is ready, within the subject's deadline.
    pub(super) async fn provision(&self, extension: &Arc<dyn Extension>, wish: Wish) -> Outcome<Sandbox> {
        let handle = self.handle(extension, wish).await?;
        match tokio::time::timeout(self.subject.deadline, extension.wait_ready(&handle)).await {
            Ok(ready) => ready?,
            Err(_) => return fail(format!("not ready after {:?}", self.subject.deadline)),
        };
        Ok(Sandbox { extension: extension.clone(), handle })
    }

    /// Only provisions.
    pub(super) async fn handle(&self, extension: &Arc<dyn Extension>, wish: Wish) -> Outcome<Handle> {
        match tokio::time::timeout(self.subject.deadline, extension.provision(wish.request)).await {
            Ok(handle) => Ok(handle?),
            Err(_) => fail(format!("a provision took more than {:?}", self.subject.deadline)),
        }
    }

    /// The sandbox that harmless cases share.
    pub(super) async fn shared(&self) -> Outcome<Sandbox> {
        let made = self.shared.get_or_try_init(|| async {
            let start = Instant::now();
            let mut wish = self.wish();
            wish.request.spec.variables.insert("CONFORMANCE_VARIABLE".into(), "of the profile".into());
            let sandbox = self.provision(&self.extension, wish).await?;
            *lock(&self.provision_took) = start.elapsed();
            Ok::<_, Stop>(sandbox)
        });
        Ok(made.await?.clone())
    }

    /// A sandbox of the case's own.
    pub(super) async fn own(&self) -> Outcome<Sandbox> {
        self.provision(&self.instance(), self.wish()).await
    }

    /// How long a provision takes here.
    pub(super) async fn provision_time(&self) -> Outcome<Duration> {
        self.shared().await?;
        Ok(*lock(&self.provision_took))
    }

    /// Removes everything that the run made; what cannot be removed is the answer.
    async fn clean_up(&self) -> Outcome {
        let extension = self.instance();
        let host = self.subject.host.as_str();
        let mut left = Vec::new();
        let (snapshots, tags) = (lock(&self.snapshots).clone(), lock(&self.tags).clone());
        for id in snapshots {
            match extension.snapshot_delete(host, id, None).await {
                Ok(report) => left.extend(report.left.into_iter().map(|left| format!("{id}: {}", left.what))),
                Err(error) => left.push(format!("{id}: {error:?}")),
            }
            left.extend(still_there(&extension, host, &id.to_string()).await);
        }
        for tag in tags {
            match extension.teardown(host, &tag, None).await {
                Ok(report) => {
                    left.extend(report.left.into_iter().map(|left| format!("{tag}: {}", left.what)))
                }
                Err(error) => left.push(format!("{tag}: {error:?}")),
            }
            left.extend(still_there(&extension, host, &tag).await);
        }
        ensure(left.is_empty(), || left.join("; "))
    }
}

async fn still_there(extension: &Arc<dyn Extension>, host: &str, tag: &str) -> Vec<String> {
    match extension.list(host, tag).await {
        Ok(found) => found
            .into_iter()
            .map(|found| format!("{} is still listed: {:?}", found.tag, found.parts))
            .collect(),
        Err(error) => vec![format!("{tag}: {error:?}")],
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The moment this long from now.
pub(super) fn after(span: Duration) -> Timestamp {
    Dur::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)).after(Timestamp::now())
}

pub(super) async fn run(subject: &Subject, cases: Vec<Case>) -> Report {
    let start = Instant::now();
    let rig = Arc::new(Rig::new(subject));
    let extension = rig.extension.describe().id;
    // A case makes a few sandboxes and waits for one or two to end.
    let limit = subject.deadline * 6 + (subject.short_ttl + subject.slack) * 3 + Duration::from_secs(60);
    let jobs = Arc::new(Semaphore::new(subject.jobs.max(1)));
    let mut running = JoinSet::new();
    for (place, case) in cases.into_iter().enumerate() {
        let (rig, jobs) = (rig.clone(), jobs.clone());
        running.spawn(async move {
            let _turn = jobs.acquire_owned().await;
            (place, one(&rig, case, limit).await)
        });
    }
    let mut rows: Vec<(usize, Row)> = Vec::new();
    while let Some(ended) = running.join_next().await {
        rows.extend(ended.ok());
    }
    rows.sort_by_key(|(place, _)| *place);
    let mut rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    let cleaning = Instant::now();
    let verdict = match tokio::time::timeout(limit, rig.clean_up()).await {
        Ok(Ok(())) => Verdict::Passed,
        Ok(Err(Stop::Failed(why) | Stop::NotDeclared(why))) => Verdict::Failed { why },
        Err(_) => Verdict::Failed { why: format!("the clean-up did not end within {limit:?}") },
    };
    rows.push(Row::new(
        CLEAN_UP,
        "whatever a run made can be removed by its tag",
        verdict,
        cleaning.elapsed(),
    ));
    let took_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    Report { extension, host: subject.host.clone(), rows, took_ms }
}

/// The last row of every report.
const CLEAN_UP: &str = "clean_up";

async fn one(rig: &Arc<Rig>, case: Case, limit: Duration) -> Row {
    let start = Instant::now();
    let undeclared = case.undeclared(&rig.capability);
    let verdict = if undeclared.is_empty() {
        // In a task of its own, so that a panic is a failure of this case alone.
        let task = tokio::spawn((case.run)(rig.clone()));
        let abort = task.abort_handle();
        match tokio::time::timeout(limit, task).await {
            Ok(Ok(Ok(()))) => Verdict::Passed,
            Ok(Ok(Err(Stop::Failed(why)))) => Verdict::Failed { why },
            Ok(Ok(Err(Stop::NotDeclared(why)))) => Verdict::NotDeclared { why },
            Ok(Err(broken)) => Verdict::Failed { why: format!("the case broke off: {broken}") },
            Err(_) => {
                abort.abort();
                Verdict::Failed { why: format!("it did not end within {limit:?}") }
            }
        }
    } else {
        Verdict::NotDeclared { why: undeclared.join(", ") }
    };
    Row::new(case.name, case.proves, verdict, start.elapsed())
}
