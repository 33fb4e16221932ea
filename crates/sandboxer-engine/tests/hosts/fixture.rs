//! An engine with a fleet of hosts over a real store.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandboxer_core::host::{Host, HostAccess, HostCapacity, SshAccess};
use sandboxer_core::request::CreateRequest;
use sandboxer_core::{Registry, Result, Sandbox};
use sandboxer_engine::catalog::{Catalog, CatalogSources};
use sandboxer_engine::{Caller, CreateOptions, Engine, Limits, Parts};
use sandboxer_store::sqlite::{SqliteStore, StoreOptions};
use sandboxer_store::{EventFilter, Store};
use sandboxer_testkit::{Fleet, TestClock};

const PROFILES: &str = "\
id: profile.fleet
version: \"1.0.0\"
extends: profile.base
extension: ext.fleet
resources: {cpu: 1, memory_mb: 100}
placement: {prefer: [a, b], fallback: [c]}
";

pub(crate) struct Site {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) fleet: Fleet,
    pub(crate) clock: Arc<TestClock>,
    folder: tempfile::TempDir,
    /// Something listens on the ports of hosts that answer.
    doors: BTreeMap<String, std::net::TcpListener>,
}

pub(crate) fn me() -> Caller {
    Caller::local_admin()
}

impl Site {
    /// With these hosts, all of which answer.
    pub(crate) async fn with(hosts: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("fleet.yaml"), PROFILES).unwrap();
        let options = StoreOptions { source: "test".into(), hubs: Vec::new() };
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&folder.path().join("test.db"), options).await.unwrap());
        let (fleet, clock) = (Fleet::default(), Arc::new(TestClock::default()));
        let engine = build(&store, &fleet, &clock, folder.path());
        let mut site = Self { engine, store, fleet, clock, folder, doors: BTreeMap::new() };
        for name in hosts {
            site.add(name, HostCapacity::default()).await;
        }
        site
    }

    pub(crate) async fn add(&mut self, name: &str, capacity: HostCapacity) {
        let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let access = SshAccess {
            address: "127.0.0.1".into(),
            port: door.local_addr().unwrap().port(),
            user: "ops".into(),
            identity_file: None,
            host_keys: vec!["ssh-ed25519 AAAA".into()],
        };
        let host = Host { name: name.into(), access: HostAccess::Ssh(access), capacity, ..Host::local() };
        self.store.host_put(&host).await.unwrap();
        self.doors.insert(name.into(), door);
    }

    /// Nobody answers there any more.
    pub(crate) fn shut(&mut self, name: &str) {
        self.doors.remove(name);
    }

    /// The same place for a process that comes after this one died: another connection, another engine.
    pub(crate) async fn reborn(&self) -> Engine {
        let options = StoreOptions { source: "test".into(), hubs: Vec::new() };
        let store = SqliteStore::open(&self.folder.path().join("test.db"), options).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        build(&store, &self.fleet, &self.clock, self.folder.path())
    }

    /// Another engine over the same store and hosts, as a second server would be.
    pub(crate) fn second_engine(&self) -> Engine {
        build(&self.store, &self.fleet, &self.clock, self.folder.path())
    }

    pub(crate) async fn create(&self) -> Result<Sandbox> {
        self.create_as(CreateRequest::default()).await
    }

    pub(crate) async fn create_as(&self, request: CreateRequest) -> Result<Sandbox> {
        let profile = request.profile.clone().or_else(|| Some("profile.fleet".into()));
        let request = CreateRequest { profile, ..request };
        Ok(self.engine.create(&me(), request, CreateOptions::default()).await?.sandbox)
    }

    /// The only row that there is.
    pub(crate) async fn only_row(&self) -> Sandbox {
        let filter = sandboxer_store::Filter { all: true, ..Default::default() };
        let page = self.store.list(&filter, None, Default::default()).await.unwrap();
        assert_eq!(page.items.len(), 1);
        page.items.into_iter().next().unwrap()
    }

    /// The kinds of the events of a sandbox, in order.
    pub(crate) async fn story(&self, sandbox: &Sandbox) -> Vec<String> {
        let filter = EventFilter { subject: Some(sandbox.sandbox_id), owner_key: None };
        let events = self.store.events(&filter, 0, Default::default()).await.unwrap();
        let kind = |kind: &str| kind.trim_start_matches("dev.sandboxer.sandbox.").to_owned();
        events.iter().map(|placed| kind(&placed.event.kind)).collect()
    }

    /// Why a host is not used, in the route of a create now.
    pub(crate) async fn refusal(&self, host: &str) -> Option<String> {
        let request = CreateRequest { profile: Some("profile.fleet".into()), ..CreateRequest::default() };
        let plan = self.engine.plan(&request).await.unwrap();
        let offer = plan.route.offers.into_iter().find(|offer| offer.host == host)?;
        (!offer.accepted).then_some(offer.reason)
    }
}

fn build(
    store: &Arc<dyn Store>,
    fleet: &Fleet,
    clock: &Arc<TestClock>,
    profiles: &std::path::Path,
) -> Engine {
    let mut registry = Registry::default();
    registry.register(Arc::new(fleet.clone()));
    let sources = CatalogSources { extra: vec![profiles.to_owned()], ..CatalogSources::default() };
    Engine::new(Parts {
        store: store.clone(),
        registry,
        catalog: Catalog::load(&sources),
        clock: clock.clone(),
        limits: Limits::default(),
        host: None,
        sinks: Vec::new(),
        prices: sandboxer_engine::prices::Prices::default(),
        route: Default::default(),
        extension_limits: Default::default(),
    })
}
