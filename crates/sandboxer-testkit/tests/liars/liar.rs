//! The truth of another extension, but for one lie.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::exec::{
    BoxRead, ExecControl, ExecInfo, ExecOutcome, ExecSession, ExecSpec, LogChunk, LogStream, TtySize,
};
use sandboxer_core::extension::{
    BackendStatus, BoxDuplex, CheckReport, CleanupReport, Description, Extension, Found, Handle, Life,
    ProvisionRequest, Reachability,
};
use sandboxer_core::files::FileInfo;
use sandboxer_core::isolation::{Control, IsolationLevel, Outcome};
use sandboxer_core::profile::{Image, MountAccess, WorkspaceAccess};
use sandboxer_core::snapshot::Taken;
use sandboxer_core::{Dur, Error, ErrorKind, ExecId, Result, SnapshotId};
use tokio::io::AsyncReadExt as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    ChangesItsName,
    NeedsWhatIsMissing,
    LogsForEver,
    NotReady,
    ForgetsTheTag,
    ListsStrangers,
    AlwaysSucceeds,
    LossyText,
    MixesStreams,
    LosesInput,
    BuffersOutput,
    JoinsArguments,
    IgnoresFolder,
    EnvInArguments,
    IgnoresUser,
    TimesOutAlone,
    OutlivesItsSession,
    NoTerminal,
    ForgetsExecs,
    CutsFiles,
    UntypedMissing,
    WritesBrokenData,
    FollowsOut,
    DropsLinks,
    PlantsFiles,
    ConnectsToNothing,
    PausesNothing,
    SnapsNothing,
    DropsTheSeed,
    WritableWorkspace,
    AnyImage,
    WritableMounts,
    NoControls,
    ClaimsMore,
    ClaimsLimits,
    Immortal,
    EndsNextWeek,
    KeepsItsDeadline,
    NeverIdle,
    NeedsItsHandle,
    TearsNothingDown,
    UnknownIsAnError,
    SilentlyDoesNothing,
}

pub(crate) struct Liar {
    truth: Arc<dyn Extension>,
    lie: Lie,
}

/// So that no two answers are alike.
static COUNT: AtomicU64 = AtomicU64::new(0);

impl Liar {
    pub(crate) fn new(truth: Arc<dyn Extension>, lie: Lie) -> Self {
        Self { truth, lie }
    }

    fn is(&self, lie: Lie) -> bool {
        self.lie == lie
    }

    /// The request as the liar passes it on.
    fn twist(&self, request: &mut ProvisionRequest) {
        let spec = &mut request.spec;
        match self.lie {
            Lie::DropsTheSeed => request.seed = None,
            Lie::WritableWorkspace => spec.workspace.access = WorkspaceAccess::Rw,
            Lie::AnyImage => spec.image = Image::Host,
            Lie::WritableMounts => spec.mounts.iter_mut().for_each(|mount| mount.access = MountAccess::Rw),
            Lie::ClaimsLimits => spec.resources = Default::default(),
            Lie::Immortal => request.expires_at = Timestamp::now() + Duration::from_secs(600),
            Lie::NeverIdle => request.idle_reap = None,
            Lie::SnapsNothing | Lie::SilentlyDoesNothing => request.from = None,
            _ => {}
        }
    }

    fn twist_exec(&self, spec: &mut ExecSpec) {
        match self.lie {
            Lie::JoinsArguments => spec.argv = vec!["/bin/sh".into(), "-c".into(), spec.argv.join(" ")],
            Lie::IgnoresFolder => spec.cwd = None,
            Lie::IgnoresUser => spec.user = None,
            Lie::NoTerminal => spec.tty = None,
            Lie::TimesOutAlone => spec.timeout = None,
            Lie::LosesInput => spec.stdin = false,
            Lie::EnvInArguments => {
                let env = std::mem::take(&mut spec.env);
                let pairs = env.into_iter().map(|(key, value)| format!("{key}={value}"));
                // A shell around it, which stays for as long as the command does.
                let around = ["/bin/sh", "-c", "\"$@\"; exit $?", "sh", "env"].map(str::to_owned);
                spec.argv = around.into_iter().chain(pairs).chain(spec.argv.drain(..)).collect();
            }
            _ => {}
        }
    }
}

#[async_trait]
impl Extension for Liar {
    fn describe(&self) -> Description {
        let mut out = self.truth.describe();
        let can = &mut out.capability;
        match self.lie {
            Lie::ChangesItsName => out.summary = COUNT.fetch_add(1, Ordering::Relaxed).to_string(),
            Lie::LogsForEver => can.backend_logs = true,
            Lie::PausesNothing => can.pause = true,
            Lie::WritableWorkspace => can.workspace_access = true,
            Lie::SnapsNothing => (can.snapshot, can.restore, can.fork) = (true, true, true),
            Lie::SilentlyDoesNothing => can.port = false,
            Lie::AnyImage => (can.image_oci, can.image_rootfs_tar) = (false, false),
            _ => {}
        }
        out
    }

    async fn check(&self, host: &str) -> Result<CheckReport> {
        let mut report = self.truth.check(host).await?;
        report.ok &= !self.is(Lie::NeedsWhatIsMissing);
        Ok(report)
    }

    async fn provision(&self, mut request: ProvisionRequest) -> Result<Handle> {
        self.twist(&mut request);
        let mut handle = self.truth.provision(request).await?;
        match self.lie {
            Lie::ForgetsTheTag => handle.data = COUNT.fetch_add(1, Ordering::Relaxed).into(),
            Lie::NoControls => handle.controls.clear(),
            Lie::ClaimsMore => handle.effective = IsolationLevel::Microvm,
            Lie::ClaimsLimits => {
                let claim = |name: &str| Control {
                    name: name.to_owned(),
                    outcome: Outcome::Enforced,
                    detail: "trust me".into(),
                };
                handle.controls = vec![claim("memory_limit"), claim("pids_limit")];
            }
            _ => {}
        }
        Ok(handle)
    }

    async fn wait_ready(&self, handle: &Handle) -> Result<Reachability> {
        if self.is(Lie::NotReady) {
            self.truth.teardown(&handle.host, &handle.tag, Some(handle)).await?;
            return Ok(Reachability {
                method: "exec".into(),
                endpoint: String::new(),
                probe: "nothing was asked".into(),
                ports: Vec::new(),
            });
        }
        self.truth.wait_ready(handle).await
    }

    async fn teardown(&self, host: &str, tag: &str, handle: Option<&Handle>) -> Result<CleanupReport> {
        let known = !self.truth.list(host, tag).await?.is_empty();
        match self.lie {
            Lie::TearsNothingDown => {
                Ok(CleanupReport { removed: vec!["everything, really".into()], left: Vec::new() })
            }
            Lie::NeedsItsHandle if handle.is_none() => Ok(CleanupReport::default()),
            Lie::UnknownIsAnError if !known => Err(Error::new(ErrorKind::SandboxNotFound, "no such sandbox")),
            _ => self.truth.teardown(host, tag, handle).await,
        }
    }

    async fn list(&self, host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        self.truth.list(host, if self.is(Lie::ListsStrangers) { "" } else { tag_prefix }).await
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        self.truth.status(handle).await
    }

    async fn life(&self, handle: &Handle) -> Result<Life> {
        match self.truth.life(handle).await? {
            Life::Ended { .. } if self.is(Lie::EndsNextWeek) => {
                Ok(Life::Ended { at: Some(Timestamp::now() + Duration::from_secs(7 * 24 * 3600)) })
            }
            life => Ok(life),
        }
    }

    async fn extend(&self, handle: &Handle, expires_at: Timestamp) -> Result<()> {
        if self.is(Lie::KeepsItsDeadline) { Ok(()) } else { self.truth.extend(handle, expires_at).await }
    }

    async fn exec(&self, handle: &Handle, mut spec: ExecSpec) -> Result<ExecSession> {
        let limit = spec.timeout;
        self.twist_exec(&mut spec);
        if self.is(Lie::OutlivesItsSession) && spec.argv.get(2).is_some_and(|line| line.contains("setsid")) {
            self.truth.exec_background(handle, spec).await?;
            return Ok(quiet());
        }
        let mut session = self.truth.exec(handle, spec).await?;
        match self.lie {
            Lie::MixesStreams => {
                if let Some(stderr) = session.stderr.take() {
                    let stdout = std::mem::replace(&mut session.stdout, Box::pin(tokio::io::empty()));
                    session.stdout = Box::pin(stdout.chain(stderr));
                }
            }
            Lie::LossyText => {
                let text = String::from_utf8_lossy(&read(session.stdout).await?).into_owned();
                session.stdout = Box::pin(std::io::Cursor::new(text.into_bytes()));
            }
            Lie::BuffersOutput => {
                let data = read(session.stdout).await?;
                session.stdout = Box::pin(std::io::Cursor::new(data));
            }
            _ => {}
        }
        session.control = Arc::new(LyingControl { truth: session.control.clone(), lie: self.lie, limit });
        if self.is(Lie::TimesOutAlone) {
            // The streams end at the time-out, too, though the command goes on.
            session.stdout = Box::pin(tokio::io::empty());
            session.stderr = None;
        }
        Ok(session)
    }

    async fn exec_background(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecInfo> {
        self.truth.exec_background(handle, spec).await
    }

    async fn exec_list(&self, handle: &Handle) -> Result<Vec<ExecInfo>> {
        if self.is(Lie::ForgetsExecs) { Ok(Vec::new()) } else { self.truth.exec_list(handle).await }
    }

    async fn exec_logs(
        &self,
        handle: &Handle,
        exec: ExecId,
        stream: LogStream,
        offset: u64,
        wait: Dur,
    ) -> Result<LogChunk> {
        self.truth.exec_logs(handle, exec, stream, offset, wait).await
    }

    async fn exec_stdin(&self, handle: &Handle, exec: ExecId, data: Option<Vec<u8>>) -> Result<()> {
        self.truth.exec_stdin(handle, exec, data).await
    }

    async fn exec_signal(&self, handle: &Handle, exec: ExecId, signal: i32) -> Result<()> {
        self.truth.exec_signal(handle, exec, signal).await
    }

    async fn file_stat(&self, handle: &Handle, path: &str) -> Result<FileInfo> {
        self.truth.file_stat(handle, path).await
    }

    async fn file_list(&self, handle: &Handle, path: &str) -> Result<Vec<FileInfo>> {
        self.truth.file_list(handle, path).await
    }

    async fn file_read(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        // Resolved outside, as somebody would who forgets whose links they are.
        let outside = path.find("/tmp/").map(|at| &path[at..]);
        if let Some(Ok(data)) = outside.filter(|_| self.is(Lie::FollowsOut)).map(std::fs::read) {
            return Ok(Box::pin(std::io::Cursor::new(data)));
        }
        self.truth.file_read(handle, path).await.map_err(|error| match self.lie {
            Lie::UntypedMissing => Error::new(ErrorKind::BackendFailed, error.to_string()),
            _ => error,
        })
    }

    async fn file_write(&self, handle: &Handle, path: &str, mode: u32, mut data: BoxRead) -> Result<()> {
        if self.is(Lie::CutsFiles) {
            let mut all = read(data).await?;
            all.pop();
            data = Box::pin(std::io::Cursor::new(all));
        } else if self.is(Lie::WritesBrokenData) {
            let mut all = Vec::new();
            let _ = data.read_to_end(&mut all).await;
            data = Box::pin(std::io::Cursor::new(all));
        }
        self.truth.file_write(handle, path, mode, data).await
    }

    async fn file_delete(&self, handle: &Handle, path: &str, recursive: bool) -> Result<()> {
        self.truth.file_delete(handle, path, recursive).await
    }

    async fn file_mkdir(&self, handle: &Handle, path: &str) -> Result<()> {
        self.truth.file_mkdir(handle, path).await
    }

    async fn file_rename(&self, handle: &Handle, from: &str, to: &str) -> Result<()> {
        self.truth.file_rename(handle, from, to).await
    }

    async fn archive_get(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        self.truth.archive_get(handle, path).await
    }

    async fn archive_put(&self, handle: &Handle, path: &str, tar: BoxRead) -> Result<()> {
        let data = read(tar).await?;
        if self.is(Lie::PlantsFiles) {
            plant(&data);
        }
        let data = if self.is(Lie::DropsLinks) { without_links(&data) } else { data };
        self.truth.archive_put(handle, path, Box::pin(std::io::Cursor::new(data))).await
    }

    async fn port_connect(&self, handle: &Handle, port: u16) -> Result<BoxDuplex> {
        if self.is(Lie::ConnectsToNothing) || self.is(Lie::SilentlyDoesNothing) {
            return Ok(Box::pin(tokio::io::duplex(16).0));
        }
        self.truth.port_connect(handle, port).await
    }

    async fn backend_logs(&self, handle: &Handle, follow: bool) -> Result<BoxRead> {
        if self.is(Lie::LogsForEver) {
            // The other end is never closed.
            let (ours, theirs) = tokio::io::duplex(16);
            std::mem::forget(theirs);
            return Ok(Box::pin(ours));
        }
        self.truth.backend_logs(handle, follow).await
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        if self.is(Lie::PausesNothing) { Ok(()) } else { self.truth.pause(handle).await }
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        if self.is(Lie::PausesNothing) { Ok(()) } else { self.truth.resume(handle).await }
    }

    async fn snapshot(&self, handle: &Handle, id: SnapshotId) -> Result<Taken> {
        if self.is(Lie::SnapsNothing) {
            return Ok(Taken { snapshot_id: id, size_bytes: None, data: serde_json::Value::Null });
        }
        self.truth.snapshot(handle, id).await
    }

    async fn snapshot_delete(
        &self,
        host: &str,
        id: SnapshotId,
        taken: Option<&Taken>,
    ) -> Result<CleanupReport> {
        if self.is(Lie::SnapsNothing) {
            return Ok(CleanupReport::default());
        }
        self.truth.snapshot_delete(host, id, taken).await
    }

    async fn host_facts(&self, host: &str) -> Result<serde_json::Value> {
        self.truth.host_facts(host).await
    }
}

async fn read(mut stream: BoxRead) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    let read = stream.read_to_end(&mut data).await;
    read.map_err(|error| Error::new(ErrorKind::BackendFailed, "broken off").with_source(error))?;
    Ok(data)
}

/// Unpacks on the machine itself whatever has an absolute name.
fn plant(tar: &[u8]) {
    for entry in tar::Archive::new(tar).entries().into_iter().flatten().flatten() {
        let path = entry.path_bytes();
        if path.starts_with(b"/") {
            let _ = std::fs::write(String::from_utf8_lossy(&path).as_ref(), b"planted");
        }
    }
}

fn without_links(tar: &[u8]) -> Vec<u8> {
    let mut out = tar::Builder::new(Vec::new());
    for entry in tar::Archive::new(tar).entries().unwrap() {
        let mut entry = entry.unwrap();
        let (mut header, path) = (entry.header().clone(), entry.path().unwrap().into_owned());
        if header.entry_type() != tar::EntryType::Symlink {
            let mut data = Vec::new();
            entry.read_to_end(&mut data).unwrap();
            out.append_data(&mut header, path, &data[..]).unwrap();
        }
    }
    out.into_inner().unwrap()
}

/// A session of something that runs elsewhere.
fn quiet() -> ExecSession {
    struct Nothing;
    #[async_trait]
    impl ExecControl for Nothing {
        async fn wait(&self) -> Result<ExecOutcome> {
            Ok(ExecOutcome::default())
        }
        async fn signal(&self, _: i32, _: bool) -> Result<()> {
            Ok(())
        }
        async fn resize(&self, _: TtySize) -> Result<()> {
            Ok(())
        }
    }
    let (stdin, stderr) = (None, Some(Box::pin(tokio::io::empty()) as _));
    ExecSession { stdin, stdout: Box::pin(tokio::io::empty()), stderr, control: Arc::new(Nothing) }
}

struct LyingControl {
    truth: Arc<dyn ExecControl>,
    lie: Lie,
    limit: Option<Dur>,
}

#[async_trait]
impl ExecControl for LyingControl {
    async fn wait(&self) -> Result<ExecOutcome> {
        match (self.lie, self.limit) {
            (Lie::AlwaysSucceeds, _) => self.truth.wait().await.map(|_| ExecOutcome::default()),
            (Lie::TimesOutAlone, Some(limit)) => {
                match tokio::time::timeout(limit.as_std(), self.truth.wait()).await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        // The command is let go, and lives on.
                        std::mem::forget(self.truth.clone());
                        Ok(ExecOutcome { exit_code: 124, timed_out: true, ..ExecOutcome::default() })
                    }
                }
            }
            _ => self.truth.wait().await,
        }
    }

    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        self.truth.signal(signal, whole_tree).await
    }

    async fn resize(&self, size: TtySize) -> Result<()> {
        self.truth.resize(size).await
    }
}
