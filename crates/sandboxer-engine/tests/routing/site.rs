//! An engine with providers over a real store.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandboxer_core::profile::RouteSpec;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::route::ExtensionLimits;
use sandboxer_core::{Registry, Result, Sandbox};
use sandboxer_engine::catalog::{Catalog, CatalogSources};
use sandboxer_engine::prices::Prices;
use sandboxer_engine::{Caller, CreateOptions, Engine, Limits, Parts};
use sandboxer_store::sqlite::{SqliteStore, StoreOptions};
use sandboxer_store::{EventFilter, Store};
use sandboxer_testkit::TestClock;

use crate::provider::Provider;

const PRICE: &str = "\
currency: USD
as_of: 2026-01-01
source: test
basis: metered
granularity: 1s
bundled: [memory]
defaults: { vcpu: 1, memory_mb: 512 }
";

pub(crate) struct Site {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<TestClock>,
    plan: Blueprint,
    folder: tempfile::TempDir,
}

/// What an engine of the site is made of.
#[derive(Clone, Default)]
pub(crate) struct Blueprint {
    pub(crate) providers: Vec<Provider>,
    /// `route: {…}` of the profile that is used.
    pub(crate) profile: String,
    pub(crate) route: RouteSpec,
    pub(crate) limits: BTreeMap<String, ExtensionLimits>,
    /// Dollars for a second of a processor.
    pub(crate) prices: Vec<(&'static str, &'static str)>,
}

pub(crate) fn me() -> Caller {
    Caller::local_admin()
}

impl Blueprint {
    /// The first provider, then the others.
    pub(crate) fn chain(providers: &[&Provider]) -> Self {
        let ids: Vec<String> = providers.iter().map(|one| id(one)).collect();
        let profile = format!("extension: {}\nroute: {{fallback: [{}]}}\n", ids[0], ids[1..].join(", "));
        Self { profile, ..Self::of(providers) }
    }

    pub(crate) fn of(providers: &[&Provider]) -> Self {
        Self { providers: providers.iter().map(|one| (*one).clone()).collect(), ..Self::default() }
    }

    pub(crate) async fn build(self) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let profile =
            format!("id: profile.routed\nversion: \"1.0.0\"\nextends: profile.base\n{}", self.profile);
        std::fs::write(folder.path().join("routed.yaml"), profile).unwrap();
        std::fs::create_dir(folder.path().join("prices")).unwrap();
        write_prices(folder.path(), &self.prices);
        let clock = Arc::new(TestClock::default());
        let store = open(folder.path()).await;
        let engine = engine(&self, &store, &clock, folder.path());
        Site { engine, store, clock, plan: self, folder }
    }
}

fn write_prices(folder: &std::path::Path, prices: &[(&'static str, &'static str)]) {
    for (id, rate) in prices {
        let rates = format!("rates:\n  - {{ meter: vcpu, amount: {rate}, per: second, unit: vcpu }}\n");
        let path = folder.join("prices").join(format!("{id}.yaml"));
        std::fs::write(path, format!("extension: {id}\n{PRICE}{rates}")).unwrap();
    }
}

fn id(provider: &Provider) -> String {
    sandboxer_core::Extension::describe(provider).id
}

async fn open(folder: &std::path::Path) -> Arc<dyn Store> {
    let options = StoreOptions { source: "test".into(), hubs: Vec::new() };
    Arc::new(SqliteStore::open(&folder.join("test.db"), options).await.unwrap())
}

fn engine(
    plan: &Blueprint,
    store: &Arc<dyn Store>,
    clock: &Arc<TestClock>,
    folder: &std::path::Path,
) -> Engine {
    let mut registry = Registry::default();
    for provider in &plan.providers {
        registry.register(Arc::new(provider.clone()));
    }
    let sources = CatalogSources { extra: vec![folder.to_owned()], ..CatalogSources::default() };
    Engine::new(Parts {
        store: store.clone(),
        registry,
        catalog: Catalog::load(&sources),
        clock: clock.clone(),
        limits: Limits::default(),
        host: None,
        sinks: Vec::new(),
        route: plan.route.clone(),
        extension_limits: plan.limits.clone(),
        prices: Prices::load(vec![folder.join("prices")]),
    })
}

impl Site {
    /// The same place for a process that comes after this one: another connection, another engine.
    pub(crate) async fn reborn(&self) -> Engine {
        engine(&self.plan, &open(self.folder.path()).await, &self.clock, self.folder.path())
    }

    /// The same with other limits.
    pub(crate) async fn reborn_with(&self, limits: BTreeMap<String, ExtensionLimits>) -> Engine {
        let plan = Blueprint { limits, ..self.plan.clone() };
        engine(&plan, &open(self.folder.path()).await, &self.clock, self.folder.path())
    }

    /// What the price list says from now on.
    pub(crate) fn reprice(&self, prices: &[(&'static str, &'static str)]) -> Engine {
        write_prices(self.folder.path(), prices);
        engine(&self.plan, &self.store, &self.clock, self.folder.path())
    }

    pub(crate) async fn create(&self) -> Result<Sandbox> {
        create(&self.engine, request()).await
    }

    pub(crate) async fn create_with(&self, change: impl FnOnce(&mut CreateRequest)) -> Result<Sandbox> {
        let mut request = request();
        change(&mut request);
        create(&self.engine, request).await
    }

    pub(crate) async fn destroy(&self, sandbox: &Sandbox) {
        self.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    }

    /// Every row that there is, the newest first.
    pub(crate) async fn rows(&self) -> Vec<Sandbox> {
        let filter = sandboxer_store::Filter { all: true, ..Default::default() };
        self.store.list(&filter, None, Default::default()).await.unwrap().items
    }

    /// The kinds of the events of a sandbox, in order.
    pub(crate) async fn story(&self, sandbox: &Sandbox) -> Vec<String> {
        let filter = EventFilter { subject: Some(sandbox.sandbox_id), owner_key: None };
        let events = self.store.events(&filter, 0, Default::default()).await.unwrap();
        let kind = |kind: &str| kind.trim_start_matches("dev.sandboxer.").to_owned();
        events.iter().map(|placed| kind(&placed.event.kind)).collect()
    }

    /// Why an extension is not used now; nothing when it is.
    pub(crate) async fn refusal(&self, extension: &str) -> Option<String> {
        let plan = self.engine.plan(&request()).await.unwrap();
        let offer = plan.route.offers.into_iter().find(|offer| offer.extension == extension)?;
        (!offer.accepted).then_some(offer.reason)
    }
}

pub(crate) fn request() -> CreateRequest {
    CreateRequest { profile: Some("profile.routed".into()), ..CreateRequest::default() }
}

pub(crate) async fn create(engine: &Engine, request: CreateRequest) -> Result<Sandbox> {
    Ok(engine.create(&me(), request, CreateOptions::default()).await?.sandbox)
}

impl Site {
    /// The rows as another engine sees them.
    pub(crate) async fn rows_of(&self, engine: &Engine) -> Vec<Sandbox> {
        let filter = sandboxer_store::Filter { all: true, ..Default::default() };
        engine.list(&me(), filter, None, Default::default()).await.unwrap().items
    }
}
