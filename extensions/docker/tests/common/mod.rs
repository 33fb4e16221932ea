//! One engine for all tests of a file, and sandboxes that go away with their test.

#![allow(dead_code, reason = "each test program uses its part")]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sandboxer_core::exec::{ExecSession, ExecSpec};
use sandboxer_core::extension::{Extension, Handle, Progress, ProvisionRequest};
use sandboxer_core::profile::Image;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, ExecId, SandboxId};
use sandboxer_ext_docker::{Docker, Settings};
use sandboxer_testkit::real::{self, dockerd, dockerd::Dockerd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) const IMAGE: &str = "sandboxer-test/busybox:1";

/// The shared engine, with its image, or `None` where there is none.
pub(crate) fn engine() -> Option<&'static Dockerd> {
    static READY: std::sync::Once = std::sync::Once::new();
    let engine = real::require(dockerd::shared())?;
    READY.call_once(|| engine.import_busybox(IMAGE).unwrap());
    Some(engine)
}

pub(crate) fn extension(engine: &Dockerd) -> Arc<dyn Extension> {
    Arc::new(Docker::new(Settings::new("/nonexistent/sandboxer").with_docker_host(engine.docker_host())))
}

pub(crate) fn spec() -> SandboxSpec {
    SandboxSpec { image: Image::Oci(IMAGE.into()), ..SandboxSpec::default() }
}

pub(crate) fn request(spec: SandboxSpec) -> ProvisionRequest {
    let sandbox_id = SandboxId::generate();
    ProvisionRequest {
        sandbox_id,
        tag: sandbox_id.to_string(),
        spec,
        host: "local".into(),
        seed: None,
        from: None,
        progress: Progress::default(),
        expires_at: after(Duration::from_secs(600)),
        idle_reap: None,
    }
}

pub(crate) fn after(span: Duration) -> Timestamp {
    Dur::from_millis(u64::try_from(span.as_millis()).unwrap()).after(Timestamp::now())
}

pub(crate) fn sh(line: &str) -> ExecSpec {
    ExecSpec {
        exec_id: ExecId::generate(),
        argv: vec!["/bin/sh".into(), "-c".into(), line.into()],
        cwd: None,
        env: Default::default(),
        user: None,
        timeout: Some(Dur::from_secs(30)),
        tty: None,
        stdin: false,
    }
}

/// Runs a command and gives its output and code.
pub(crate) async fn run(extension: &Arc<dyn Extension>, handle: &Handle, spec: ExecSpec) -> (String, i32) {
    let session = extension.exec(handle, spec).await.unwrap();
    finish(session).await
}

pub(crate) async fn finish(session: ExecSession) -> (String, i32) {
    let ExecSession { stdin, mut stdout, stderr, control } = session;
    if let Some(mut stdin) = stdin {
        stdin.shutdown().await.unwrap();
    }
    let mut out = Vec::new();
    let mut errors = Vec::new();
    let read = async {
        if let Some(mut stderr) = stderr {
            stderr.read_to_end(&mut errors).await.unwrap();
        }
    };
    let (read_out, ()) = tokio::join!(stdout.read_to_end(&mut out), read);
    read_out.unwrap();
    out.extend(errors);
    (String::from_utf8_lossy(&out).trim_end().to_owned(), control.wait().await.unwrap().exit_code)
}
