//! A really listening server on a port of its own, with a store in a temporary folder and the fake backend.

pub(crate) mod fake;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::{Actor, Registry};
use sandboxer_engine::catalog::{Catalog, CatalogSources};
use sandboxer_engine::clock::SystemClock;
use sandboxer_engine::{Caller, Engine, Parts};
use sandboxer_server::{Limits, ServeOptions, serve};
use sandboxer_store::sqlite::{SqliteStore, StoreOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use fake::Fake;

const PROFILE: &str = r#"
id: profile.test
version: "1.0.0"
description: For tests
extension: ext.fake
ttl: { default: 10m, max: 1h }
"#;

const PRICE: &str = r#"
extension: ext.fake
currency: USD
as_of: 2026-01-01
source: made up for tests
basis: metered
granularity: 1s
bundled: [memory]
rates:
  - { meter: vcpu, amount: 0.0001, per: second, unit: vcpu }
  - { meter: create, amount: 0.10 }
defaults: { vcpu: 1 }
"#;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    pub(crate) fake: Arc<Fake>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) serving: Option<JoinHandle<sandboxer_core::Result<()>>>,
    pub(crate) http: reqwest::Client,
    _folder: tempfile::TempDir,
}

pub(crate) fn client() -> reqwest::Client {
    sandboxer_engine::http::client_builder().no_proxy().build().unwrap()
}

pub(crate) async fn engine(folder: &Path) -> (Engine, Arc<Fake>) {
    let (profiles, sandboxes) = (folder.join("profiles"), folder.join("sandboxes"));
    std::fs::create_dir_all(&profiles).unwrap();
    std::fs::create_dir_all(&sandboxes).unwrap();
    std::fs::write(profiles.join("test.yaml"), PROFILE).unwrap();
    let options = StoreOptions { source: "test".into(), hubs: Vec::new() };
    let store = SqliteStore::open(&folder.join("store.db"), options).await.unwrap();
    let fake = Arc::new(Fake::new(sandboxes));
    let mut registry = Registry::default();
    registry.register(fake.clone());
    let engine = Engine::new(Parts {
        store: Arc::new(store),
        registry,
        route: Default::default(),
        extension_limits: Default::default(),
        catalog: Catalog::load(&CatalogSources { extra: vec![profiles], ..CatalogSources::default() }),
        clock: Arc::new(SystemClock),
        limits: sandboxer_engine::Limits::default(),
        host: None,
        sinks: Vec::new(),
        prices: sandboxer_engine::prices::Prices::load(vec![folder.join("prices")]),
    });
    engine.keep_secrets_in(folder);
    (engine, fake)
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// The fake backend asks 0.10 for a create and 0.36 an hour.
    pub(crate) async fn start_priced() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let prices = folder.path().join("prices");
        std::fs::create_dir(&prices).unwrap();
        std::fs::write(prices.join("ext.fake.yaml"), PRICE).unwrap();
        Self::start_in(folder, |_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Limits)) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), change).await
    }

    async fn start_in(folder: tempfile::TempDir, change: impl FnOnce(&mut Limits)) -> Self {
        let (engine, fake) = engine(folder.path()).await;
        let (told, bound) = oneshot::channel();
        let mut options =
            ServeOptions { on_bound: Some(told), ..ServeOptions::new(([127, 0, 0, 1], 0).into()) };
        change(&mut options.limits);
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(engine.clone(), options, shutdown.clone()));
        let address = bound.await.expect("the server starts");
        Self { address, engine, fake, shutdown, serving: Some(serving), http: client(), _folder: folder }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.get(self.url(path))
    }

    pub(crate) fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.post(self.url(path))
    }

    /// A new sandbox of the test profile.
    pub(crate) async fn create(&self) -> String {
        let answer =
            self.post("/v1/sandboxes").json(&json!({ "profile": "profile.test" })).send().await.unwrap();
        assert_eq!(answer.status(), 201);
        answer.json::<Value>().await.unwrap()["sandbox_id"].as_str().unwrap().to_owned()
    }

    /// A waiting exec of a shell line.
    pub(crate) async fn sh(&self, id: &str, line: &str) -> Value {
        self.exec(id, json!({ "command": line })).await
    }

    pub(crate) async fn exec(&self, id: &str, body: Value) -> Value {
        let answer = self.post(&format!("/v1/sandboxes/{id}/execs")).json(&body).send().await.unwrap();
        let status = answer.status();
        let value = answer.json::<Value>().await.unwrap();
        assert_eq!(status, 200, "{value}");
        value
    }

    /// A key made beside the server, as the embedded command line does.
    pub(crate) async fn key(&self, actor: Actor) -> String {
        self.key_in(actor, Default::default()).await.1
    }

    /// A key with its id, in a workspace.
    pub(crate) async fn key_in(
        &self,
        actor: Actor,
        seat: sandboxer_core::ledger::Seat,
    ) -> (sandboxer_core::KeyId, String) {
        let made = self.engine.key_create(&Caller::local_admin(), "test", actor, None, seat).await.unwrap();
        // The server believes for a moment that there is none.
        tokio::time::sleep(Duration::from_millis(300)).await;
        (made.record.key_id, made.secret)
    }

    /// Sends bytes as they are and gives back everything that comes until the server closes or falls silent.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let _ = stream.write_all(bytes).await;
        let mut out = Vec::new();
        let mut chunk = [0_u8; 4_096];
        while let Ok(Ok(count @ 1..)) =
            tokio::time::timeout(Duration::from_millis(300), stream.read(&mut chunk)).await
        {
            out.extend_from_slice(&chunk[..count]);
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    pub(crate) async fn stop(&mut self) {
        self.shutdown.cancel();
        if let Some(serving) = self.serving.take() {
            serving.await.unwrap().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// The envelope of an error answer, checked for its form.
pub(crate) async fn error(answer: reqwest::Response) -> (u16, Value) {
    let status = answer.status().as_u16();
    let id = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
    let body: Value = answer.json().await.unwrap();
    let error = body["error"].clone();
    assert_eq!(error["request_id"], id, "{body}");
    assert!(
        error["code"].is_string() && error["message"].is_string() && error["details"].is_object(),
        "{body}"
    );
    (status, error)
}

/// Until it is so, for five seconds.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came true: {what}");
}
