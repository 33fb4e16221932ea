//! Random histories of the books, compared with a few sums in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::Index;
use sandboxer_core::bill::Settlement;
use sandboxer_core::ledger::{Kind, Payer, Period, WORLD};
use sandboxer_core::{ErrorKind, KeyId, Money};
use sandboxer_store::{Books, EntryFilter, Hold, Settle, Store, Stored, Told, Transfer};

use super::Place;
use super::books::*;
use super::fixture::*;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A sandbox, paid by a key or by a workspace alone.
    Create {
        by_key: bool,
        amount: i64,
    },
    /// From the version that is there, or from an older one.
    HoldTo {
        which: Index,
        amount: i64,
        stale: bool,
    },
    /// So many hundredths of the hold to the provider and to the house; above a hundred is a defect.
    Settle {
        which: Index,
        upstream: i64,
        fee: i64,
    },
    /// Between two of the accounts, under one of a few ids.
    Transfer {
        id: u8,
        from: Index,
        to: Index,
        amount: i64,
    },
    Overdraft {
        account: Index,
        amount: i64,
    },
    Budget {
        subject: Index,
        month: bool,
        limit: Option<i64>,
    },
    /// Forward, or back.
    Clock {
        hours: i64,
    },
    Reopen,
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let amount = || prop_oneof![1 => Just(0_i64), 12 => 1..60_i64];
    prop_oneof![
        6 => (any::<bool>(), amount()).prop_map(|(by_key, amount)| Op::Create { by_key, amount }),
        6 => (any::<Index>(), amount(), proptest::bool::weighted(0.1))
            .prop_map(|(which, amount, stale)| Op::HoldTo { which, amount, stale }),
        4 => (any::<Index>(), 0..90_i64, 0..15_i64)
            .prop_map(|(which, upstream, fee)| Op::Settle { which, upstream, fee }),
        6 => (0..40_u8, any::<Index>(), any::<Index>(), 1..200_i64)
            .prop_map(|(id, from, to, amount)| Op::Transfer { id, from, to, amount }),
        1 => (any::<Index>(), 0..50_i64).prop_map(|(account, amount)| Op::Overdraft { account, amount }),
        2 => (any::<Index>(), any::<bool>(), proptest::option::weighted(0.7, 50..300_i64))
            .prop_map(|(subject, month, limit)| Op::Budget { subject, month, limit }),
        2 => (-30..100_i64).prop_map(|hours| Op::Clock { hours }),
        1 => Just(Op::Reopen),
    ]
}

struct Known {
    stored: Stored,
    payer: Payer,
    /// Fixed by the first hold.
    account: Option<String>,
    /// How much on which day.
    parts: BTreeMap<i64, i64>,
    settled: bool,
}

impl Known {
    fn held(&self) -> i64 {
        self.parts.values().sum()
    }
}

struct Model {
    key: String,
    now: Timestamp,
    known: Vec<Known>,
    balances: BTreeMap<String, i64>,
    overdrafts: BTreeMap<String, i64>,
    budgets: BTreeMap<(String, bool), i64>,
    /// By subject and day.
    spend: BTreeMap<(String, i64), i64>,
    transfers: BTreeMap<u8, (String, String, i64)>,
}

fn nanos(amount: i64) -> Money {
    Money::from_nanos(amount.into())
}

fn day(moment: Timestamp) -> i64 {
    moment.as_second().div_euclid(86_400)
}

/// Year and month.
fn month(day: i64) -> (i16, i8) {
    let date = Timestamp::from_second(day * 86_400).unwrap().to_zoned(jiff::tz::TimeZone::UTC).date();
    (date.year(), date.month())
}

impl Model {
    fn new() -> Self {
        Self {
            key: KeyId::generate().to_string(),
            now: at(0),
            known: Vec::new(),
            balances: BTreeMap::new(),
            overdrafts: BTreeMap::new(),
            budgets: BTreeMap::new(),
            spend: BTreeMap::new(),
            transfers: BTreeMap::new(),
        }
    }

    fn payer(&self, by_key: bool) -> Payer {
        Payer { key: by_key.then(|| self.key.clone()), ..payer() }
    }

    /// The accounts that may be opened: a key's, a workspace's, an organisation's.
    fn accounts(&self) -> Vec<String> {
        self.payer(true).accounts()
    }

    fn add(&mut self, account: &str, amount: i64) {
        *self.balances.entry(account.to_owned()).or_default() += amount;
    }

    fn available(&self, account: &str) -> i64 {
        let of = |map: &BTreeMap<String, i64>| map.get(account).copied().unwrap_or_default();
        of(&self.balances) + of(&self.overdrafts)
    }

    fn used(&self, subject: &str, by_month: bool) -> i64 {
        let today = day(self.now);
        let fits = |other: i64| if by_month { month(other) == month(today) } else { other == today };
        self.spend.iter().filter(|((who, day), _)| who == subject && fits(*day)).map(|(_, used)| used).sum()
    }

    fn allows(&self, account: &str, payer: &Payer, more: i64) -> bool {
        self.available(account) >= more
            && payer.subjects().into_iter().all(|subject| {
                [false, true].into_iter().all(|by_month| {
                    let limit = self.budgets.get(&(subject.clone(), by_month));
                    limit.is_none_or(|limit| self.used(&subject, by_month) + more <= *limit)
                })
            })
    }

    fn spend(&mut self, payer: &Payer, day: i64, amount: i64) {
        for subject in payer.subjects() {
            *self.spend.entry((subject, day)).or_default() += amount;
        }
    }

    fn opened(&self, payer: &Payer) -> String {
        let opened = payer.accounts().into_iter().find(|account| self.balances.contains_key(account));
        opened.unwrap_or_else(|| payer.default_account())
    }

    fn give_back(&mut self, place: usize, amount: i64) {
        let (mut left, payer) = (amount, self.known[place].payer.clone());
        while left > 0 {
            let mut part = self.known[place].parts.last_entry().expect("enough is held");
            let back = left.min(*part.get());
            let day = *part.key();
            *part.get_mut() -= back;
            if *part.get() == 0 {
                part.remove();
            }
            left -= back;
            self.spend(&payer, day, -back);
        }
    }

    fn hold(&self, payer: &Payer, amount: i64) -> Books {
        let hold = Hold { payer: payer.clone(), amount: nanos(amount), at: self.now };
        Books { hold: Some(hold), ..Books::default() }
    }

    async fn create(&mut self, store: &dyn Store, by_key: bool, amount: i64) {
        let payer = self.payer(by_key);
        let account = self.opened(&payer);
        let outcome = start(store, record(), self.hold(&payer, amount)).await;
        if amount > 0 && !self.allows(&account, &payer, amount) {
            refusal(&outcome.unwrap_err());
            return;
        }
        let stored = outcome.unwrap();
        let mut known = Known { stored, payer, account: None, parts: BTreeMap::new(), settled: false };
        if amount > 0 {
            let today = day(self.now);
            known.parts.insert(today, amount);
            self.spend(&known.payer, today, amount);
            self.add(&account, -amount);
            self.add(&format!("held:{account}"), amount);
            known.account = Some(account);
        }
        self.known.push(known);
    }

    async fn hold_to(&mut self, store: &dyn Store, place: usize, amount: i64, stale: bool) {
        let known = &self.known[place];
        let (payer, mut stored) = (known.payer.clone(), known.stored.clone());
        stored.version -= u64::from(stale);
        let outcome = book(store, &stored, self.hold(&payer, amount)).await;
        let known = &self.known[place];
        let more = amount - known.held();
        let account = known.account.clone().unwrap_or_else(|| self.opened(&payer));
        let expected = if stale {
            Some(ErrorKind::Conflict)
        } else if known.settled && more != 0 {
            Some(ErrorKind::Internal)
        } else {
            (more > 0 && !self.allows(&account, &payer, more)).then_some(ErrorKind::InsufficientCredits)
        };
        if let Some(kind) = expected {
            assert_eq!(outcome.unwrap_err().kind(), kind);
            return;
        }
        self.known[place].stored = outcome.unwrap();
        if more == 0 {
            return;
        }
        if more > 0 {
            let today = day(self.now);
            *self.known[place].parts.entry(today).or_default() += more;
            self.spend(&payer, today, more);
        } else {
            self.give_back(place, -more);
        }
        self.add(&account, -more);
        self.add(&format!("held:{account}"), more);
        self.known[place].account = Some(account);
    }

    async fn settle(&mut self, store: &dyn Store, place: usize, upstream: i64, fee: i64) {
        let known = &self.known[place];
        let held = known.held();
        let (upstream, fee) = (held * upstream / 100, held * fee / 100);
        let settlement = Settlement { upstream: nanos(upstream), fee: nanos(fee) };
        let told = Told { extension: "ext.saas-stub".into(), ..Told::default() };
        let settle = Settle { payer: known.payer.clone(), settlement, at: self.now, told };
        let books = Books { settle: Some(settle), ..Books::default() };
        let outcome = book(store, &known.stored, books).await;
        if upstream + fee > held {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Internal);
            return;
        }
        self.known[place].stored = outcome.unwrap();
        if std::mem::replace(&mut self.known[place].settled, true) {
            return;
        }
        // Nothing was ever held.
        let Some(account) = self.known[place].account.clone() else { return };
        let rest = held - upstream - fee;
        self.give_back(place, rest);
        self.known[place].parts.clear();
        for (account, amount) in
            [(&*format!("held:{account}"), -held), (PROVIDER, upstream), ("fees", fee), (&*account, rest)]
        {
            self.add(account, amount);
        }
    }

    async fn transfer(&mut self, store: &dyn Store, id: u8, from: Index, to: Index, amount: i64) {
        let mut accounts = self.accounts();
        // Mostly from outside, so that there is something to spend.
        accounts.extend([WORLD, WORLD, WORLD].map(str::to_owned));
        let (from, to) =
            (accounts[from.index(accounts.len())].clone(), accounts[to.index(accounts.len() - 2)].clone());
        if from == to {
            return;
        }
        let wanted = Transfer {
            id: format!("transfer {id}"),
            kind: Kind::Adjustment,
            from: from.clone(),
            to: to.clone(),
            amount: nanos(amount),
            memo: String::new(),
            time: self.now,
        };
        let outcome = store.transfer(&wanted).await;
        let content = (from.clone(), to.clone(), amount);
        match self.transfers.get(&id) {
            Some(known) if *known == content => assert_eq!(outcome.unwrap().len(), 2),
            Some(_) => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Conflict),
            None if from != WORLD && self.available(&from) < amount => {
                refusal(&outcome.unwrap_err());
            }
            None => {
                assert_eq!(outcome.unwrap().len(), 2);
                self.add(&from, -amount);
                self.add(&to, amount);
                self.transfers.insert(id, content);
            }
        }
    }

    async fn apply(&mut self, store: &dyn Store, op: &Op) {
        let place = |which: &Index, known: &[Known]| (!known.is_empty()).then(|| which.index(known.len()));
        match op {
            Op::Create { by_key, amount } => self.create(store, *by_key, *amount).await,
            Op::HoldTo { which, amount, stale } => {
                if let Some(place) = place(which, &self.known) {
                    self.hold_to(store, place, *amount, *stale).await;
                }
            }
            Op::Settle { which, upstream, fee } => {
                if let Some(place) = place(which, &self.known) {
                    self.settle(store, place, *upstream, *fee).await;
                }
            }
            Op::Transfer { id, from, to, amount } => self.transfer(store, *id, *from, *to, *amount).await,
            Op::Overdraft { account, amount } => {
                let account = self.accounts().remove(account.index(3));
                store.overdraft(&account, nanos(*amount)).await.unwrap();
                self.add(&account, 0);
                self.overdrafts.insert(account, *amount);
            }
            Op::Budget { subject, month, limit } => {
                let subject = self.payer(true).subjects().remove(subject.index(5));
                let period = if *month { Period::Month } else { Period::Day };
                store.budget(&subject, period, limit.map(nanos)).await.unwrap();
                match limit {
                    Some(limit) => self.budgets.insert((subject, *month), *limit),
                    None => self.budgets.remove(&(subject, *month)),
                };
            }
            Op::Clock { hours } => self.now += SignedDuration::from_hours(*hours),
            Op::Reopen => {}
        }
    }

    /// The whole store says what the model says.
    async fn compare(&self, store: &dyn Store) {
        assert_sound(store).await;
        for (account, expected) in &self.balances {
            let found = store.account(account).await.unwrap();
            // What was never touched by an entry may not be there; a charge of nothing touches nothing.
            assert_eq!(found.map_or(Money::ZERO, |found| found.balance), nanos(*expected), "{account}");
        }
        assert_eq!(self.balances.values().sum::<i64>(), 0);
        let all = entries(store, &EntryFilter::default()).await;
        assert_eq!(all.iter().map(|entry| entry.amount.nanos()).sum::<i128>(), 0);
        for account in self.balances.keys() {
            let of_account = EntryFilter { account: Some(account.clone()), ..EntryFilter::default() };
            let sum: i128 = entries(store, &of_account).await.iter().map(|entry| entry.amount.nanos()).sum();
            assert_eq!(sum, i128::from(self.balances[account]), "{account}");
        }
        for budget in store.budgets(self.now).await.unwrap() {
            let by_month = budget.period == Period::Month;
            assert_eq!(budget.limit, nanos(self.budgets[&(budget.subject.clone(), by_month)]));
            assert_eq!(budget.used, nanos(self.used(&budget.subject, by_month)), "{budget:?}");
        }
    }
}

/// Runs one history.
pub(crate) async fn run(place: &dyn Place, ops: &[Op]) {
    let mut model = Model::new();
    let mut store: Arc<dyn Store> = place.open().await;
    for op in ops {
        if let Op::Reopen = op {
            store = place.open().await;
        }
        model.apply(&*store, op).await;
    }
    model.compare(&*store).await;
}
