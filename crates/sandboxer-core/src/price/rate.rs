//! The rates of a price file, each with what it may say and what it must.

use std::collections::BTreeMap;

use super::apply::is_dearer;
use super::card::{Basis, MeterName, PricePeriod, PriceRate};
use crate::error::Result;
use crate::money::Money;
use crate::profile::decode::Section;
use crate::profile::fields::Fields;
use crate::tariff::{Charged, Phase};

static RATE: Section = Section {
    name: "rates",
    keys: &["meter", "amount", "per", "unit", "charged", "free", "states", "model", "slots"],
};
const METERS: &[(&str, MeterName)] = &[
    ("vcpu", MeterName::Vcpu),
    ("memory", MeterName::Memory),
    ("disk", MeterName::Disk),
    ("gpu", MeterName::Gpu),
    ("host", MeterName::Host),
    ("create", MeterName::Create),
];
const PERIODS: &[(&str, PricePeriod)] = &[
    ("second", PricePeriod::Second),
    ("minute", PricePeriod::Minute),
    ("hour", PricePeriod::Hour),
    ("day", PricePeriod::Day),
    ("once", PricePeriod::Once),
];
const CHARGES: &[(&str, Charged)] = &[
    ("reserved", Charged::Reserved),
    ("active", Charged::Active),
    ("max-reserved-used", Charged::MaxReservedUsed),
];
const STATES: &[(&str, Phase)] = &[("running", Phase::Running), ("paused", Phase::Paused)];

/// What a provider may give with the rest.
const BUNDLED: &[(&str, MeterName)] =
    &[("vcpu", MeterName::Vcpu), ("memory", MeterName::Memory), ("disk", MeterName::Disk)];

/// Far more than any provider has meters, states and GPU models.
const MAX_RATES: usize = 64;
/// More than anything costs, and low enough that no cost of a sandbox overflows.
const MAX_AMOUNT: Money = Money::from_nanos(1_000_000 * 1_000_000_000);
const MAX_SLOTS: u32 = 1_000_000;
/// Of the name of an extension or a GPU model.
pub(super) const MAX_NAME: usize = 64;

pub(super) fn rates(top: &Fields<'_>, basis: Basis) -> Result<Vec<PriceRate>> {
    let mut seen: BTreeMap<(MeterName, Option<String>, &'static str), usize> = BTreeMap::new();
    let mut index = 0;
    let rates = top.mappings("rates", &RATE, |fields| {
        let rate = rate(&fields, basis)?;
        for state in &rate.states {
            let key = (rate.meter, rate.model.clone(), state.as_str());
            if let Some(first) = seen.insert(key, index) {
                let message = format!("it is priced twice while {}: see `rates[{first}]`", state.as_str());
                return Err(fields
                    .refuse_at("meter", message)
                    .with_hint("one rate for each meter and state"));
            }
        }
        index += 1;
        Ok(rate)
    })?;
    if rates.is_empty() {
        return Err(top.missing("rates").with_hint("what has no rate would cost nothing"));
    }
    if rates.len() > MAX_RATES {
        return Err(top.refuse_at("rates", format!("there are more than {MAX_RATES}")));
    }
    check_paused(top, &rates)?;
    Ok(rates)
}

/// What is held before a sandbox starts is what it costs to run. A pause must not cost more than that.
fn check_paused(top: &Fields<'_>, rates: &[PriceRate]) -> Result<()> {
    let only = |rate: &&PriceRate| !rate.states.contains(&Phase::Running);
    for paused in rates.iter().filter(only) {
        let is_same = |other: &&PriceRate| {
            other.states.contains(&Phase::Running)
                && other.meter == paused.meter
                && other.model == paused.model
        };
        let running = rates.iter().find(is_same);
        let name = paused.meter.as_str();
        let message = match running {
            None => format!("`{name}` is priced while paused and not while running"),
            Some(running) if is_dearer(paused, running) => format!("`{name}` costs more paused than running"),
            Some(_) => continue,
        };
        let hint =
            "what is held before a sandbox starts is its cost while running, so pausing must not cost more";
        return Err(top.refuse_at("rates", message).with_hint(hint));
    }
    Ok(())
}

/// What comes with the rest. Every provider gives processors and memory: a metered price without a rate for one of them
/// says so, because a forgotten line would otherwise be free.
pub(super) fn bundled(top: &Fields<'_>, basis: Basis, rates: &[PriceRate]) -> Result<Vec<MeterName>> {
    let bundled = top.choices("bundled", BUNDLED)?;
    if basis != Basis::Metered {
        return match top.has("bundled") {
            true => Err(top.refuse_at("bundled", "only a metered provider bundles")),
            false => Ok(bundled),
        };
    }
    let has_rate = |meter: MeterName| rates.iter().any(|rate| rate.meter == meter);
    for (index, meter) in bundled.iter().enumerate() {
        let name = meter.as_str();
        if has_rate(*meter) {
            return Err(top.refuse_at("bundled", format!("`{name}` has a rate of its own")));
        }
        if bundled[..index].contains(meter) {
            return Err(top.refuse_at("bundled", format!("`{name}` stands there twice")));
        }
    }
    for meter in [MeterName::Vcpu, MeterName::Memory] {
        if !has_rate(meter) && !bundled.contains(&meter) {
            let name = meter.as_str();
            let hint =
                format!("add a rate for it, or `bundled: [{name}]` if the provider gives it with the rest");
            return Err(top.refuse_at("rates", format!("there is no rate for `{name}`")).with_hint(hint));
        }
    }
    Ok(bundled)
}

fn rate(fields: &Fields<'_>, basis: Basis) -> Result<PriceRate> {
    let meter = fields.choice("meter", METERS)?.ok_or_else(|| fields.missing("meter"))?;
    if meter == MeterName::Host && basis == Basis::Metered {
        let hint = "a host has a cost where `basis` is `self-hosted`";
        return Err(fields.refuse_at("meter", "a metered provider has no `host` of ours").with_hint(hint));
    }
    let units = meter.units();
    let unit = match (fields.choice("unit", units)?, units) {
        (Some(unit), _) => unit,
        (None, [(_, unit)]) => *unit,
        (None, _) => return Err(fields.missing("unit")),
    };
    let charged = charged(fields, meter)?;
    let free = fields.whole("free")?.unwrap_or_default();
    if free > 0 && (meter == MeterName::Host || (charged != Charged::Reserved && meter != MeterName::Disk)) {
        return Err(fields.refuse_at("free", "only what is reserved, and the disk, can be free in part"));
    }
    Ok(PriceRate {
        meter,
        amount: amount(fields, meter == MeterName::Host)?,
        per: period(fields, meter)?,
        unit,
        charged,
        free,
        states: states(fields, meter)?,
        model: model(fields, meter)?,
        slots: shared(fields, meter)?,
    })
}

pub(super) fn amount(fields: &Fields<'_>, may_be_zero: bool) -> Result<Money> {
    let amount = fields.money("amount").map_err(|why| match why.to_string().contains("more than nine decimals") {
        true => why.with_hint(
            "nine decimals are exact: write a rate below a nano-dollar for a longer `per`, such as `hour` or `day`",
        ),
        false => why,
    })?;
    let amount = amount.ok_or_else(|| fields.missing("amount"))?;
    within(fields, "amount", amount)?;
    if amount == Money::ZERO && !may_be_zero {
        let hint = "leave the rate out: what has no rate costs nothing";
        return Err(fields.refuse_at("amount", "a rate of zero is no rate").with_hint(hint));
    }
    Ok(amount)
}

pub(super) fn within(fields: &Fields<'_>, key: &str, amount: Money) -> Result<()> {
    if amount < Money::ZERO {
        return Err(fields.refuse_at(key, format!("`{amount}` is negative")));
    }
    if amount > MAX_AMOUNT {
        return Err(fields.refuse_at(key, format!("`{amount}` is more than {MAX_AMOUNT}")));
    }
    Ok(())
}

fn period(fields: &Fields<'_>, meter: MeterName) -> Result<PricePeriod> {
    let is_create = meter == MeterName::Create;
    let per = fields.choice("per", PERIODS)?.or(is_create.then_some(PricePeriod::Once));
    let per = per.ok_or_else(|| fields.missing("per"))?;
    match (is_create, per) {
        (true, PricePeriod::Once) => Ok(per),
        (true, _) => Err(fields.refuse_at("per", "`create` is paid `once`")),
        (false, PricePeriod::Once) => Err(fields.refuse_at("per", "only `create` is paid `once`")),
        (false, _) => Ok(per),
    }
}

fn charged(fields: &Fields<'_>, meter: MeterName) -> Result<Charged> {
    let charged = fields.choice("charged", CHARGES)?.unwrap_or_default();
    if charged != Charged::Reserved && !meter.is_measured() {
        let message = format!("nobody measures what is used of `{}`: it is `reserved`", meter.as_str());
        return Err(fields.refuse_at("charged", message));
    }
    Ok(charged)
}

fn states(fields: &Fields<'_>, meter: MeterName) -> Result<Vec<Phase>> {
    if !fields.has("states") {
        return Ok(vec![Phase::Running]);
    }
    let states = fields.choices("states", STATES)?;
    if states.is_empty() {
        return Err(fields.refuse_at("states", "no state: the rate would never count"));
    }
    if meter == MeterName::Create {
        return Err(
            fields.refuse_at("states", "`create` is paid when the sandbox starts, whatever its state")
        );
    }
    Ok(states)
}

fn model(fields: &Fields<'_>, meter: MeterName) -> Result<Option<String>> {
    let model = fields.text("model")?;
    match &model {
        Some(_) if meter != MeterName::Gpu => Err(fields.refuse_at("model", "only a `gpu` has a model")),
        Some(name) if name.is_empty() || name.len() > MAX_NAME => {
            Err(fields.refuse_at("model", format!("a name of 1 to {MAX_NAME} bytes was expected")))
        }
        _ => Ok(model),
    }
}

pub(super) fn slots(fields: &Fields<'_>, otherwise: u32) -> Result<u32> {
    let slots = fields.whole("slots")?.unwrap_or(otherwise);
    if slots == 0 || slots > MAX_SLOTS {
        return Err(fields.refuse_at("slots", format!("a host has between 1 and {MAX_SLOTS}")));
    }
    Ok(slots)
}

fn shared(fields: &Fields<'_>, meter: MeterName) -> Result<Option<u32>> {
    match meter {
        MeterName::Host => slots(fields, 1).map(Some),
        _ if fields.has("slots") => Err(fields.refuse_at("slots", "only a `host` is shared")),
        _ => Ok(None),
    }
}
