//! Random histories, compared with a model in memory after every operation.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;
use sandboxer_core::page::Limit;
use sandboxer_core::{ErrorKind, SandboxId, State};
use sandboxer_store::{EventFilter, Filter, Inserted, Store};

use super::Place;
use super::fixture::*;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Steps from nothing, legal or not, for one of a few reuse keys and configurations.
    Insert {
        steps: Vec<State>,
        reuse: Option<u8>,
        config: u8,
    },
    /// Steps of an existing sandbox, legal or not, from its version or an older one.
    Update {
        which: Index,
        steps: Vec<State>,
        stale: bool,
    },
    Claim {
        max: u32,
    },
    Done {
        which: Index,
    },
    Retry {
        which: Index,
        wait: i64,
    },
    Wait {
        seconds: i64,
    },
    Prune,
    /// The rest happens through another user of the same data.
    Reopen,
}

fn state() -> impl Strategy<Value = State> {
    proptest::sample::select(State::ALL.to_vec())
}

/// Mostly legal, so that histories get somewhere.
fn first_steps() -> impl Strategy<Value = Vec<State>> {
    prop_oneof![8 => state().prop_map(way_to), 1 => proptest::collection::vec(state(), 0..4)]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (first_steps(), proptest::option::of(0..2_u8), 0..2_u8)
            .prop_map(|(steps, reuse, config)| Op::Insert { steps, reuse, config }),
        8 => (any::<Index>(), proptest::collection::vec(state(), 0..3), proptest::bool::weighted(0.1))
            .prop_map(|(which, steps, stale)| Op::Update { which, steps, stale }),
        4 => (1..5_u32).prop_map(|max| Op::Claim { max }),
        4 => any::<Index>().prop_map(|which| Op::Done { which }),
        2 => (any::<Index>(), 0..40_i64).prop_map(|(which, wait)| Op::Retry { which, wait }),
        2 => (1..40_i64).prop_map(|seconds| Op::Wait { seconds }),
        1 => Just(Op::Prune),
        1 => Just(Op::Reopen),
    ]
}

#[derive(Debug)]
struct Known {
    id: SandboxId,
    version: u64,
    path: Vec<State>,
    reuse: Option<u8>,
    config: u8,
}

impl Known {
    fn state(&self) -> State {
        *self.path.last().expect("a first step")
    }

    fn reusable(&self) -> bool {
        use State::*;
        matches!(self.state(), Requested | Provisioning | Ready | Active | Paused)
    }
}

#[derive(Clone, Debug)]
struct Pending {
    subject: SandboxId,
    sequence: u64,
    next_at: i64,
    attempts: u32,
    /// Known once it was claimed.
    id: Option<i64>,
}

#[derive(Default)]
pub(crate) struct Model {
    now: i64,
    known: Vec<Known>,
    /// In the order of their events.
    outbox: Vec<Pending>,
}

fn is_legal(from: Option<State>, steps: &[State]) -> bool {
    let mut state = from;
    steps.iter().all(|&to| {
        let legal = state.map_or(to == State::Requested, |state| state.can_become(to));
        state = Some(to);
        legal
    })
}

impl Model {
    fn enqueue(&mut self, subject: SandboxId, sequences: std::ops::RangeInclusive<usize>) {
        self.outbox.extend(sequences.map(|sequence| Pending {
            subject,
            sequence: sequence as u64,
            next_at: 0,
            attempts: 0,
            id: None,
        }));
    }

    async fn insert(&mut self, store: &dyn Store, steps: &[State], reuse: Option<u8>, config: u8) {
        let mut record = record();
        record.reuse_key = reuse.map(|key| format!("shared/{key}"));
        record.sandbox.config_hash = format!("config-{config}");
        record.sandbox.state = steps.last().copied().unwrap_or(State::Requested);
        let mut wanted = insert(record.clone(), State::Requested);
        wanted.record = record.clone();
        wanted.steps = steps.iter().copied().map(step).collect();
        let outcome = store.insert(wanted).await;
        if steps.is_empty() || !is_legal(None, steps) {
            let kind = outcome.unwrap_err().kind();
            let expected = if steps.is_empty() { ErrorKind::Internal } else { ErrorKind::IllegalState };
            assert_eq!(kind, expected);
            return;
        }
        let twin = self
            .known
            .iter()
            .find(|k| reuse.is_some() && k.reuse == reuse && k.config == config && k.reusable());
        match (outcome.unwrap(), twin) {
            (Inserted::Reusable(found), Some(twin)) => assert_eq!(found.record.id(), twin.id),
            (Inserted::New(new), None) => {
                assert_eq!(new.record, record);
                self.enqueue(record.id(), 1..=steps.len());
                self.known.push(Known { id: record.id(), version: 1, path: steps.to_vec(), reuse, config });
            }
            (outcome, twin) => panic!("{outcome:?} with {twin:?} there"),
        }
    }

    async fn update(&mut self, store: &dyn Store, which: Index, steps: &[State], stale: bool) {
        if self.known.is_empty() {
            return;
        }
        let place = which.index(self.known.len());
        let known = &mut self.known[place];
        let mut stored = store.get(known.id).await.unwrap().unwrap();
        stored.version -= u64::from(stale);
        let outcome = store.update(change(&stored, steps)).await;
        if stale || !is_legal(Some(known.state()), steps) {
            let expected = if stale { ErrorKind::Conflict } else { ErrorKind::IllegalState };
            assert_eq!(outcome.unwrap_err().kind(), expected);
            return;
        }
        known.version += 1;
        assert_eq!(outcome.unwrap().version, known.version);
        let first = known.path.len() + 1;
        known.path.extend(steps);
        let (id, last) = (known.id, known.path.len());
        self.enqueue(id, first..=last);
    }

    /// Where the oldest pending row of each sandbox is, if it is due.
    fn due(&self) -> Vec<usize> {
        let is_head = |place: usize| {
            !self.outbox[..place].iter().any(|before| before.subject == self.outbox[place].subject)
        };
        let mut out: Vec<usize> = (0..self.outbox.len())
            .filter(|&place| is_head(place) && self.outbox[place].next_at <= self.now)
            .collect();
        out.sort_by_key(|&place| (self.outbox[place].next_at, place));
        out
    }

    async fn claim(&mut self, store: &dyn Store, max: u32) {
        let found = store.outbox_claim(SINKS[0], "a", at(self.now), at(self.now + 30), max).await.unwrap();
        let due: Vec<usize> = self.due().into_iter().take(max as usize).collect();
        let expected: Vec<_> = due
            .iter()
            .map(|&p| (self.outbox[p].subject, self.outbox[p].sequence, self.outbox[p].attempts))
            .collect();
        let got: Vec<_> = found.iter().map(|d| (d.event.subject, d.event.sequence, d.attempts)).collect();
        assert_eq!(got, expected);
        for (place, delivery) in due.into_iter().zip(found) {
            let row = &mut self.outbox[place];
            row.next_at = self.now + 30;
            row.attempts += 1;
            row.id = Some(delivery.id);
        }
    }

    /// One of the rows that were claimed at some time.
    fn claimed(&self, which: Index) -> Option<(usize, i64)> {
        let all: Vec<_> =
            self.outbox.iter().enumerate().filter_map(|(place, row)| Some((place, row.id?))).collect();
        (!all.is_empty()).then(|| all[which.index(all.len())])
    }

    async fn prune(&mut self, store: &dyn Store) {
        // All events of the fixture are of the same moment, so a sandbox is old as soon as it is destroyed.
        let pending: Vec<_> = self.outbox.iter().map(|row| row.subject).collect();
        let before = self.known.len();
        self.known.retain(|known| known.state().is_living() || pending.contains(&known.id));
        assert_eq!(store.prune(at(1)).await.unwrap(), (before - self.known.len()) as u64);
    }

    pub(crate) async fn apply(&mut self, store: &dyn Store, op: &Op) {
        match op {
            Op::Insert { steps, reuse, config } => self.insert(store, steps, *reuse, *config).await,
            Op::Update { which, steps, stale } => self.update(store, *which, steps, *stale).await,
            Op::Claim { max } => self.claim(store, *max).await,
            Op::Done { which } => {
                if let Some((place, id)) = self.claimed(*which) {
                    store.outbox_done(id).await.unwrap();
                    self.outbox.remove(place);
                }
            }
            Op::Retry { which, wait } => {
                if let Some((place, id)) = self.claimed(*which) {
                    store.outbox_retry(id, at(self.now + wait), "no").await.unwrap();
                    self.outbox[place].next_at = self.now + wait;
                }
            }
            Op::Wait { seconds } => self.now += seconds,
            Op::Prune => self.prune(store).await,
            Op::Reopen => {}
        }
    }

    /// The whole store says what the model says.
    pub(crate) async fn compare(&self, store: &dyn Store) {
        for known in &self.known {
            let stored = store.get(known.id).await.unwrap().unwrap();
            assert_eq!((stored.record.state(), stored.version), (known.state(), known.version));
            let filter = EventFilter { subject: Some(known.id), owner_key: None };
            let events = store.events(&filter, 0, Limit::new(1_000).unwrap()).await.unwrap();
            let told: Vec<_> =
                events.iter().map(|placed| (placed.event.sequence, placed.event.kind.clone())).collect();
            let expected: Vec<_> = (1_u64..)
                .zip(&known.path)
                .map(|(sequence, state)| (sequence, format!("dev.sandboxer.sandbox.{state}")))
                .collect();
            assert_eq!(told, expected);
        }
        for filter in State::ALL.map(|state| Filter { state: Some(state), ..Filter::default() }) {
            let expected: Vec<_> = self
                .known
                .iter()
                .rev()
                .filter(|known| Some(known.state()) == filter.state)
                .map(|k| k.id)
                .collect();
            assert_eq!(listed(store, &filter).await, expected);
        }
        let living: Vec<_> =
            self.known.iter().filter(|known| known.state().is_living()).map(|k| k.id).collect();
        assert_eq!(ids(&store.living().await.unwrap()), living);
        assert_eq!(store.outbox_stats(SINKS[0]).await.unwrap().pending, self.outbox.len() as u64);
    }
}

/// Runs one history. Only the first sink is used, so the place must open with that one alone.
pub(crate) async fn run(place: &dyn Place, ops: &[Op]) {
    let mut model = Model::default();
    let mut store: Arc<dyn Store> = place.open().await;
    for op in ops {
        if let Op::Reopen = op {
            store = place.open().await;
        }
        model.apply(&*store, op).await;
    }
    model.compare(&*store).await;
}
