//! Measures the books: transfers of many callers, holds with their settlements, and what it costs to ask for a balance.
//!
//! `cargo run --release -p sandboxer-store --example ledger [-- transfers]`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for people, not a program")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sandboxer_core::bill::Settlement;
use sandboxer_core::event::NewEvent;
use sandboxer_core::ledger::{Kind, Meter, Payer, Period, WORLD};
use sandboxer_core::profile::Scope;
use sandboxer_core::sandbox::{Links, Quote, Sandbox, SandboxRecord};
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::tariff::Phase;
use sandboxer_core::{Actor, Dur, Money, SandboxId, State};
use sandboxer_store::{
    Books, EntryFilter, Hold, Insert, Inserted, Lease, LeaseChange, Ledger as _, Settle, SqliteStore, Step,
    Store as _, StoreOptions, Stored, Told, Transfer, Update,
};

const CALLERS: usize = 64;
const ACCOUNT: &str = "workspace:acme/research";

fn payer() -> Payer {
    Payer {
        organisation: "acme".into(),
        workspace: "research".into(),
        key: None,
        actor: Actor::Agt,
        profile: "profile.agent-dev".into(),
    }
}

fn record(now: Timestamp) -> SandboxRecord {
    let id = SandboxId::generate();
    SandboxRecord {
        sandbox: Sandbox {
            sandbox_id: id,
            state: State::Provisioning,
            profile: "profile.agent-dev@1.0.0".into(),
            extension: "ext.saas-stub".into(),
            host: "local".into(),
            scope: Scope::Session,
            reused: false,
            isolation: Default::default(),
            reachability: None,
            ttl: Dur::from_secs(3_600),
            idle_reap: None,
            created_at: now,
            ready_at: None,
            expires_at: Dur::from_secs(3_600).after(now),
            destroyed_at: None,
            labels: Default::default(),
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
        spec: SandboxSpec { profile: "profile.agent-dev@1.0.0".into(), ..SandboxSpec::default() },
        handle: None,
        reuse_key: None,
        owner_key: None,
        bill: None,
    }
}

fn step(to: State, now: Timestamp) -> Step {
    Step { to, event: NewEvent::transition(to, now, serde_json::json!({})) }
}

fn meters(id: SandboxId, now: Timestamp, ended_at: Option<Timestamp>) -> Vec<Meter> {
    let meter = |name: &str| Meter {
        sandbox_id: id,
        meter: name.into(),
        sequence: 1,
        extension: "ext.saas-stub".into(),
        state: Phase::Running,
        what: "2 vCPU at 0.000014 USD/s, reserved".into(),
        price: "ext.saas-stub 2026-01-01".into(),
        started_at: now,
        ended_at,
        alive_at: now,
        time: Dur::ZERO,
        cost: Money::ZERO,
        assumed: false,
    };
    vec![meter("vcpu"), meter("memory")]
}

async fn create(store: &SqliteStore, now: Timestamp, charged: bool) -> Stored {
    let hold = Hold { payer: payer(), amount: Money::from_nanos(83_000_000), at: now };
    let books = if charged { Books { hold: Some(hold), ..Books::default() } } else { Books::default() };
    let insert = Insert {
        record: record(now),
        steps: vec![step(State::Requested, now), step(State::Provisioning, now)],
        lease: Lease { owner: "host/boot/1/1".into(), until: now },
        idempotency: None,
        facts: Vec::new(),
        books,
    };
    let Inserted::New(stored) = store.insert(insert).await.unwrap() else { panic!("not new") };
    stored
}

async fn go(store: &SqliteStore, stored: Stored, steps: &[State], now: Timestamp, books: Books) -> Stored {
    let mut record = stored.record;
    record.sandbox.state = *steps.last().unwrap();
    let steps = steps.iter().map(|to| step(*to, now)).collect();
    let lease = LeaseChange::Release;
    let expected_version = stored.version;
    store.update(Update { record, expected_version, steps, facts: Vec::new(), lease, books }).await.unwrap()
}

/// One whole life: the hold, the meters, the settlement; or the same without any of them.
async fn life(store: &SqliteStore, now: Timestamp, charged: bool) {
    let stored = create(store, now, charged).await;
    let id = stored.record.id();
    let of = |books: Books| if charged { books } else { Books::default() };
    let running = of(Books { meters: meters(id, now, None), ..Books::default() });
    let ready = go(store, stored, &[State::Ready], now, running).await;
    let settlement = Settlement { upstream: Money::from_nanos(1_000_000), fee: Money::from_nanos(50_000) };
    let told = Told { extension: "ext.saas-stub".into(), ..Told::default() };
    let settle = Settle { payer: payer(), settlement, at: now, told };
    let over = of(Books { hold: None, meters: meters(id, now, Some(now)), settle: Some(settle) });
    go(store, ready, &[State::Destroying, State::Destroyed], now, over).await;
}

fn row(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    println!("{name:<44} {:>9.0} {:>9.0} {:>9.0}", at(0.5), at(0.99), at(1.0));
    if name == "balance" {
        println!("figure ledger_balance_p99_us {:.1}", at(0.99));
    }
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

fn transfer(id: String, amount: i128) -> Transfer {
    Transfer {
        id,
        kind: Kind::Credit,
        from: WORLD.into(),
        to: ACCOUNT.into(),
        amount: Money::from_nanos(amount),
        memo: "invoice 7".into(),
        time: Timestamp::now(),
    }
}

/// So many transfers, by many callers who each wait for their own before they ask for the next.
async fn transfers(store: &Arc<SqliteStore>, name: &str, callers: usize, count: usize) {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let (store, name) = (Arc::clone(store), name.to_owned());
        tasks.spawn(async move {
            for turn in 0..count / callers {
                store.transfer(&transfer(format!("{name} {caller} {turn}"), 1_000_000_000)).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let seconds = start.elapsed().as_secs_f64();
    let made = count / callers * callers;
    println!("{made} transfers by {callers} callers: {:.0} per second", made as f64 / seconds);
    if callers == CALLERS {
        println!("figure ledger_transfers_per_second {:.0}", made as f64 / seconds);
    }
}

#[tokio::main]
async fn main() {
    let count = std::env::args().nth(1).map_or(50_000, |text| text.parse().unwrap());
    let home = tempfile::tempdir().unwrap();
    let options = StoreOptions { source: "sandboxer/ledger".into(), hubs: Vec::new() };
    let store = Arc::new(SqliteStore::open(&home.path().join("store.db"), options).await.unwrap());
    let now = Timestamp::now();

    transfers(&store, "one", 1, count / 20).await;
    transfers(&store, "some", 8, count / 4).await;
    transfers(&store, "many", CALLERS, count).await;
    store
        .budget("actor:acme/agt", Period::Month, Some(Money::from_nanos(1_000_000_000_000_000)))
        .await
        .unwrap();

    for charged in [false, true] {
        let lives = 2_000;
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                for _ in 0..lives / 8 {
                    life(&store, now, charged).await;
                }
            });
        }
        tasks.join_all().await;
        let with = if charged { "with hold, meters and settlement" } else { "without books" };
        let rate = f64::from(lives) / start.elapsed().as_secs_f64();
        println!("{lives} lives {with}: {rate:.0} per second");
        if charged {
            println!("figure ledger_charged_lives_per_second {rate:.0}");
        }
    }

    let audit = store.audit().await.unwrap();
    println!("\n{} transactions, {} entries, {} wrong", audit.transactions, audit.entries, audit.wrong.len());
    println!("{:<44} {:>9} {:>9} {:>9}", "microseconds", "p50", "p99", "max");
    measure("balance", 5_000, async |_| store.account(ACCOUNT).await.unwrap().unwrap()).await;
    measure("page of 100 entries, from anywhere", 500, async |turn| {
        let filter = EntryFilter { account: Some(ACCOUNT.into()), ..EntryFilter::default() };
        store.entries(&filter, (turn as i64 * 7_919) % 100_000, Default::default()).await.unwrap()
    })
    .await;
    measure("budgets", 500, async |_| store.budgets(now).await.unwrap()).await;
    measure("create without books", 1_000, async |_| create(&store, now, false).await).await;
    measure("create with a hold", 1_000, async |_| create(&store, now, true).await).await;
    measure("audit", 5, async |_| store.audit().await.unwrap()).await;
}
