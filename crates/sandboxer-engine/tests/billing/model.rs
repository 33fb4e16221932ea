//! Random lives of sandboxes on processes that die in the middle of anything: the books are always right.
//!
//! A process is an engine with a store and a runtime of its own on the same file and backend. Its death drops the runtime,
//! and with it every step that had not been finished.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sandboxer_core::ledger::{Kind, Meter, WORLD};
use sandboxer_core::page::Limit;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::sandbox::{Sandbox, reason};
use sandboxer_core::tariff::Phase;
use sandboxer_core::{Dur, ErrorKind, Money, SandboxId, State};
use sandboxer_engine::{CreateOptions, Engine};
use sandboxer_store::sqlite::{SqliteStore, StoreOptions};
use sandboxer_store::{EventFilter, Filter, MeterFilter, Store, Transfer};
use sandboxer_testkit::{Scripted, TestClock, workshop};
use tokio::runtime::Runtime;

use crate::fixture::{ACCOUNT, PRICE, me, money};

/// Enough for about four sandboxes of the longest life.
const PAID_IN: &str = "30";

#[derive(Clone, Copy, Debug)]
enum Op {
    Create {
        ttl: u64,
        key: Option<u8>,
    },
    Extend {
        which: usize,
        by: u64,
    },
    Pause {
        which: usize,
    },
    Resume {
        which: usize,
    },
    Destroy {
        which: usize,
    },
    /// The provider lost it, and says when: so many seconds from now.
    Lose {
        which: usize,
        says: Option<i64>,
    },
    Look {
        which: usize,
    },
    Advance {
        by: u64,
    },
    PutBack {
        by: u64,
    },
    Reconcile,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    op: Op,
    /// The process dies so many microseconds into it.
    dies: Option<u64>,
    /// Which of the two processes does it.
    second: bool,
    /// What the other one does at the same moment.
    meanwhile: Option<Op>,
}

impl Op {
    /// Something that a process is asked to do.
    fn is_a_request(&self) -> bool {
        !matches!(self, Self::Advance { .. } | Self::PutBack { .. } | Self::Lose { .. })
    }
}

fn op() -> impl Strategy<Value = Op> {
    let which = 0_usize..6;
    // Nothing, the truth, or nonsense.
    let says = prop_oneof![Just(None), Just(Some(0)), (-100_000_i64..100_000).prop_map(Some)];
    prop_oneof![
        4 => (10_u64..700, proptest::option::of(0_u8..3)).prop_map(|(ttl, key)| Op::Create { ttl, key }),
        2 => (which.clone(), 1_u64..900).prop_map(|(which, by)| Op::Extend { which, by }),
        2 => which.clone().prop_map(|which| Op::Pause { which }),
        2 => which.clone().prop_map(|which| Op::Resume { which }),
        2 => which.clone().prop_map(|which| Op::Destroy { which }),
        1 => (which.clone(), says).prop_map(|(which, says)| Op::Lose { which, says }),
        2 => which.prop_map(|which| Op::Look { which }),
        4 => (1_u64..200).prop_map(|by| Op::Advance { by }),
        1 => (1_u64..100).prop_map(|by| Op::PutBack { by }),
        1 => Just(Op::Reconcile),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    let dies = prop_oneof![3 => Just(None), 1 => (0_u64..4_000).prop_map(Some)];
    let meanwhile = prop_oneof![2 => Just(None), 1 => op().prop_map(Some)];
    (op(), dies, any::<bool>(), meanwhile).prop_map(|(op, dies, second, meanwhile)| Turn {
        op,
        dies,
        second,
        meanwhile,
    })
}

struct Process {
    runtime: Runtime,
    engine: Engine,
    store: Arc<dyn Store>,
}

struct World {
    folder: tempfile::TempDir,
    extension: Scripted,
    clock: Arc<TestClock>,
    processes: [Process; 2],
    known: Vec<SandboxId>,
    /// Those that the provider lost behind everybody's back, with its word where that is the truth.
    lost: BTreeMap<SandboxId, Option<jiff::Timestamp>>,
    clock_went_back: bool,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (extension, clock) = (Scripted::default(), Arc::new(TestClock::default()));
        extension.script(|script| {
            script.checkpoints = true;
            script.provision_takes = Duration::from_micros(300);
        });
        let processes = [(); 2].map(|()| begin(&folder, &extension, &clock));
        let (known, lost) = (Vec::new(), BTreeMap::new());
        let world = Self { folder, extension, clock, processes, known, lost, clock_went_back: false };
        let transfer = Transfer {
            id: "paid in".into(),
            kind: Kind::Credit,
            from: WORLD.into(),
            to: ACCOUNT.into(),
            amount: money(PAID_IN),
            memo: String::new(),
            time: world.processes[0].engine.now(),
        };
        let first = &world.processes[0];
        first.runtime.block_on(first.store.transfer(&transfer)).unwrap();
        world
    }

    fn take(&mut self, turn: Turn) {
        match turn.op {
            Op::Advance { by } => return self.clock.advance(Dur::from_secs(by)),
            Op::PutBack { by } => {
                self.clock_went_back = true;
                return self.clock.put_back(Dur::from_secs(by));
            }
            Op::Lose { which, says } => {
                if let Some(id) = self.pick(which) {
                    self.lose(id, says);
                }
                return;
            }
            _ => {}
        }
        let index = usize::from(turn.second);
        let (op, target) = (turn.op, self.target(turn.op));
        let beside = turn.meanwhile.filter(Op::is_a_request).map(|op| {
            let (process, target) = (&self.processes[1 - index], self.target(op));
            let engine = process.engine.clone();
            process.runtime.spawn(async move { act(&engine, op, target).await })
        });
        let process = &self.processes[index];
        let engine = process.engine.clone();
        let task = process.runtime.spawn(async move { act(&engine, op, target).await });
        match turn.dies {
            None => process.runtime.block_on(task).unwrap(),
            Some(after) => {
                std::thread::sleep(Duration::from_micros(after));
                self.kill(index);
            }
        }
        if let Some(beside) = beside {
            self.processes[1 - index].runtime.block_on(beside).unwrap();
        }
        self.learn();
        self.check_books();
    }

    fn lose(&mut self, id: SandboxId, says: Option<i64>) {
        let tag = id.to_string();
        if !self.extension.living().contains(&tag) {
            return;
        }
        let now = self.processes[0].engine.now();
        let told = says.map(|seconds| now + jiff::SignedDuration::from_secs(seconds));
        match told {
            Some(told) => self.extension.end_at(&tag, told),
            None => self.extension.lose(&tag),
        }
        self.lost.insert(id, told.filter(|told| *told == now));
    }

    /// The process is gone at once, and another one takes its place and looks around.
    fn kill(&mut self, index: usize) {
        let next = begin(&self.folder, &self.extension, &self.clock);
        let dead = std::mem::replace(&mut self.processes[index], next);
        dead.runtime.shutdown_timeout(Duration::from_secs(5));
        // Nobody can tell that the owner of a lease is gone when it was this very process: leases run out instead.
        self.clock.advance(Dur::from_secs(200));
        let process = &self.processes[index];
        process.runtime.block_on(process.engine.reconcile()).unwrap();
    }

    fn target(&self, op: Op) -> Option<SandboxId> {
        match op {
            Op::Extend { which, .. }
            | Op::Pause { which }
            | Op::Resume { which }
            | Op::Destroy { which }
            | Op::Look { which } => self.pick(which),
            _ => None,
        }
    }

    fn pick(&self, which: usize) -> Option<SandboxId> {
        (!self.known.is_empty()).then(|| self.known[which % self.known.len()])
    }

    fn all(&self) -> Vec<Sandbox> {
        let process = &self.processes[0];
        let filter = Filter { all: true, ..Filter::default() };
        let page = process.store.list(&filter, None, Limit::new(Limit::MAX).unwrap());
        process.runtime.block_on(page).unwrap().items
    }

    fn learn(&mut self) {
        self.known = self.all().iter().map(|sandbox| sandbox.sandbox_id).collect();
        self.known.sort();
    }

    fn check_books(&self) {
        let process = &self.processes[0];
        let audit = process.runtime.block_on(process.store.audit()).unwrap();
        assert!(audit.wrong.is_empty(), "{:#?}", audit.wrong);
        let account = process.runtime.block_on(process.store.account(ACCOUNT)).unwrap().unwrap();
        assert!(account.balance >= Money::ZERO, "{account:?}");
    }

    /// Everything is brought to its end, and then each life is added up anew.
    fn finish(mut self) {
        // A lease of a process that died last may still run.
        self.clock.advance(Dur::from_secs(200));
        let process = &self.processes[0];
        process.runtime.block_on(async {
            process.engine.reconcile().await.unwrap();
            for sandbox in self.known.clone() {
                process.engine.destroy(&me(), sandbox).await.unwrap();
            }
        });
        self.learn();
        self.check_books();
        assert!(self.extension.living().is_empty(), "{:?}", self.extension.living());
        let mut charged = Money::ZERO;
        for sandbox in self.all() {
            assert_eq!(sandbox.state, State::Destroyed);
            charged = charged.checked_add(self.check_life(&sandbox)).unwrap();
        }
        let process = &self.processes[0];
        let account = process.runtime.block_on(process.store.account(ACCOUNT)).unwrap().unwrap();
        assert_eq!(account.held, Money::ZERO);
        assert_eq!(account.balance.checked_add(charged).unwrap(), money(PAID_IN));
        for process in self.processes {
            process.runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }

    /// What one sandbox was charged, after its intervals were found to be neither twice nor missing.
    fn check_life(&self, sandbox: &Sandbox) -> Money {
        let process = &self.processes[0];
        let id = sandbox.sandbox_id;
        let filter = MeterFilter { sandbox: Some(id), ..MeterFilter::default() };
        let meters = process.store.meters(&filter, None, Limit::new(Limit::MAX).unwrap());
        let meters: Vec<Meter> = process.runtime.block_on(meters).unwrap().items;
        let cost = sandbox.cost.as_ref().unwrap_or_else(|| panic!("{id} ended without its cost"));
        let mut intervals: BTreeMap<u32, &Meter> = BTreeMap::new();
        for meter in &meters {
            assert!(
                intervals.insert(meter.sequence, meter).is_none(),
                "one meter is charged at a time: {meters:#?}"
            );
        }
        assert!(intervals.keys().copied().eq(1..=intervals.len() as u32), "{intervals:#?}");
        let mut sum = Money::ZERO;
        let mut last_end = None;
        for meter in intervals.values() {
            let end = meter.ended_at.unwrap_or_else(|| panic!("an interval that never ended: {meter:?}"));
            let start = last_end.or(sandbox.ready_at).unwrap();
            assert!(meter.started_at >= start, "{intervals:#?}");
            assert!(self.clock_went_back || meter.started_at == start, "time is missing: {intervals:#?}");
            let rate = if meter.state == Phase::Running { 10_000 } else { 1_000 };
            let time = end.as_millisecond() - meter.started_at.as_millisecond();
            assert_eq!(meter.cost.nanos(), i128::from(time) * rate, "{meter:?}");
            sum = sum.checked_add(meter.cost).unwrap();
            last_end = Some(end);
        }
        assert_eq!(sandbox.ready_at.is_some(), !intervals.is_empty());
        assert_eq!(cost.upstream, sum);
        assert_eq!(cost.charged, sum.min(cost.quoted), "{cost:?}");
        assert!(self.clock_went_back || cost.absorbed == Money::ZERO, "the hold was too small: {cost:?}");
        if let (Some(end), Some(reason::REQUESTED)) = (last_end, sandbox.reason.as_deref()) {
            let asked = self.asked_at(id).min(sandbox.expires_at);
            let is_right = if self.lost.contains_key(&id) { end <= asked } else { end == asked };
            assert!(self.clock_went_back || is_right, "{end} is not {asked}");
        }
        // What the provider had lost is charged until it was last seen alive, or until the moment that it says.
        if let (Some(Some(told)), Some(last)) = (self.lost.get(&id), intervals.values().next_back()) {
            let right = (*told).max(last.started_at).min(sandbox.expires_at.max(last.started_at));
            assert!(self.clock_went_back || last.ended_at == Some(right), "{last:?} did not end at {right}");
        }
        cost.charged
    }

    fn asked_at(&self, id: SandboxId) -> jiff::Timestamp {
        let process = &self.processes[0];
        let filter = EventFilter { subject: Some(id), owner_key: None };
        let events = process.store.events(&filter, 0, Limit::new(Limit::MAX).unwrap());
        let events = process.runtime.block_on(events).unwrap();
        events.iter().find(|placed| placed.event.kind.ends_with(".destroying")).unwrap().event.time
    }
}

fn begin(folder: &tempfile::TempDir, extension: &Scripted, clock: &Arc<TestClock>) -> Process {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let path = folder.path().join("model.db");
    let store: Arc<dyn Store> =
        Arc::new(runtime.block_on(SqliteStore::open(&path, StoreOptions::default())).unwrap());
    let engine = workshop::engine_over(store.clone(), extension, clock, PRICE);
    Process { runtime, engine, store }
}

/// One step. What is refused is refused for a reason that can be.
async fn act(engine: &Engine, op: Op, target: Option<SandboxId>) {
    let caller = me();
    let outcome = match (op, target) {
        (Op::Create { ttl, key }, _) => {
            // A key comes back with the same request.
            let ttl = if key.is_some() { 300 } else { ttl };
            let request = CreateRequest { ttl: Some(Dur::from_secs(ttl)), ..CreateRequest::default() };
            let idempotency_key = key.map(|key| format!("key {key}"));
            let options = CreateOptions { idempotency_key, ..CreateOptions::default() };
            engine.create(&caller, request, options).await.map(drop)
        }
        (Op::Extend { by, .. }, Some(id)) => {
            engine.extend_ttl(&caller, id, Dur::from_secs(by)).await.map(drop)
        }
        (Op::Pause { .. }, Some(id)) => engine.pause(&caller, id).await.map(drop),
        (Op::Resume { .. }, Some(id)) => engine.resume(&caller, id).await.map(drop),
        (Op::Destroy { .. }, Some(id)) => engine.destroy(&caller, id).await.map(drop),
        (Op::Look { .. }, Some(id)) => engine.get(&caller, id).await.map(drop),
        (Op::Reconcile, _) => engine.reconcile().await.map(drop),
        _ => Ok(()),
    };
    if let Err(error) = outcome {
        let expected = [
            ErrorKind::InsufficientCredits,
            ErrorKind::IllegalState,
            ErrorKind::TtlAboveMax,
            ErrorKind::Conflict,
        ];
        assert!(expected.contains(&error.kind()), "{op:?}: {error:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_books_are_right_whatever_happens(
        turns in proptest::collection::vec(turn(), 1..30),
        clock_may_go_back in proptest::bool::weighted(0.3),
    ) {
        let mut world = World::new();
        for turn in turns {
            if matches!(turn.op, Op::PutBack { .. }) && !clock_may_go_back {
                continue;
            }
            world.take(turn);
        }
        world.finish();
    }
}
