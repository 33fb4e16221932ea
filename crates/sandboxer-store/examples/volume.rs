//! Fills a store with 100,000 sandboxes through its own interface and prints what the hot operations cost then.
//!
//! `cargo run --release -p sandboxer-store --example volume [-- count]`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for people, not a program")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sandboxer_core::event::NewEvent;
use sandboxer_core::page::Limit;
use sandboxer_core::profile::Scope;
use sandboxer_core::sandbox::{Links, Quote, Sandbox, SandboxRecord};
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, SandboxId, State};
use sandboxer_store::{
    Books, EventFilter, Filter, Insert, Inserted, Lease, LeaseChange, SqliteStore, Step, Store, StoreOptions,
    Stored, Update,
};

const ROUNDS: usize = 2_000;

fn record(turn: usize, now: Timestamp) -> SandboxRecord {
    let id = SandboxId::generate();
    let controls =
        ["user", "mount", "pid", "net", "ipc", "uts", "cgroup", "seccomp", "landlock", "capabilities"];
    let controls = controls.map(|name| sandboxer_core::isolation::Control {
        name: name.into(),
        outcome: sandboxer_core::isolation::Outcome::Enforced,
        detail: "as the profile asks".into(),
    });
    let labels = [("team", format!("team-{}", turn % 10)), ("run", format!("run-{}", turn / 20))];
    SandboxRecord {
        sandbox: Sandbox {
            sandbox_id: id,
            state: State::Requested,
            profile: "profile.agent-dev@1.0.0".into(),
            extension: "ext.native".into(),
            host: "local".into(),
            scope: Scope::Session,
            reused: false,
            isolation: sandboxer_core::isolation::IsolationReport {
                controls: controls.to_vec(),
                ..Default::default()
            },
            reachability: None,
            ttl: Dur::from_secs(3_600),
            idle_reap: None,
            created_at: now,
            ready_at: None,
            expires_at: Dur::from_secs(3_600).after(now),
            destroyed_at: None,
            labels: labels.map(|(name, value)| (name.to_owned(), value)).into(),
            consumer: Default::default(),
            workspace: Default::default(),
            quote: Quote::self_hosted(),
            cost: None,
            reason: None,
            failure: None,
            cleanup: None,
            drift: None,
            config_hash: "0f".repeat(32),
            route: Default::default(),
            links: Links::of(id),
        },
        spec: SandboxSpec {
            profile: "profile.agent-dev@1.0.0".into(),
            variables: BTreeMap::from([("LANG".into(), "C.UTF-8".into())]),
            ..SandboxSpec::default()
        },
        handle: None,
        reuse_key: None,
        owner_key: Some(format!("key_{}", turn % 100)),
        bill: None,
    }
}

fn step(to: State, now: Timestamp) -> Step {
    Step {
        to,
        event: NewEvent::transition(to, now, serde_json::json!({"profile": "profile.agent-dev@1.0.0"})),
    }
}

async fn create(store: &SqliteStore, turn: usize, now: Timestamp) -> Stored {
    let mut record = record(turn, now);
    record.sandbox.state = State::Provisioning;
    let steps = vec![step(State::Requested, now), step(State::Provisioning, now)];
    let lease = Lease { owner: "host/boot/1/1".into(), until: now };
    let insert =
        Insert { record, steps, lease, idempotency: None, facts: Vec::new(), books: Books::default() };
    let Inserted::New(stored) = store.insert(insert).await.unwrap() else { panic!("not new") };
    stored
}

async fn go(store: &SqliteStore, stored: Stored, steps: &[State], now: Timestamp) -> Stored {
    let mut record = stored.record;
    record.sandbox.state = *steps.last().unwrap();
    let steps = steps.iter().map(|to| step(*to, now)).collect();
    let update = Update {
        record,
        expected_version: stored.version,
        steps,
        facts: Vec::new(),
        lease: LeaseChange::Release,
        books: Books::default(),
    };
    store.update(update).await.unwrap()
}

fn row(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    println!("{name:<44} {:>9.0} {:>9.0} {:>9.0}", at(0.5), at(0.99), at(1.0));
}

async fn measure<T>(name: &str, rounds: usize, mut one: impl AsyncFnMut(usize) -> T) {
    let mut times = Vec::with_capacity(rounds);
    for turn in 0..rounds {
        let start = Instant::now();
        let value = one(turn).await;
        times.push(start.elapsed());
        drop(value);
    }
    row(name, times);
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let count = std::env::args().nth(1).map_or(100_000, |text| text.parse().unwrap());
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let options = StoreOptions { source: "sandboxer/volume".into(), hubs: Vec::new() };
    let store = SqliteStore::open(&path, options.clone()).await.unwrap();
    let now = Timestamp::now();
    let start = Instant::now();
    let mut ids = Vec::with_capacity(count);
    for turn in 0..count {
        let stored = create(&store, turn, now).await;
        ids.push(stored.record.id());
        let ready = go(&store, stored, &[State::Ready], now).await;
        // One in a hundred lives on.
        if turn % 100 != 0 {
            go(&store, ready, &[State::Destroying, State::Destroyed], now).await;
        }
    }
    let size = std::fs::metadata(&path).unwrap().len() / 1_048_576;
    println!("{count} sandboxes in {:.1} s, {size} MiB\n", start.elapsed().as_secs_f64());
    println!("{:<44} {:>9} {:>9} {:>9}", "microseconds", "p50", "p99", "max");

    let pick = |turn: usize| ids[turn.wrapping_mul(7_919) % ids.len()];
    let page = Limit::DEFAULT;
    let all = Filter { all: true, ..Filter::default() };
    let label = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    measure("get by id", ROUNDS, async |turn| store.get(pick(turn)).await.unwrap().unwrap()).await;
    measure("page of 100, living", ROUNDS, async |_| {
        store.list(&Filter::default(), None, page).await.unwrap()
    })
    .await;
    measure("page of 100, all, from anywhere", ROUNDS, async |turn| {
        let cursor = pick(turn).to_string().replacen("sbx_", "p1", 1);
        store.list(&all, Some(&cursor), page).await.unwrap()
    })
    .await;
    let filter = Filter { labels: label("team", "team-3"), ..all.clone() };
    measure("page of 100, label on 10,000", ROUNDS, async |_| store.list(&filter, None, page).await.unwrap())
        .await;
    let filter = Filter { labels: label("run", "run-77"), ..all.clone() };
    measure("page of one label on 20", ROUNDS, async |_| store.list(&filter, None, page).await.unwrap())
        .await;
    let filter = Filter { labels: label("team", "team-0"), ..Filter::default() };
    measure("page of 100, label, living", ROUNDS, async |_| store.list(&filter, None, page).await.unwrap())
        .await;
    let mut labels = label("team", "team-3");
    labels.extend(label("run", "run-77"));
    let filter = Filter { labels, ..all.clone() };
    measure("page of two labels", ROUNDS, async |_| store.list(&filter, None, page).await.unwrap()).await;
    let filter = Filter { owner_key: Some("key_7".into()), ..all };
    measure("page of 100, owner", ROUNDS, async |_| store.list(&filter, None, page).await.unwrap()).await;
    measure("last position", ROUNDS, async |_| store.last_position().await.unwrap()).await;
    measure("overdue, none", ROUNDS, async |_| store.overdue(now).await.unwrap()).await;
    measure("events of one sandbox", ROUNDS, async |turn| {
        let filter = EventFilter { subject: Some(pick(turn)), owner_key: None };
        store.events(&filter, 0, page).await.unwrap()
    })
    .await;
    measure("insert + 2 updates", ROUNDS, async |turn| {
        let ready = go(&store, create(&store, turn, now).await, &[State::Ready], now).await;
        go(&store, ready, &[State::Active], now).await
    })
    .await;
    // Kept, because a connection that closes at the same moment makes the next one wait for a millisecond.
    let mut kept = Vec::new();
    measure("open beside others", 200, async |_| {
        kept.push(SqliteStore::open(&path, options.clone()).await.unwrap());
    })
    .await;
    for store in kept {
        store.close().await;
    }
    store.close().await;
    measure("open, get and close, nobody else", 200, async |turn| {
        let store = SqliteStore::open(&path, options.clone()).await.unwrap();
        store.get(pick(turn)).await.unwrap();
        store.close().await;
    })
    .await;
}
