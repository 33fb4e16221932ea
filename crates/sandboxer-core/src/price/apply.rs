//! A price applied to one sandbox: the lines of its tariff.

use super::card::{Basis, MeterName, PriceCard, PriceRate};
use super::refused;
use crate::error::{Error, ErrorKind, Result};
use crate::money::Money;
use crate::profile::Resources;
use crate::tariff::{Charged, Phase, Rate, Tariff, TariffLine};

/// Of memory and disk in a profile.
const MB: u64 = 1 << 20;

pub(super) fn tariff(card: &PriceCard, host: &str, resources: &Resources) -> Result<Tariff> {
    let mut lines = Vec::new();
    for rate in card.rates.iter().filter(|rate| rate.meter != MeterName::Gpu) {
        lines.extend(line(card, rate, host, resources)?);
    }
    lines.extend(gpus(card, resources)?);
    Ok(Tariff {
        extension: card.extension.clone(),
        price: format!("{} {}", card.extension, card.as_of),
        basis: card.basis.as_str().to_owned(),
        lines,
        minimum: card.minimum,
        granularity: card.granularity,
    })
}

/// The line of one rate; none for what costs nothing, such as a host of one's own.
fn line(card: &PriceCard, rate: &PriceRate, host: &str, resources: &Resources) -> Result<Option<TariffLine>> {
    let unit_size = rate.unit.size();
    let (quantity, unit_size, amount) = match rate.meter {
        MeterName::Vcpu => (processors(card, resources)?, unit_size, rate.amount),
        MeterName::Memory => {
            (bytes(card, "memory", resources.memory_mb, card.defaults.memory_mb)?, unit_size, rate.amount)
        }
        MeterName::Disk => {
            (bytes(card, "disk", resources.disk_mb, card.defaults.disk_mb)?, unit_size, rate.amount)
        }
        MeterName::Gpu => (u64::from(resources.gpu.unwrap_or_default()), unit_size, rate.amount),
        // One of the slots that make a host.
        MeterName::Host => match card.hosts.get(host) {
            Some(price) => (1, u64::from(price.slots), price.amount),
            None => (1, u64::from(rate.slots.unwrap_or(1)), rate.amount),
        },
        MeterName::Create => (1, unit_size, rate.amount),
    };
    let free = rate.free.saturating_mul(unit_size);
    if amount == Money::ZERO || (rate.charged == Charged::Reserved && quantity <= free) {
        return Ok(None);
    }
    Ok(Some(TariffLine {
        meter: rate.meter.as_str().to_owned(),
        charged: rate.charged,
        quantity,
        free,
        unit_size,
        unit: rate.unit.shown().to_owned(),
        rate: Rate { amount, per: rate.per.span() },
        phases: rate.states.clone(),
    }))
}

/// Profiles count GPUs without a model: the rate without one counts, otherwise the dearest, so that no quote is too low.
fn gpus(card: &PriceCard, resources: &Resources) -> Result<Vec<TariffLine>> {
    let Some(count) = resources.gpu.filter(|count| *count > 0) else { return Ok(Vec::new()) };
    let in_state = |state: Phase| {
        let rates =
            card.rates.iter().filter(|rate| rate.meter == MeterName::Gpu && rate.states.contains(&state));
        rates.reduce(|best, rate| match (&best.model, &rate.model) {
            (None, _) => best,
            (_, None) => rate,
            _ if is_dearer(rate, best) => rate,
            _ => best,
        })
    };
    if in_state(Phase::Running).is_none() && card.basis == Basis::Metered {
        return Err(refused(
            &card.extension,
            &format!("{count} GPUs are asked for, and it has no `gpu` rate"),
        ));
    }
    let mut lines = Vec::new();
    for state in [Phase::Running, Phase::Paused] {
        let Some(rate) = in_state(state) else { continue };
        let rate = PriceRate { states: vec![state], ..rate.clone() };
        lines.extend(line(card, &rate, "", resources)?);
    }
    Ok(lines)
}

fn processors(card: &PriceCard, resources: &Resources) -> Result<u64> {
    match resources.cpu {
        Some(cpu) => thousandths(cpu).ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("`{cpu}` is not a number of processors"))
        }),
        None => card.defaults.vcpu_thousandths.ok_or_else(|| unsaid(card, "vcpu", "cpu")),
    }
}

fn bytes(card: &PriceCard, what: &str, asked: Option<u64>, otherwise: Option<u64>) -> Result<u64> {
    let key = format!("{what}_mb");
    let mb = asked.or(otherwise).ok_or_else(|| unsaid(card, what, &key))?;
    mb.checked_mul(MB).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("{mb} MB of {what} leave the accepted range"))
    })
}

fn unsaid(card: &PriceCard, what: &str, key: &str) -> Error {
    refused(
        &card.extension,
        &format!("it counts {what}, and neither the profile nor the price says how much"),
    )
    .with_hint(format!("set `resources.{key}` in the profile, or `defaults` in {}", card.file))
}

/// Processors in thousandths, rounded up; nothing for what is no number of them.
pub(super) fn thousandths(cpu: f64) -> Option<u64> {
    const MOST: f64 = 1e9;
    // A fraction such as 1.1 is a little more than it says once it is binary.
    let count = (cpu * 1_000.0 - 1e-6).ceil();
    (0.0..=MOST).contains(&cpu).then_some(count.max(0.0) as u64)
}

/// Whether one rate asks more than the other for the same thing.
pub(super) fn is_dearer(one: &PriceRate, other: &PriceRate) -> bool {
    let span = |rate: &PriceRate| i128::from(rate.per.span().map_or(1, |span| span.as_millis()));
    let size = |rate: &PriceRate| i128::from(rate.unit.size()) * i128::from(rate.slots.unwrap_or(1));
    let free = |rate: &PriceRate| rate.free.saturating_mul(rate.unit.size());
    // Bounded by the parser: a million dollars, a day and 2³⁰ bytes stay far below an overflow.
    let cost = |rate: &PriceRate, other: &PriceRate| rate.amount.nanos() * span(other) * size(other);
    cost(one, other) > cost(other, one) || free(one) < free(other)
}
