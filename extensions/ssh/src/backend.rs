//! The contract, method by method.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::capability::Capability;
use sandboxer_core::exec::{BoxRead, ExecSession, ExecSpec};
use sandboxer_core::extension::{
    BackendStatus, BoxDuplex, CheckReport, CleanupReport, Description, Extension, Found, Handle, Life,
    ProvisionRequest, Reachability, Usage,
};
use sandboxer_core::files::FileInfo;
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Remote};

use crate::config::Settings;
use crate::pool::Pool;
use crate::sandbox::{MARKER, Sandbox, gone};
use crate::{check, exec, native, provision, remains};

pub struct Ssh {
    settings: Settings,
    pool: Pool,
}

impl Ssh {
    pub fn new(settings: Settings) -> Self {
        Self { settings, pool: Pool::default() }
    }

    async fn remote(&self, host: &str) -> Result<Remote> {
        self.pool.remote(&self.settings, host).await
    }

    async fn sandbox(&self, handle: &Handle) -> Result<Sandbox> {
        Sandbox::new(self.remote(&handle.host).await?, handle)
    }
}

/// One operation on the files of a sandbox, with its paths made relative and its errors told apart.
macro_rules! files {
    ($self:ident, $handle:ident, |$sandbox:ident| $operation:expr) => {{
        let $sandbox = $self.sandbox($handle).await?;
        match $operation.await {
            Ok(done) => Ok(done),
            Err(error) => Err($sandbox.explain(error).await),
        }
    }};
}

/// Usage of one sandbox: `$1` its directory, `$2` the mark of its processes.
const STATUS: &str = r#"
cd -P -- "$1" || exit 44
n=0; for d in $(grep -lsF -- "$2" /proc/[0-9]*/environ); do n=$((n+1)); done
k=$(du -sk . 2>/dev/null | { read -r k _; echo $k; })
{ read -r end <.guard/deadline; } 2>/dev/null
printf '%s %s %s' "$n" "${k:-0}" "${end:-0}"
"#;

#[async_trait]
impl Extension for Ssh {
    fn describe(&self) -> Description {
        Description {
            id: crate::ID.into(),
            summary:
                "On a host that is reached by SSH: its own native runtime, or a directory behind the network"
                    .into(),
            capability: Capability {
                // Where the host has `sandboxer`; where not, more than `network` is refused.
                isolation: IsolationLevel::Container,
                exec: true,
                exec_split_streams: true,
                exec_stdin: true,
                exec_tty: true,
                files: true,
                archive: true,
                port: true,
                persistence: true,
                extend_ttl: true,
                idle_reap: true,
                self_hosted: true,
                host_ssh: true,
                image_host: true,
                ..Capability::default()
            },
            pricing: "self-hosted".into(),
            configuration: BTreeMap::new(),
        }
    }

    async fn check(&self, host: &str) -> Result<CheckReport> {
        let remote = self.remote(host).await?;
        let mut report = check::check(&remote).await?;
        if report.ok {
            report.items.push(check::native(&self.pool.native(host, &remote).await?));
        }
        Ok(report)
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        provision::check(&request).map_err(Error::without_effect)?;
        let remote = self.remote(&request.host).await.map_err(Error::without_effect)?;
        let probe = self.pool.native(&request.host, &remote).await.map_err(Error::without_effect)?;
        provision::run(&self.settings, &remote, &request, &probe).await
    }

    async fn wait_ready(&self, handle: &Handle) -> Result<Reachability> {
        let sandbox = self.sandbox(handle).await?;
        let probe = Command::new(["true"]).cwd(sandbox.workspace());
        if let Err(error) = sandbox.shell().check("the first command", probe).await {
            return Err(sandbox.explain(error).await);
        }
        Ok(Reachability {
            method: "ssh".into(),
            endpoint: format!("{}:{}", handle.host, sandbox.workspace()),
            probe: "a command ran in the workspace over SSH".into(),
            ports: Vec::new(),
        })
    }

    async fn teardown(&self, host: &str, tag: &str, _handle: Option<&Handle>) -> Result<CleanupReport> {
        remains::teardown(&self.settings, &self.remote(host).await?, tag).await
    }

    async fn list(&self, host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        remains::list(&self.settings, &self.remote(host).await?, tag_prefix).await
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        let sandbox = self.sandbox(handle).await?;
        if let Some(native) = &sandbox.data.native {
            return native::status(&sandbox, native).await;
        }
        let dead = BackendStatus::ended(None, serde_json::Value::Null);
        if !sandbox.guard().revive().await? {
            return Ok(dead);
        }
        let mark = format!("{MARKER}={}", sandbox.tag);
        let command = Command::script(STATUS, [sandbox.data.dir.clone(), mark]);
        let output = sandbox.remote.output(command, 1_000).await?;
        if !output.success() {
            return Ok(dead);
        }
        let text = output.text();
        let mut numbers = text.split(' ').map(|word| word.parse::<u64>().ok());
        let (pids, kilobytes, deadline) =
            (numbers.next().flatten(), numbers.next().flatten(), numbers.next().flatten());
        let usage = Usage { pids, disk_bytes: kilobytes.map(|kb| kb << 10), ..Usage::default() };
        let detail = serde_json::json!({ "directory": sandbox.data.dir, "deadline_unix": deadline });
        Ok(BackendStatus::alive(Some(usage), detail))
    }

    async fn life(&self, handle: &Handle) -> Result<Life> {
        let sandbox = self.sandbox(handle).await?;
        let alive = match &sandbox.data.native {
            Some(native) => native::is_alive(&sandbox, native).await?,
            None => sandbox.guard().revive().await?,
        };
        Ok(Life::of(alive))
    }

    async fn extend(&self, handle: &Handle, expires_at: Timestamp) -> Result<()> {
        let sandbox = self.sandbox(handle).await?;
        if let Some(native) = &sandbox.data.native {
            return native::extend(&sandbox, native, expires_at).await;
        }
        let guard = sandbox.guard();
        let moved = match guard.extend(expires_at).await {
            // A guard that went with the machine's last boot has to be there first.
            Err(error) if error.kind() == ErrorKind::NotFound && guard.revive().await? => {
                guard.extend(expires_at).await
            }
            moved => moved,
        };
        moved.map_err(|error| if error.kind() == ErrorKind::NotFound { gone(&handle.tag) } else { error })
    }

    async fn exec(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecSession> {
        exec::start(&self.sandbox(handle).await?, spec).await
    }

    async fn file_stat(&self, handle: &Handle, path: &str) -> Result<FileInfo> {
        files!(self, handle, |sandbox| sandbox.files().stat(sandbox.inside(path)?))
    }

    async fn file_list(&self, handle: &Handle, path: &str) -> Result<Vec<FileInfo>> {
        files!(self, handle, |sandbox| sandbox.files().list(sandbox.inside(path)?))
    }

    async fn file_read(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        files!(self, handle, |sandbox| sandbox.files().read(sandbox.inside(path)?))
    }

    async fn file_write(&self, handle: &Handle, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        files!(self, handle, |sandbox| sandbox.files().write(sandbox.inside(path)?, mode, data))
    }

    async fn file_delete(&self, handle: &Handle, path: &str, recursive: bool) -> Result<()> {
        files!(self, handle, |sandbox| sandbox.files().delete(sandbox.inside(path)?, recursive))
    }

    async fn file_mkdir(&self, handle: &Handle, path: &str) -> Result<()> {
        files!(self, handle, |sandbox| sandbox.files().mkdir(sandbox.inside(path)?))
    }

    async fn file_rename(&self, handle: &Handle, from: &str, to: &str) -> Result<()> {
        files!(self, handle, |sandbox| sandbox.files().rename(sandbox.inside(from)?, sandbox.inside(to)?))
    }

    async fn archive_get(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        files!(self, handle, |sandbox| sandbox.files().tar_out(sandbox.inside(path)?))
    }

    async fn archive_put(&self, handle: &Handle, path: &str, tar: BoxRead) -> Result<()> {
        files!(self, handle, |sandbox| sandbox.files().tar_in(sandbox.inside(path)?, tar))
    }

    async fn port_connect(&self, handle: &Handle, port: u16) -> Result<BoxDuplex> {
        let sandbox = self.sandbox(handle).await?;
        match &sandbox.data.native {
            Some(native) => native::connect(&sandbox, native, port).await,
            None => sandbox.remote.forward(port).await,
        }
    }

    async fn host_facts(&self, host: &str) -> Result<serde_json::Value> {
        check::facts(&self.remote(host).await?).await
    }
}
