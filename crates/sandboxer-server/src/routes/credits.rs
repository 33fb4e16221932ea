//! Credits: what there is, what is paid in, what was spent. One file for each kind of thing.

pub(crate) mod accounts;
pub(crate) mod audit;
pub(crate) mod budgets;
pub(crate) mod entries;
pub(crate) mod provider_keys;
