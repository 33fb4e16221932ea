//! A docker engine of the test's own, a repository with a small web stack, and requests for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use sandboxer_core::exec::{ExecOutcome, ExecSpec};
use sandboxer_core::extension::{Extension, Handle, Progress, ProvisionRequest};
use sandboxer_core::host::Host;
use sandboxer_core::profile::Resources;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{ExecId, HostDirectory, SandboxId};
use sandboxer_ext_compose_ssh::{ComposeSsh, Settings};
use sandboxer_testkit::real::{FixedHosts, dockerd, require};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) const IMAGE: &str = "sandboxer-test/busybox:1";

/// The web stack: two services, a volume, a health check, and a fixed host port that would collide.
pub(crate) const WEB: &str = r#"
services:
  web:
    image: ${IMAGE:-sandboxer-test/busybox:1}
    container_name: web
    command: [sh, -c, "echo served > /www/index.html; exec httpd -f -p 8080 -h /www"]
    ports: ["80:8080"]
    volumes: ["data:/www", "./conf/app.conf:/etc/app.conf:ro"]
    healthcheck:
      test: [CMD, wget, -q, -O, /dev/null, "http://127.0.0.1:8080/"]
      interval: 1s
      retries: 20
    depends_on: [seed]
  seed:
    image: sandboxer-test/busybox:1
    command: [sh, -c, "echo from the seed service; exec sleep 100000"]
    stop_grace_period: 0s
volumes:
  data:
"#;

/// The engine that this process's tests share, with the image in it.
pub(crate) fn engine() -> Option<&'static dockerd::Dockerd> {
    static READY: OnceLock<Result<(), String>> = OnceLock::new();
    let engine = require(dockerd::shared())?;
    require(compose_is_there())?;
    require(READY.get_or_init(|| engine.import_busybox(IMAGE)).clone())?;
    Some(engine)
}

fn compose_is_there() -> Result<(), String> {
    let runs = |program: &str, args: &[&str]| {
        std::process::Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
    };
    if runs("docker-compose", &["version"]) || runs("docker", &["compose", "version"]) {
        return Ok(());
    }
    Err("neither docker-compose nor its plugin is installed".into())
}

/// A repository and the state of an extension, removed at the end.
pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    pub(crate) engine: &'static dockerd::Dockerd,
    pub(crate) hosts: Arc<FixedHosts>,
    made: Mutex<Vec<(String, String)>>,
}

impl Bench {
    pub(crate) fn new() -> Option<Self> {
        let engine = engine()?;
        let dir = tempfile::Builder::new().prefix("sbx-compose-").tempdir().unwrap();
        let bench = Self { dir, engine, hosts: Arc::new(FixedHosts::default()), made: Mutex::default() };
        bench.file("compose.yaml", WEB);
        bench.file("conf/app.conf", "configured\n");
        bench.file(".env", "TOKEN=very-secret\n");
        bench.file(".gitignore", "ignored/\n");
        bench.file("ignored/file", "x");
        bench.file(".git/config", "x");
        Some(bench)
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.repo().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn settings(&self) -> Settings {
        settings(self.dir.path(), self.hosts.clone(), Some(self.engine.docker_host()))
    }

    pub(crate) fn extension(&self) -> Arc<dyn Extension> {
        Arc::new(ComposeSsh::new(self.settings()))
    }

    pub(crate) fn request(&self, host: &str) -> ProvisionRequest {
        let sandbox_id = SandboxId::generate();
        self.made.lock().unwrap().push((host.to_owned(), sandbox_id.to_string()));
        ProvisionRequest {
            sandbox_id,
            tag: sandbox_id.to_string(),
            spec: spec(&self.repo()),
            host: host.to_owned(),
            seed: None,
            from: None,
            progress: Progress::default(),
            expires_at: Timestamp::now() + Duration::from_secs(600),
            idle_reap: None,
        }
    }
}

impl Drop for Bench {
    /// Whatever a failed test left in the shared engine goes, without the code under test.
    fn drop(&mut self) {
        for (_, tag) in self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).iter() {
            let filter = format!("label=dev.sandboxer.stack={tag}");
            let containers = self.engine.run(&["ps", "-aq", "--filter", &filter]).unwrap_or_default();
            for container in containers.lines() {
                let _ = self.engine.run(&["rm", "-f", "-v", container]);
            }
        }
    }
}

pub(crate) fn settings(dir: &Path, hosts: Arc<dyn HostDirectory>, docker_host: Option<String>) -> Settings {
    Settings { hosts, state_dir: dir.join("state"), docker_host }
}

pub(crate) fn spec(repo: &Path) -> SandboxSpec {
    SandboxSpec {
        profile: "profile.compose-e2e@1.0.0".into(),
        inputs: BTreeMap::from([("repo".to_owned(), repo.display().to_string())]),
        resources: Resources {
            cpu: Some(1.0),
            memory_mb: Some(256),
            pids: Some(200),
            ..Resources::default()
        },
        variables: BTreeMap::from([("GREETING".to_owned(), "of the profile".to_owned())]),
        ..SandboxSpec::default()
    }
}

pub(crate) fn command(line: &str) -> ExecSpec {
    ExecSpec {
        exec_id: ExecId::generate(),
        argv: vec!["/bin/sh".into(), "-c".into(), line.into()],
        cwd: None,
        env: BTreeMap::new(),
        user: None,
        timeout: Some(sandboxer_core::Dur::from_secs(60)),
        tty: None,
        stdin: false,
    }
}

/// Runs a line inside to its end.
pub(crate) async fn sh(extension: &Arc<dyn Extension>, handle: &Handle, line: &str) -> (String, ExecOutcome) {
    let mut session = extension.exec(handle, command(line)).await.unwrap();
    let mut out = String::new();
    let mut stderr = session.stderr.take().unwrap();
    let mut errors = String::new();
    let (read, _) = tokio::join!(session.stdout.read_to_string(&mut out), stderr.read_to_string(&mut errors));
    read.unwrap();
    let outcome = session.control.wait().await.unwrap();
    if outcome.exit_code != 0 {
        out += &errors;
    }
    (out, outcome)
}

/// What a web server answers on a port inside.
pub(crate) async fn get(extension: &Arc<dyn Extension>, handle: &Handle, port: u16) -> String {
    let mut connection = extension.port_connect(handle, port).await.unwrap();
    connection.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").await.unwrap();
    connection.flush().await.unwrap();
    let mut answer = String::new();
    let _ = tokio::time::timeout(Duration::from_secs(10), connection.read_to_string(&mut answer)).await;
    answer
}

/// A host record for this machine under another name and engine.
pub(crate) fn with_engine(mut host: Host, docker_host: &str) -> Host {
    host.labels.insert("docker_host".into(), docker_host.to_owned());
    host
}
