//! Our signatures against the official `standardwebhooks` package for Python, which knows nothing of ours.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use sandboxer_core::{Dur, Registry};
use sandboxer_engine::catalog::{Catalog, CatalogSources};
use sandboxer_engine::clock::SystemClock;
use sandboxer_engine::{Engine, Limits, Parts};
use sandboxer_store::{SqliteStore, Store, StoreOptions};
use sandboxer_testkit::{Scripted, real};

use crate::support::*;

/// The Python that `scripts/setup test` prepares.
fn python() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/test-python/bin/python");
    let works = Command::new(&python).args(["-c", "import standardwebhooks"]).status();
    match works {
        Ok(status) if status.success() => Ok(python),
        _ => {
            Err("the Python package `standardwebhooks` is not there; `scripts/setup test` installs it".into())
        }
    }
}

struct PythonReceiver {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    url: String,
}

impl PythonReceiver {
    fn start(python: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/webhooks/receiver.py");
        let mut child =
            Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut receiver = Self { child, to, from, url: String::new() };
        let port = receiver.line();
        receiver.url = format!("http://127.0.0.1:{}/hook", port.strip_prefix("port ").unwrap());
        receiver
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.from.read_line(&mut line).unwrap() > 0, "the receiver ended");
        line.trim().to_owned()
    }

    fn use_secret(&mut self, secret: &str) {
        writeln!(self.to, "{secret}").unwrap();
        assert_eq!(self.line(), "ready");
    }
}

impl Drop for PythonReceiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// On the system's clock: the package refuses times that are not now.
async fn engine(home: &Path) -> Engine {
    let options = StoreOptions { source: "test".into(), hubs: Vec::new() };
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&home.join("test.db"), options).await.unwrap());
    let mut registry = Registry::default();
    registry.register(Arc::new(Scripted::default()));
    let engine = Engine::new(Parts {
        store,
        registry,
        catalog: Catalog::load(&CatalogSources::default()),
        clock: Arc::new(SystemClock),
        limits: Limits::default(),
        host: None,
        sinks: Vec::new(),
        prices: sandboxer_engine::prices::Prices::default(),
        route: Default::default(),
        extension_limits: Default::default(),
    });
    engine.keep_secrets_in(home);
    engine.allow_private_webhooks("127.0.0.1".parse().unwrap());
    engine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_package_accepts_our_signatures_and_refuses_others() {
    let Some(python) = real::require(python()) else { return };
    let home = tempfile::tempdir().unwrap();
    let engine = engine(home.path()).await;
    let mut receiver = PythonReceiver::start(&python);
    let new = hook(&engine, &receiver.url, &["sandbox.ready"]).await;
    let id = new.webhook.webhook_id;

    receiver.use_secret(&new.secret);
    sandbox(&engine).await;
    deliver(&engine).await;
    let line = receiver.line();
    assert!(line.starts_with("taken evt_") && line.ends_with("dev.sandboxer.sandbox.ready"), "{line}");

    // During a rotation whoever knows either secret accepts.
    let next = engine.webhook_rotate(&admin(), id, Some(Dur::from_secs(600))).await.unwrap();
    for secret in [&new.secret, &next.secret] {
        receiver.use_secret(secret);
        assert!(engine.webhook_test(&admin(), id).await.unwrap().delivered);
        assert!(receiver.line().ends_with("dev.sandboxer.webhook.test"));
    }

    // Somebody else's secret, and one whose overlap is over.
    let last = engine.webhook_rotate(&admin(), id, Some(Dur::default())).await.unwrap();
    for secret in ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &next.secret] {
        receiver.use_secret(secret);
        let answer = engine.webhook_test(&admin(), id).await.unwrap();
        assert_eq!((answer.delivered, answer.status), (false, Some(401)));
        assert!(receiver.line().starts_with("refused"), "a wrong secret was accepted");
    }
    receiver.use_secret(&last.secret);
    assert!(engine.webhook_test(&admin(), id).await.unwrap().delivered);
}
