//! The list of cases, and which part of the capability each is about.

mod archive;
mod background;
mod basics;
mod crash;
mod escape;
mod exec;
mod files;
mod isolation;
mod kill;
mod lifetime;
mod limits;
mod pause;
mod place;
mod port;
mod provision;
mod snapshot;
mod teardown;
mod terminal;
mod unsupported;
mod workspace;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use sandboxer_core::capability::Capability;

use super::rig::{Outcome, Rig};

type Run = Box<dyn Fn(Arc<Rig>) -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send + Sync>;

/// One behaviour.
pub struct Case {
    pub name: &'static str,
    /// What a pass shows, as a sentence that is false when it fails.
    pub proves: &'static str,
    /// Fields of the capability without which it is not run.
    pub needs: &'static [&'static str],
    /// Further fields that it is about.
    pub about: &'static [&'static str],
    /// Harmless on a machine that somebody needs.
    pub safe: bool,
    pub(super) run: Run,
}

impl Case {
    fn new<F, T>(name: &'static str, proves: &'static str, needs: &'static [&'static str], run: F) -> Self
    where
        F: Fn(Arc<Rig>) -> T + Send + Sync + 'static,
        T: Future<Output = Outcome> + Send + 'static,
    {
        let run: Run = Box::new(move |rig| Box::pin(run(rig)));
        Self { name, proves, needs, about: &[], safe: false, run }
    }

    fn safe(mut self) -> Self {
        self.safe = true;
        self
    }

    fn about(mut self, fields: &'static [&'static str]) -> Self {
        self.about = fields;
        self
    }

    /// What it needs and the capability does not have.
    pub(super) fn undeclared(&self, capability: &Capability) -> Vec<&'static str> {
        self.needs.iter().copied().filter(|field| !declares(capability, field)).collect()
    }
}

/// Whether a field of the capability is set, by its name.
pub(super) fn declares(capability: &Capability, field: &str) -> bool {
    let fields = serde_json::to_value(capability).unwrap_or_default();
    fields.get(field).and_then(serde_json::Value::as_bool).unwrap_or(false)
}

/// Fields without a case, and why.
pub const NOT_TESTED: &[(&str, &str)] = &[
    (
        "persistence",
        "nothing in the contract finds a kept workspace again; the extension's own tests show it",
    ),
    ("egress", "needs a network that the rules let out to; the extension's own tests bring one"),
    (
        "secrets",
        "needs a store of secrets and a service that takes them; the extension's own tests bring both",
    ),
    ("gpu", "needs the device"),
    ("only_by_name", "says when the router may choose it, nothing about what it does"),
];

/// Every case, in the order of the report.
pub fn all() -> Vec<Case> {
    let mut cases = basics::cases();
    cases.extend(provision::cases());
    cases.extend(exec::cases());
    cases.extend(kill::cases());
    cases.extend(terminal::cases());
    cases.extend(background::cases());
    cases.extend(files::cases());
    cases.extend(escape::cases());
    cases.extend(archive::cases());
    cases.extend(port::cases());
    cases.extend(pause::cases());
    cases.extend(snapshot::cases());
    cases.extend(workspace::cases());
    cases.extend(place::cases());
    cases.extend(isolation::cases());
    cases.extend(limits::cases());
    cases.extend(lifetime::cases());
    cases.extend(crash::cases());
    cases.extend(teardown::cases());
    cases.extend(unsupported::cases());
    cases
}
