//! A provider of a test's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sandboxer_core::exec::ExecSpec;
use sandboxer_core::extension::{Credential, Found, Handle, Progress, ProvisionRequest};
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, Error, ErrorKind, ExecId, Extension, Result, SandboxId};
use sandboxer_ext_native::{Native, NativeConfig};
use sandboxer_ext_saas_stub::{Backing, SaasStub, Settings};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;

pub(crate) const HOST: &str = "local";

pub(crate) struct Rig {
    pub(crate) folder: PathBuf,
    pub(crate) stub: SaasStub,
    _guard: Option<TempDir>,
}

pub(crate) fn stub_in(folder: &Path, words: &str) -> SaasStub {
    let native = Native::new(NativeConfig::new(Settings::native_root(folder)));
    let backing = Backing::Extension(Arc::new(native));
    SaasStub::new(Settings::new(folder, Some(words.to_owned()), backing).unwrap())
}

impl Rig {
    /// As the environment says.
    pub(crate) fn new(words: &str) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let folder = guard.path().join("saas-stub");
        Self { stub: stub_in(&folder, words), folder, _guard: Some(guard) }
    }

    /// The same provider as another process would see it.
    pub(crate) fn again(&self, words: &str) -> Self {
        Self { stub: stub_in(&self.folder, words), folder: self.folder.clone(), _guard: None }
    }

    pub(crate) async fn create(&self, request: &ProvisionRequest) -> Result<Handle> {
        let handle = self.stub.provision(request.clone()).await?;
        self.stub.wait_ready(&handle).await?;
        Ok(handle)
    }

    /// A create that fails.
    pub(crate) async fn fails(&self, request: &ProvisionRequest) -> Error {
        self.stub.provision(request.clone()).await.unwrap_err()
    }

    pub(crate) async fn found(&self, tag: &str) -> Option<Found> {
        let found = self.stub.list(HOST, tag).await.unwrap();
        assert!(found.len() <= 1, "{found:?}");
        found.into_iter().next()
    }

    pub(crate) async fn remove(&self, tag: &str) -> Vec<String> {
        let report = self.stub.teardown(HOST, tag, None).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert!(self.found(tag).await.is_none());
        report.removed
    }

    /// Nothing was made and nothing is found.
    pub(crate) async fn has_nothing(&self, tag: &str) {
        assert!(self.found(tag).await.is_none());
        assert!(self.remove(tag).await.is_empty());
        assert!(!self.folder.join("native/sandboxes").join(tag).exists());
    }

    pub(crate) async fn runs(&self, handle: &Handle) {
        assert_eq!(sh(&self.stub, handle, "echo here").await.unwrap(), "here\n");
    }

    pub(crate) fn file(&self, below: &str, tag: &str) -> Option<Value> {
        let text = std::fs::read(self.folder.join(below).join(format!("{tag}.json"))).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }
}

pub(crate) fn request() -> ProvisionRequest {
    let sandbox_id = SandboxId::generate();
    ProvisionRequest {
        sandbox_id,
        tag: sandbox_id.to_string(),
        spec: SandboxSpec::default(),
        host: HOST.to_owned(),
        seed: None,
        from: None,
        progress: Progress::default(),
        expires_at: Dur::from_secs(300).after(Timestamp::now()),
        idle_reap: None,
    }
}

/// With words of its own.
pub(crate) fn asking(words: &str) -> ProvisionRequest {
    let mut request = request();
    request.spec.inputs.insert("stub".into(), words.into());
    request
}

/// A sandbox that ends by itself at an age. On a busy machine a create may take longer than that: then one that is
/// older at its end is tried.
pub(crate) async fn mortal(rig: &Rig, make: impl Fn(Dur) -> ProvisionRequest) -> (ProvisionRequest, Handle) {
    for age in [3, 12, 40] {
        let request = make(Dur::from_secs(age));
        if let Ok(handle) = rig.create(&request).await
            && sh(&rig.stub, &handle, "echo here").await.is_ok_and(|out| out == "here\n")
            && rig.stub.life(&handle).await.unwrap().is_alive()
        {
            return (request, handle);
        }
        rig.remove(&request.tag).await;
    }
    panic!("no sandbox came up within its life");
}

/// The provider as whoever has this key sees it.
pub(crate) fn with_key(rig: &Rig, key: &str) -> Arc<dyn Extension> {
    rig.stub.with_key(&Credential::new(key)).unwrap()
}

pub(crate) fn is_kind(error: &Error, kind: ErrorKind, says: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(says), "{error:?}");
}

pub(crate) async fn sh(stub: &SaasStub, handle: &Handle, script: &str) -> Result<String> {
    let spec = ExecSpec {
        exec_id: ExecId::generate(),
        argv: ["/bin/sh", "-c", script].map(String::from).into(),
        cwd: None,
        env: Default::default(),
        user: None,
        timeout: None,
        tty: None,
        stdin: false,
    };
    let mut session = stub.exec(handle, spec).await?;
    let mut out = String::new();
    session.stdout.read_to_string(&mut out).await.unwrap();
    session.control.wait().await?;
    Ok(out)
}

/// Looks until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(mut so: impl FnMut() -> F) {
    let start = Instant::now();
    while !so().await {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came to be so");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn wait(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
