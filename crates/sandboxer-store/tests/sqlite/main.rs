//! The suite on SQLite, and what only a file has: opening it, and several processes on it.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "../suite/mod.rs"]
mod suite;

mod hubs;
mod ledger;
mod opening;
mod processes;

use std::sync::Arc;

use async_trait::async_trait;
use proptest::prelude::*;
use sandboxer_store::{SqliteStore, Store, StoreOptions};
use suite::Place;
use suite::fixture::{SINKS, SOURCE};
use suite::{ledger_model, model};

struct File {
    directory: tempfile::TempDir,
    sinks: Vec<String>,
}

impl File {
    fn new(sinks: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, sinks: sinks.iter().map(ToString::to_string).collect() }
    }
}

#[async_trait]
impl Place for File {
    async fn open(&self) -> Arc<dyn Store> {
        let options = StoreOptions {
            source: SOURCE.into(),
            hubs: self.sinks.iter().map(|sink| sink.as_str().into()).collect(),
        };
        Arc::new(SqliteStore::open(&self.directory.path().join("store.db"), options).await.unwrap())
    }
}

whole_suite!(crate::File::new(&crate::SINKS));

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_agrees_with_the_model(ops in proptest::collection::vec(model::op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(model::run(&File::new(&SINKS[..1]), &ops));
    }

    #[test]
    fn any_history_of_the_books_agrees_with_the_model(
        ops in proptest::collection::vec(ledger_model::op(), 1..80),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(ledger_model::run(&File::new(&[]), &ops));
    }
}
