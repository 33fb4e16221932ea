//! A backend for tests: a folder for each sandbox, and real commands of this machine in it. No isolation at all.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::exec::{
    BoxRead, BoxWrite, EXIT_TIMED_OUT, ExecControl, ExecInfo, ExecOutcome, ExecSession, ExecSpec, LogChunk,
    LogStream, TtySize,
};
use sandboxer_core::extension::{
    BackendStatus, BoxDuplex, CheckReport, CleanupReport, Description, Extension, Found, Handle,
    ProvisionRequest, Reachability,
};
use sandboxer_core::files::{FileInfo, FileKind};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::snapshot::Taken;
use sandboxer_core::{Capability, Dur, Error, ErrorKind, ExecId, Result, SnapshotId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

pub(crate) const ID: &str = "ext.fake";

#[derive(Default)]
struct Background {
    info: Option<ExecInfo>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    stdin: Option<tokio::process::ChildStdin>,
    group: i32,
}

pub(crate) struct Fake {
    root: PathBuf,
    background: Arc<Mutex<BTreeMap<ExecId, Background>>>,
    /// Sandboxes that were torn down, in order.
    pub(crate) torn_down: Mutex<Vec<String>>,
}

impl Fake {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, background: Arc::default(), torn_down: Mutex::default() }
    }

    /// What of ours is still there.
    pub(crate) fn living(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn place(&self, handle: &Handle, path: &str) -> PathBuf {
        self.root.join(&handle.tag).join(path.trim_start_matches('/'))
    }

    fn spawn(&self, handle: &Handle, spec: &ExecSpec) -> std::io::Result<Child> {
        Command::new(&spec.argv[0])
            .args(&spec.argv[1..])
            .envs(&spec.env)
            .current_dir(self.root.join(&handle.tag))
            .stdin(if spec.stdin { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
    }
}

fn failed(source: std::io::Error) -> Error {
    let kind = match source.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::BackendFailed,
    };
    Error::new(kind, "the fake backend failed").with_source(source)
}

fn kill_group(group: i32, signal: i32) {
    let pid = rustix::process::Pid::from_raw(group).unwrap();
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap_or(rustix::process::Signal::KILL);
    let _ = rustix::process::kill_process_group(pid, signal);
}

fn outcome_of(status: std::process::ExitStatus) -> ExecOutcome {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal();
    let exit_code = status.code().unwrap_or_else(|| 128 + signal.unwrap_or(0));
    ExecOutcome { exit_code, signal, ..ExecOutcome::default() }
}

struct Control {
    child: tokio::sync::Mutex<Child>,
    group: i32,
    timeout: Option<Dur>,
}

impl Drop for Control {
    fn drop(&mut self) {
        kill_group(self.group, 9);
    }
}

#[async_trait]
impl ExecControl for Control {
    async fn wait(&self) -> Result<ExecOutcome> {
        let mut child = self.child.lock().await;
        let limit = self.timeout.map_or(Duration::from_secs(3_600), Dur::as_std);
        match tokio::time::timeout(limit, child.wait()).await {
            Ok(status) => Ok(outcome_of(status.map_err(failed)?)),
            Err(_) => {
                kill_group(self.group, 9);
                let _ = child.wait().await;
                Ok(ExecOutcome { exit_code: EXIT_TIMED_OUT, timed_out: true, ..ExecOutcome::default() })
            }
        }
    }

    async fn signal(&self, signal: i32, _whole_tree: bool) -> Result<()> {
        kill_group(self.group, signal);
        Ok(())
    }

    async fn resize(&self, _size: TtySize) -> Result<()> {
        Ok(())
    }
}

/// A command that cannot be started, as shells report it.
struct NotStarted(i32);

#[async_trait]
impl ExecControl for NotStarted {
    async fn wait(&self) -> Result<ExecOutcome> {
        Ok(ExecOutcome { exit_code: self.0, ..ExecOutcome::default() })
    }
    async fn signal(&self, _: i32, _: bool) -> Result<()> {
        Ok(())
    }
    async fn resize(&self, _: TtySize) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Extension for Fake {
    fn describe(&self) -> Description {
        Description {
            id: ID.into(),
            summary: "A folder and the commands of this machine".into(),
            capability: Capability {
                isolation: IsolationLevel::Container,
                exec: true,
                exec_split_streams: true,
                exec_stdin: true,
                exec_background: true,
                files: true,
                archive: true,
                port: true,
                pause: true,
                snapshot: true,
                restore: true,
                fork: true,
                backend_logs: true,
                extend_ttl: true,
                image_host: true,
                self_hosted: true,
                host_local: true,
                ..Capability::default()
            },
            pricing: "self-hosted".into(),
            configuration: BTreeMap::new(),
        }
    }

    async fn check(&self, _host: &str) -> Result<CheckReport> {
        Ok(CheckReport { ok: true, items: Vec::new() })
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        tokio::fs::create_dir_all(self.root.join(&request.tag)).await.map_err(failed)?;
        if let Some(from) = &request.from {
            let copied =
                copy(&self.root.join(from.snapshot_id.to_string()), &self.root.join(&request.tag)).await?;
            assert!(copied, "cp failed");
        }
        if let Some(line) = request.spec.inputs.get("progress") {
            request.progress.say(line);
        }
        if let Some(delay) = request.spec.inputs.get("delay_ms") {
            tokio::time::sleep(Duration::from_millis(delay.parse().unwrap())).await;
        }
        if let Some(why) = request.spec.inputs.get("fail") {
            return Err(Error::new(ErrorKind::BackendFailed, why.clone()));
        }
        if request.spec.inputs.contains_key("panic") {
            panic!("a backend that panics");
        }
        Ok(Handle {
            tag: request.tag,
            host: request.host,
            effective: IsolationLevel::Container,
            controls: Vec::new(),
            degraded: false,
            data: serde_json::Value::Null,
        })
    }

    async fn wait_ready(&self, handle: &Handle) -> Result<Reachability> {
        Ok(Reachability {
            method: "exec".into(),
            endpoint: handle.tag.clone(),
            probe: "none".into(),
            ports: Vec::new(),
        })
    }

    async fn teardown(&self, _host: &str, tag: &str, _: Option<&Handle>) -> Result<CleanupReport> {
        let _ = tokio::fs::remove_dir_all(self.root.join(tag)).await;
        self.torn_down.lock().unwrap().push(tag.to_owned());
        Ok(CleanupReport::default())
    }

    async fn list(&self, _host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        let tags = self.living().into_iter().filter(|tag| tag.starts_with(tag_prefix));
        Ok(tags.map(|tag| Found { tag, alive: true, parts: Vec::new() }).collect())
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        let alive = self.root.join(&handle.tag).exists();
        Ok(BackendStatus { alive, ended_at: None, usage: None, detail: serde_json::json!({}) })
    }

    async fn extend(&self, _: &Handle, _: Timestamp) -> Result<()> {
        Ok(())
    }

    async fn host_facts(&self, _host: &str) -> Result<serde_json::Value> {
        Ok(serde_json::json!({ "kernel": { "release": "test" } }))
    }

    async fn exec(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecSession> {
        let mut child = match self.spawn(handle, &spec) {
            Ok(child) => child,
            Err(error) => {
                let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
                let text = format!("{}: {error}\n", spec.argv[0]);
                return Ok(ExecSession {
                    stdin: spec.stdin.then(|| Box::pin(tokio::io::sink()) as BoxWrite),
                    stdout: Box::pin(tokio::io::empty()),
                    stderr: Some(Box::pin(std::io::Cursor::new(text.into_bytes()))),
                    control: Arc::new(NotStarted(code)),
                });
            }
        };
        let group = i32::try_from(child.id().unwrap()).unwrap();
        Ok(ExecSession {
            stdin: child.stdin.take().map(|stdin| Box::pin(stdin) as BoxWrite),
            stdout: Box::pin(child.stdout.take().unwrap()),
            stderr: child.stderr.take().map(|stderr| Box::pin(stderr) as BoxRead),
            control: Arc::new(Control {
                child: tokio::sync::Mutex::new(child),
                group,
                timeout: spec.timeout,
            }),
        })
    }

    async fn exec_background(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecInfo> {
        let mut child = self.spawn(handle, &spec).map_err(failed)?;
        let info = ExecInfo {
            exec_id: spec.exec_id,
            command: spec.argv.clone(),
            background: true,
            running: true,
            started_at: Timestamp::now(),
            ended_at: None,
            outcome: None,
        };
        let kept = Background {
            info: Some(info.clone()),
            stdin: child.stdin.take(),
            group: i32::try_from(child.id().unwrap()).unwrap(),
            ..Background::default()
        };
        self.background.lock().unwrap().insert(spec.exec_id, kept);
        let (table, exec) = (self.background.clone(), spec.exec_id);
        tokio::spawn(async move {
            let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
            let drain = async |stream: LogStream, reader: &mut (dyn tokio::io::AsyncRead + Send + Unpin)| {
                let mut chunk = [0_u8; 4_096];
                while let Ok(count @ 1..) = reader.read(&mut chunk).await {
                    let mut table = table.lock().unwrap();
                    let kept = table.get_mut(&exec).unwrap();
                    let into = if stream == LogStream::Stdout { &mut kept.stdout } else { &mut kept.stderr };
                    into.extend_from_slice(&chunk[..count]);
                }
            };
            tokio::join!(drain(LogStream::Stdout, &mut stdout), drain(LogStream::Stderr, &mut stderr));
            let status = child.wait().await.unwrap();
            let mut table = table.lock().unwrap();
            let info = table.get_mut(&exec).unwrap().info.as_mut().unwrap();
            info.running = false;
            info.ended_at = Some(Timestamp::now());
            info.outcome = Some(outcome_of(status));
        });
        Ok(info)
    }

    async fn exec_list(&self, _: &Handle) -> Result<Vec<ExecInfo>> {
        Ok(self.background.lock().unwrap().values().filter_map(|kept| kept.info.clone()).collect())
    }

    async fn exec_logs(
        &self,
        _: &Handle,
        exec: ExecId,
        stream: LogStream,
        offset: u64,
        wait: Dur,
    ) -> Result<LogChunk> {
        let deadline = tokio::time::Instant::now() + wait.as_std();
        loop {
            {
                let table = self.background.lock().unwrap();
                let kept = table.get(&exec).unwrap();
                let all = if stream == LogStream::Stdout { &kept.stdout } else { &kept.stderr };
                // Small chunks, so that offsets and characters across them are tried out.
                let from = usize::try_from(offset).unwrap().min(all.len());
                let data = all[from..all.len().min(from + 5)].to_vec();
                let next = from + data.len();
                let finished = next == all.len() && kept.info.as_ref().is_some_and(|info| !info.running);
                if !data.is_empty() || finished || tokio::time::Instant::now() >= deadline {
                    return Ok(LogChunk { data, next_offset: next as u64, skipped: 0, finished });
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn exec_stdin(&self, _: &Handle, exec: ExecId, data: Option<Vec<u8>>) -> Result<()> {
        let stdin = self.background.lock().unwrap().get_mut(&exec).and_then(|kept| kept.stdin.take());
        let (Some(mut stdin), Some(data)) = (stdin, data) else { return Ok(()) };
        stdin.write_all(&data).await.map_err(failed)?;
        self.background.lock().unwrap().get_mut(&exec).unwrap().stdin = Some(stdin);
        Ok(())
    }

    async fn exec_signal(&self, _: &Handle, exec: ExecId, signal: i32) -> Result<()> {
        let group = self.background.lock().unwrap().get(&exec).map(|kept| kept.group);
        let group = group.ok_or_else(|| Error::new(ErrorKind::ExecNotFound, "no such exec"))?;
        kill_group(group, signal);
        Ok(())
    }

    async fn file_stat(&self, handle: &Handle, path: &str) -> Result<FileInfo> {
        info(&self.place(handle, path), path)
    }

    async fn file_list(&self, handle: &Handle, path: &str) -> Result<Vec<FileInfo>> {
        let entries = std::fs::read_dir(self.place(handle, path)).map_err(failed)?.flatten();
        entries
            .map(|entry| info(&entry.path(), &format!("{path}/{}", entry.file_name().to_string_lossy())))
            .collect()
    }

    async fn file_read(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        Ok(Box::pin(tokio::fs::File::open(self.place(handle, path)).await.map_err(failed)?))
    }

    async fn file_write(&self, handle: &Handle, path: &str, mode: u32, mut data: BoxRead) -> Result<()> {
        let (place, part) = (self.place(handle, path), self.place(handle, &format!("{path}.part")));
        tokio::fs::create_dir_all(place.parent().unwrap()).await.map_err(failed)?;
        let mut file = tokio::fs::File::create(&part).await.map_err(failed)?;
        let copied = tokio::io::copy(&mut data, &mut file).await;
        if let Err(error) = copied {
            let _ = tokio::fs::remove_file(&part).await;
            return Err(failed(error));
        }
        file.flush().await.map_err(failed)?;
        std::fs::set_permissions(&part, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        std::fs::rename(part, place).map_err(failed)
    }

    async fn file_delete(&self, handle: &Handle, path: &str, recursive: bool) -> Result<()> {
        let place = self.place(handle, path);
        let gone = if !place.is_dir() {
            std::fs::remove_file(place)
        } else if recursive {
            std::fs::remove_dir_all(place)
        } else {
            std::fs::remove_dir(place)
        };
        gone.map_err(failed)
    }

    async fn file_mkdir(&self, handle: &Handle, path: &str) -> Result<()> {
        std::fs::create_dir_all(self.place(handle, path)).map_err(failed)
    }

    async fn file_rename(&self, handle: &Handle, from: &str, to: &str) -> Result<()> {
        std::fs::rename(self.place(handle, from), self.place(handle, to)).map_err(failed)
    }

    async fn archive_get(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        let output =
            Command::new("tar").arg("-C").arg(self.place(handle, path)).args(["-cf", "-", "."]).output();
        Ok(Box::pin(std::io::Cursor::new(output.await.map_err(failed)?.stdout)))
    }

    async fn archive_put(&self, handle: &Handle, path: &str, mut tar: BoxRead) -> Result<()> {
        let place = self.place(handle, path);
        std::fs::create_dir_all(&place).map_err(failed)?;
        let mut child = Command::new("tar")
            .arg("-C")
            .arg(place)
            .args(["-xf", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut stdin = child.stdin.take().unwrap();
        tokio::io::copy(&mut tar, &mut stdin).await.map_err(failed)?;
        drop(stdin);
        child.wait().await.map_err(failed)?;
        Ok(())
    }

    async fn port_connect(&self, _handle: &Handle, port: u16) -> Result<BoxDuplex> {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.map_err(failed)?;
        Ok(Box::pin(stream))
    }

    async fn backend_logs(&self, handle: &Handle, _follow: bool) -> Result<BoxRead> {
        Ok(Box::pin(std::io::Cursor::new(format!("log of {}\n", handle.tag).into_bytes())))
    }

    async fn pause(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }

    async fn resume(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }

    async fn snapshot(&self, handle: &Handle, id: SnapshotId) -> Result<Taken> {
        let target = self.root.join(id.to_string());
        std::fs::create_dir_all(&target).map_err(failed)?;
        copy(&self.root.join(&handle.tag), &target).await?;
        Ok(Taken { snapshot_id: id, size_bytes: Some(1), data: serde_json::Value::Null })
    }

    async fn snapshot_delete(
        &self,
        _host: &str,
        id: SnapshotId,
        _taken: Option<&Taken>,
    ) -> Result<CleanupReport> {
        let _ = std::fs::remove_dir_all(self.root.join(id.to_string()));
        Ok(CleanupReport::default())
    }
}

/// The content of one folder into another.
async fn copy(from: &std::path::Path, to: &std::path::Path) -> Result<bool> {
    let mut from = from.as_os_str().to_owned();
    from.push("/.");
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().await.map_err(failed)?;
    Ok(status.success())
}

fn info(place: &std::path::Path, path: &str) -> Result<FileInfo> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::symlink_metadata(place).map_err(failed)?;
    Ok(FileInfo {
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        path: path.to_owned(),
        kind: if meta.is_dir() { FileKind::Directory } else { FileKind::File },
        size: meta.len(),
        mode: format!("{:04o}", meta.mode() & 0o7777),
        uid: meta.uid(),
        gid: meta.gid(),
        modified_at: Timestamp::from_second(meta.mtime()).unwrap(),
        link_target: None,
    })
}
