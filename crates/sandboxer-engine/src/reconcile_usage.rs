//! A provider's usage export beside our meters: matched by tag, with what differs and what only one side has.

mod parse;

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandboxer_core::page::Limit;
use sandboxer_core::tariff::ProviderKey;
use sandboxer_core::{Dur, Error, ErrorKind, Money, Result, SandboxId};
use sandboxer_store::MeterFilter;
use serde::{Deserialize, Serialize};

use crate::caller::Action;
use crate::credits::check_range;
use crate::{Caller, Engine};

/// Bytes of an export.
pub const MOST_BYTES: usize = 8 << 20;

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageFormat {
    Csv,
    Json,
}

/// What is compared with what.
#[derive(Clone, Debug)]
pub struct UsageImport {
    pub extension: String,
    pub format: UsageFormat,
    pub content: Vec<u8>,
    /// Ours that began from this moment on; otherwise what the export begins with.
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Differences up to this much are called equal.
    pub tolerance: Money,
}

/// What came of the comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UsageReport {
    pub extension: String,
    /// Both sides say the same.
    pub ok: bool,
    pub rows: u64,
    /// Sandboxes on which both sides agree.
    pub matched: u64,
    pub ours: Money,
    pub theirs: Money,
    /// Theirs less ours.
    pub difference: Money,
    pub differing: Vec<UsageLine>,
    pub only_theirs: Vec<UsageLine>,
    pub only_ours: Vec<UsageLine>,
    /// Sandboxes of ours that were made with a workspace's own key and are left out: an export of the platform's account
    /// cannot have them.
    #[serde(default)]
    pub own_key: u64,
    /// Rows that could not be read; they count nowhere.
    pub malformed: Vec<MalformedRow>,
    /// Further rows that could not be read.
    pub more_malformed: u64,
}

/// One sandbox, on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UsageLine {
    /// The tag, which is the sandbox's id.
    pub tag: String,
    pub ours: Money,
    pub theirs: Money,
    /// Theirs less ours.
    pub difference: Money,
    /// How long it ran, as we metered it.
    pub our_time: Dur,
    /// How long it ran, where the export says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub their_time: Option<Dur>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MalformedRow {
    /// Counted from 1, the headings included; in JSON the place in the list.
    pub line: u64,
    pub problem: String,
}

/// What one side has of a sandbox.
#[derive(Clone, Debug, Default)]
struct Side {
    cost: Money,
    time: Option<Dur>,
}

impl Side {
    fn add(&mut self, cost: Money, time: Option<Dur>) -> Result<()> {
        self.cost = self.cost.checked_add(cost)?;
        let known = [self.time, time].into_iter().flatten().map(Dur::as_millis).reduce(u64::saturating_add);
        self.time = known.map(Dur::from_millis);
        Ok(())
    }
}

impl Engine {
    /// Compares. Nothing is changed by it.
    pub async fn reconcile_usage(&self, caller: &Caller, import: &UsageImport) -> Result<UsageReport> {
        caller.require(Action::ManageMoney)?;
        check_range(import.from, import.until)?;
        if import.tolerance < Money::ZERO {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a tolerance of {} is below zero", import.tolerance),
            ));
        }
        self.check_extension(&import.extension)?;
        if import.content.len() > MOST_BYTES {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("the export is larger than the {} MiB that fit here", MOST_BYTES >> 20),
            )
            .with_hint("split it, for example by day"));
        }
        let parsed = parse::read(import.format, &import.content)?;
        let mut theirs: BTreeMap<String, Side> = BTreeMap::new();
        for row in &parsed.rows {
            theirs.entry(row.tag.clone()).or_default().add(row.cost, row.time)?;
        }
        let from = import.from.or_else(|| parsed.rows.iter().filter_map(|row| row.started_at).min());
        let until = import.until.or_else(|| parsed.rows.iter().filter_map(|row| row.ended_at).max());
        let period = MeterFilter {
            extension: Some(import.extension.clone()),
            from,
            until: until.filter(|until| from.is_none_or(|from| from < *until)),
            ..MeterFilter::default()
        };
        let mut ours = self.our_usage(&period).await?;
        for tag in theirs.keys() {
            // Clocks differ a little: what they name is looked up whenever it began here.
            if let (false, Ok(id)) = (ours.contains_key(tag), tag.parse::<SandboxId>()) {
                let filter = MeterFilter { sandbox: Some(id), from: None, until: None, ..period.clone() };
                ours.extend(self.our_usage(&filter).await?);
            }
        }
        let own_key = self.leave_out_own_keys(&mut ours).await?;
        Ok(UsageReport { own_key, ..compare(import, parsed, &ours, &theirs)? })
    }

    /// What is in a workspace's own account at the provider is on another bill. How many these were.
    async fn leave_out_own_keys(&self, ours: &mut BTreeMap<String, Side>) -> Result<u64> {
        let mut own = Vec::new();
        for tag in ours.keys() {
            let Ok(id) = tag.parse::<SandboxId>() else { continue };
            let bill = self.inner.store.get(id).await?.and_then(|stored| stored.record.bill);
            if bill.is_some_and(|bill| bill.terms.provider_key == ProviderKey::Own) {
                own.push(tag.clone());
            }
        }
        for tag in &own {
            ours.remove(tag);
        }
        Ok(own.len() as u64)
    }

    /// One that there is, or that has a price: of any other nothing was ever metered, and everything would differ.
    fn check_extension(&self, extension: &str) -> Result<()> {
        let is_priced = || self.prices().book().cards().iter().any(|card| card.extension == extension);
        match self.inner.registry.get(extension) {
            Err(_) if is_priced() => Ok(()),
            found => found.map(drop),
        }
    }

    /// Ended intervals, added up for each sandbox. All meters of one interval run for the same time.
    async fn our_usage(&self, filter: &MeterFilter) -> Result<BTreeMap<String, Side>> {
        let mut out: BTreeMap<String, Side> = BTreeMap::new();
        let mut seen: BTreeMap<(SandboxId, u32), ()> = BTreeMap::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = self.inner.store.meters(filter, cursor.as_deref(), Limit::new(Limit::MAX)?).await?;
            for meter in page.items {
                let Some(ended_at) = meter.ended_at else { continue };
                let time = match seen.insert((meter.sandbox_id, meter.sequence), ()) {
                    Some(()) => None,
                    None => between(meter.started_at, ended_at),
                };
                out.entry(meter.sandbox_id.to_string()).or_default().add(meter.cost, time)?;
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(out);
            }
        }
    }
}

fn between(start: Timestamp, end: Timestamp) -> Option<Dur> {
    u64::try_from(end.as_millisecond() - start.as_millisecond()).ok().map(Dur::from_millis)
}

fn compare(
    import: &UsageImport,
    parsed: parse::Parsed,
    ours: &BTreeMap<String, Side>,
    theirs: &BTreeMap<String, Side>,
) -> Result<UsageReport> {
    let mut report = UsageReport {
        extension: import.extension.clone(),
        ok: false,
        rows: parsed.rows.len() as u64,
        matched: 0,
        ours: Money::ZERO,
        theirs: Money::ZERO,
        difference: Money::ZERO,
        differing: Vec::new(),
        only_theirs: Vec::new(),
        only_ours: Vec::new(),
        own_key: 0,
        malformed: parsed.malformed,
        more_malformed: parsed.more_malformed,
    };
    let tags: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    for tag in tags {
        let (our, their) = (ours.get(tag), theirs.get(tag));
        let (our_cost, their_cost) =
            (our.map_or(Money::ZERO, |side| side.cost), their.map_or(Money::ZERO, |side| side.cost));
        report.ours = report.ours.checked_add(our_cost)?;
        report.theirs = report.theirs.checked_add(their_cost)?;
        let line = UsageLine {
            tag: tag.clone(),
            ours: our_cost,
            theirs: their_cost,
            difference: Money::from_nanos(their_cost.nanos() - our_cost.nanos()),
            our_time: our.and_then(|side| side.time).unwrap_or(Dur::ZERO),
            their_time: their.and_then(|side| side.time),
        };
        match (our, their) {
            (Some(_), Some(_)) if line.difference.nanos().abs() <= import.tolerance.nanos() => {
                report.matched += 1;
            }
            (Some(_), Some(_)) => report.differing.push(line),
            (None, _) => report.only_theirs.push(line),
            (Some(_), None) => report.only_ours.push(line),
        }
    }
    report.difference = Money::from_nanos(report.theirs.nanos() - report.ours.nanos());
    report.ok = report.differing.is_empty()
        && report.only_theirs.is_empty()
        && report.only_ours.is_empty()
        && report.malformed.is_empty();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_told_apart() {
        let side = |nanos| Side { cost: Money::from_nanos(nanos), time: None };
        let map =
            |all: &[(&str, i128)]| all.iter().map(|(tag, nanos)| ((*tag).into(), side(*nanos))).collect();
        let import = UsageImport {
            extension: "ext.x".into(),
            format: UsageFormat::Csv,
            content: Vec::new(),
            from: None,
            until: None,
            tolerance: Money::from_nanos(5),
        };
        let report = compare(
            &import,
            parse::Parsed::default(),
            &map(&[("a", 100), ("b", 200), ("c", 300), ("near", 10)]),
            &map(&[("a", 100), ("b", 250), ("d", 7), ("near", 15)]),
        )
        .unwrap();
        assert_eq!((report.matched, report.ok), (2, false));
        assert_eq!((report.differing[0].tag.as_str(), report.differing[0].difference.nanos()), ("b", 50));
        assert_eq!(report.only_theirs[0].tag, "d");
        assert_eq!(report.only_ours[0].tag, "c");
        assert_eq!(report.difference.nanos(), 372 - 610);
    }
}
