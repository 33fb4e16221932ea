//! The API with a full store, and in the same rounds with a nearly empty one.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::contender::{Chance, Contender, Record, Table, take_turns, timed};
use crate::memory::each;
use crate::server::{Api, Server, WarmPool};
use crate::volume;

/// Alive in each of the two stores while the figures are taken, and the length of a page.
pub(crate) const PAGE: usize = 100;
/// Real sandboxes that lived and ended, for the copies to be made from.
const MODELS: usize = 20;

pub(crate) struct Sizes {
    pub(crate) stored: usize,
    pub(crate) reads: usize,
    pub(crate) creates: usize,
}

pub(crate) fn run(binary: &Path, folder: &Path, sizes: &Sizes) -> Result<Table> {
    let (small_home, full_home) = (folder.join("small"), folder.join("full"));
    let ended = {
        let server = Server::start(binary, &full_home, WarmPool::Usual)?;
        make_models(&server)?
    };
    crate::report::note(&format!("storing {} sandboxes", sizes.stored));
    let stored = volume::fill(&full_home, sizes.stored)?;
    ensure!(stored.len() == sizes.stored && !ended.is_empty(), "the store was not filled");

    let small = Server::start(binary, &small_home, WarmPool::Usual)?;
    let full = Server::start(binary, &full_home, WarmPool::Usual)?;
    let small_ended = make_models(&small)?;
    let (small_living, full_living) = (living(&small)?, living(&full)?);
    let mut reads: Vec<Box<dyn Contender>> = vec![
        Box::new(Reads::new(&small, SMALL, small_living.clone(), small_ended)?),
        Box::new(Reads::new(&full, FULL, full_living.clone(), stored)?),
    ];
    let mut table = take_turns(&mut reads, 5, sizes.reads)?;
    // Afterwards: what a create leaves to be done would be in the figures of the reads.
    let mut creates: Vec<Box<dyn Contender>> = vec![
        Box::new(Creates { api: small.api()?, name: "create_small" }),
        Box::new(Creates { api: full.api()?, name: "create_full" }),
    ];
    table.append(&mut take_turns(&mut creates, 5, sizes.creates)?);
    each(&small, &small_living, |api, id| api.destroy(id))?;
    each(&full, &full_living, |api, id| api.destroy(id))?;
    Ok(table)
}

fn make_models(server: &Server) -> Result<Vec<String>> {
    let models: Vec<()> = vec![(); MODELS];
    each(server, &models, |api, ()| {
        let id = api.create()?;
        api.exec_true(&id)?;
        api.destroy(&id)?;
        Ok(id)
    })
}

fn living(server: &Server) -> Result<Vec<String>> {
    let wanted: Vec<()> = vec![(); PAGE];
    each(server, &wanted, |api, ()| api.create())
}

/// What a store's figures are called.
struct Names {
    health: &'static str,
    get_living: &'static str,
    get_ended: &'static str,
    page_living: &'static str,
    page_all: &'static str,
}

const SMALL: Names = Names {
    health: "health_small",
    get_living: "get_living_small",
    get_ended: "get_ended_small",
    page_living: "page_living_small",
    page_all: "page_all_small",
};
const FULL: Names = Names {
    health: "health_full",
    get_living: "get_living_full",
    get_ended: "get_ended_full",
    page_living: "page_living_full",
    page_all: "page_all_full",
};

struct Reads {
    api: Api,
    names: Names,
    living: Vec<String>,
    ended: Vec<String>,
    chance: Chance,
}

impl Reads {
    fn new(server: &Server, names: Names, living: Vec<String>, ended: Vec<String>) -> Result<Self> {
        Ok(Self { api: server.api()?, names, living, ended, chance: Chance::new() })
    }

    fn page(&mut self, path: &str) -> Result<std::time::Duration> {
        let (answer, took) = timed(|| self.api.client.get(path))?;
        let page = answer.expect(200)?;
        let items = page["items"].as_array().context("a page without items")?.len();
        ensure!(items == PAGE, "a page of {items} instead of {PAGE} for {path}");
        Ok(took)
    }

    fn one(&mut self, id: &str) -> Result<std::time::Duration> {
        let (answer, took) = timed(|| self.api.client.get(&format!("/v1/sandboxes/{id}")))?;
        ensure!(answer.expect(200)?["sandbox_id"] == id, "another sandbox than {id}");
        Ok(took)
    }
}

impl Contender for Reads {
    fn name(&self) -> &'static str {
        "reads over HTTP"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        let (answer, took) = timed(|| self.api.client.get("/healthz"))?;
        ensure!(answer.status == 200, "/healthz said {}", answer.status);
        record(self.names.health, took);
        let id = self.living[self.chance.below(self.living.len())].clone();
        record(self.names.get_living, self.one(&id)?);
        let id = self.ended[self.chance.below(self.ended.len())].clone();
        record(self.names.get_ended, self.one(&id)?);
        record(self.names.page_living, self.page(&format!("/v1/sandboxes?limit={PAGE}"))?);
        record(self.names.page_all, self.page(&format!("/v1/sandboxes?all=true&limit={PAGE}"))?);
        Ok(())
    }

    fn rest(&self) -> std::time::Duration {
        std::time::Duration::from_millis(1)
    }
}

struct Creates {
    api: Api,
    name: &'static str,
}

impl Contender for Creates {
    fn name(&self) -> &'static str {
        self.name
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        let (id, took) = timed(|| self.api.create())?;
        self.api.destroy(&id)?;
        record(self.name, took);
        Ok(())
    }

    /// As for the other creates: the server makes the next one in advance.
    fn rest(&self) -> std::time::Duration {
        std::time::Duration::from_millis(50)
    }
}
