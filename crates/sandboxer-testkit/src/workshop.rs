//! An engine over a real store in a folder of its own, with a scripted extension and a clock that stands still.

use std::sync::Arc;

use sandboxer_core::{Registry, Result};
use sandboxer_engine::catalog::{Catalog, CatalogSources};
use sandboxer_engine::prices::Prices;
use sandboxer_engine::{Engine, Limits, Parts, Sink};
use sandboxer_store::Store;
use sandboxer_store::sqlite::{SqliteStore, StoreOptions};

use crate::{Scripted, TestClock};

/// Everything a test of the engine needs; removed when it is dropped.
pub struct Workshop {
    pub engine: Engine,
    pub store: Arc<dyn Store>,
    pub extension: Scripted,
    pub clock: Arc<TestClock>,
    pub folder: tempfile::TempDir,
}

impl Workshop {
    pub async fn new() -> Result<Self> {
        Self::with(Limits::default(), Vec::new()).await
    }

    pub async fn with(limits: Limits, sinks: Vec<Arc<dyn Sink>>) -> Result<Self> {
        let folder = tempfile::tempdir().map_err(|source| {
            sandboxer_core::Error::new(sandboxer_core::ErrorKind::Internal, "no temporary folder")
                .with_source(source)
        })?;
        let (extension, clock) = (Scripted::default(), Arc::new(TestClock::default()));
        let outlets = sinks.iter().map(|sink| sink.outlet()).collect();
        let options = StoreOptions { source: "test".into(), hubs: outlets };
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&folder.path().join("test.db"), options).await?);
        let engine = build(store.clone(), &extension, &clock, limits, sinks, Prices::default());
        Ok(Self { engine, store, extension, clock, folder })
    }

    /// One in which the scripted extension has this price.
    pub async fn priced(price: &str) -> Result<Self> {
        let mut workshop = Self::new().await?;
        workshop.engine = workshop.engine_with_prices(price);
        Ok(workshop)
    }

    /// Another engine over the same store and backend, with this price.
    pub fn engine_with_prices(&self, price: &str) -> Engine {
        engine_over(self.store.clone(), &self.extension, &self.clock, price)
    }

    /// Another engine over the same store and backend, as a second server would be.
    pub fn second_engine(&self) -> Engine {
        let prices = self.engine.prices().clone();
        build(self.store.clone(), &self.extension, &self.clock, Limits::default(), Vec::new(), prices)
    }
}

/// An engine on a store with the scripted extension at this price.
pub fn engine_over(
    store: Arc<dyn Store>,
    extension: &Scripted,
    clock: &Arc<TestClock>,
    price: &str,
) -> Engine {
    let prices = Prices::of_texts(&[("price.yaml", price)]);
    build(store, extension, clock, Limits::default(), Vec::new(), prices)
}

fn build(
    store: Arc<dyn Store>,
    extension: &Scripted,
    clock: &Arc<TestClock>,
    limits: Limits,
    sinks: Vec<Arc<dyn Sink>>,
    prices: Prices,
) -> Engine {
    let mut registry = Registry::default();
    registry.register(Arc::new(extension.clone()));
    let catalog = Catalog::load(&CatalogSources::default());
    Engine::new(Parts {
        store,
        registry,
        catalog,
        clock: clock.clone(),
        limits,
        host: None,
        sinks,
        prices,
        route: Default::default(),
        extension_limits: Default::default(),
    })
}
