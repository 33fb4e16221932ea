//! What sandboxes cost above what was held for them, which nobody is charged: added up for whoever watches this process.
//! The books do not know it, since no money moved; each sandbox's own cost does.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use sandboxer_core::Money;
use sandboxer_core::sandbox::SandboxRecord;

use crate::Engine;

/// By extension, since the process began.
#[derive(Debug, Default)]
pub(crate) struct Absorbed(Mutex<BTreeMap<String, Money>>);

impl Engine {
    /// What this process has settled above holds, by extension. It only ever grows.
    pub fn absorbed(&self) -> BTreeMap<String, Money> {
        self.inner.absorbed.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A settlement is in the books.
    pub(crate) fn note_absorbed(&self, record: &SandboxRecord) {
        let (Some(bill), Some(cost)) = (&record.bill, &record.sandbox.cost) else { return };
        if cost.absorbed == Money::ZERO {
            return;
        }
        let extension = &bill.tariff.extension;
        tracing::warn!(sandbox = %record.id(), extension, absorbed = %cost.absorbed, "it cost more than was held");
        let mut totals = self.inner.absorbed.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = totals.entry(extension.clone()).or_default();
        *total = total.checked_add(cost.absorbed).unwrap_or(*total);
    }
}
