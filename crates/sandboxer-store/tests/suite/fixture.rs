//! Records, steps and moments with fixed values, and short ways to say what a test wants.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sandboxer_core::event::NewEvent;
use sandboxer_core::extension::Handle;
use sandboxer_core::isolation::{IsolationLevel, IsolationReport};
use sandboxer_core::profile::{Image, Scope};
use sandboxer_core::sandbox::{Links, Quote, Sandbox, SandboxRecord};
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Consumer, Dur, SandboxId, State};
use sandboxer_store::{
    Books, Filter, Idempotency, Insert, Inserted, Lease, LeaseChange, Step, Store, Stored, Update,
};
use serde_json::json;

pub(crate) const SOURCE: &str = "sandboxer/test";
pub(crate) const SINKS: [&str; 2] = ["hub", "audit"];

/// A fixed moment and so many seconds.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600).unwrap() + SignedDuration::from_secs(seconds)
}

pub(crate) fn lease(owner: &str) -> Lease {
    Lease { owner: owner.into(), until: at(30) }
}

fn spec() -> SandboxSpec {
    SandboxSpec {
        profile: "profile.agent-dev@1.0.0".into(),
        image: Image::Host,
        persistence: Default::default(),
        isolation: Default::default(),
        network: Default::default(),
        workspace: Default::default(),
        resources: Default::default(),
        variables: BTreeMap::from([("LANG".into(), "C.UTF-8".into())]),
        secrets: Vec::new(),
        secret_refs: Vec::new(),
        mounts: Vec::new(),
        setup: Default::default(),
        requires: Default::default(),
        inputs: BTreeMap::new(),
        allow_degraded: false,
        ..Default::default()
    }
}

/// A sandbox of nobody that shares with nobody, requested at `at(0)`, expiring at `at(3600)`.
pub(crate) fn record() -> SandboxRecord {
    let id = SandboxId::generate();
    SandboxRecord {
        sandbox: Sandbox {
            sandbox_id: id,
            state: State::Requested,
            profile: "profile.agent-dev@1.0.0".into(),
            extension: "ext.native".into(),
            host: "local".into(),
            scope: Scope::Session,
            reused: false,
            isolation: IsolationReport::default(),
            reachability: None,
            ttl: Dur::from_secs(3_600),
            idle_reap: None,
            created_at: at(0),
            ready_at: None,
            expires_at: at(3_600),
            destroyed_at: None,
            labels: BTreeMap::new(),
            consumer: Consumer::default(),
            workspace: Default::default(),
            quote: Quote::self_hosted(),
            cost: None,
            reason: None,
            failure: None,
            cleanup: None,
            drift: None,
            config_hash: "c0ffee".into(),
            route: Default::default(),
            links: Links::of(id),
        },
        spec: spec(),
        handle: None,
        reuse_key: None,
        owner_key: None,
        bill: None,
    }
}

pub(crate) fn handle() -> Handle {
    Handle {
        host: "local".into(),
        tag: "sbx-test".into(),
        effective: IsolationLevel::Container,
        controls: Vec::new(),
        degraded: false,
        data: json!({"pid": 7}),
    }
}

pub(crate) fn labels<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(crate) fn step(to: State) -> Step {
    Step { to, event: NewEvent::transition(to, at(0), json!({"why": "test"})) }
}

/// The shortest legal way from nothing to a state, except that destroyed ones were ready before.
pub(crate) fn way_to(state: State) -> Vec<State> {
    use State::*;
    match state {
        Requested => vec![Requested],
        Provisioning => vec![Requested, Provisioning],
        Ready => vec![Requested, Provisioning, Ready],
        Destroyed => vec![Requested, Provisioning, Ready, Destroying, Destroyed],
        other => vec![Requested, Provisioning, Ready, other],
    }
}

/// An insert that is in this state at once.
pub(crate) fn insert(mut record: SandboxRecord, state: State) -> Insert {
    record.sandbox.state = state;
    Insert {
        record,
        steps: way_to(state).into_iter().map(step).collect(),
        lease: lease("me"),
        idempotency: None,
        facts: Vec::new(),
        books: Books::default(),
    }
}

pub(crate) fn keyed(mut insert: Insert, key: &str, body: &str) -> Insert {
    insert.idempotency = Some(request(key, body));
    insert
}

pub(crate) fn request(key: &str, body: &str) -> Idempotency {
    Idempotency { scope: "local create".into(), key: key.into(), body_hash: body.into() }
}

pub(crate) async fn put(store: &dyn Store, record: SandboxRecord, state: State) -> Stored {
    match store.insert(insert(record, state)).await.unwrap() {
        Inserted::New(stored) => stored,
        other => panic!("expected a new sandbox, got {other:?}"),
    }
}

/// The update that takes these steps.
pub(crate) fn change(stored: &Stored, steps: &[State]) -> Update {
    let mut record = stored.record.clone();
    record.sandbox.state = steps.last().copied().unwrap_or(record.sandbox.state);
    Update {
        record,
        expected_version: stored.version,
        steps: steps.iter().copied().map(step).collect(),
        facts: Vec::new(),
        lease: LeaseChange::Keep,
        books: Books::default(),
    }
}

pub(crate) async fn go(store: &dyn Store, stored: &Stored, steps: &[State]) -> Stored {
    store.update(change(stored, steps)).await.unwrap()
}

/// The ids of all pages of a listing.
pub(crate) async fn listed(store: &dyn Store, filter: &Filter) -> Vec<SandboxId> {
    let limit = sandboxer_core::page::Limit::new(2).unwrap();
    let (mut out, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list(filter, cursor.as_deref(), limit).await.unwrap();
        out.extend(page.items.iter().map(|sandbox| sandbox.sandbox_id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return out;
        }
    }
}

pub(crate) fn ids(stored: &[Stored]) -> Vec<SandboxId> {
    stored.iter().map(|stored| stored.record.id()).collect()
}
