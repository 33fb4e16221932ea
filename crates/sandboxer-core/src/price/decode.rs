//! A price file's text to a [`PriceCard`]: every key known, every hole named with its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::civil::Date;

use super::PriceFile;
use super::apply::{is_dearer, thousandths};
use super::card::{Basis, HostPrice, MeterName, PriceCard, PriceDefaults, PricePeriod, PriceRate};
use crate::duration::Dur;
use crate::error::{Error, ErrorKind, Result};
use crate::money::Money;
use crate::profile::MAX_FILE_BYTES;
use crate::profile::decode::Section;
use crate::profile::fields::Fields;
use crate::profile::node::{Node, Path, Value, refuse_source};
use crate::profile::yaml;
use crate::suggest::printable;
use crate::tariff::{Charged, Phase};

static TOP: Section = Section {
    name: "",
    keys: &[
        "extension",
        "currency",
        "as_of",
        "source",
        "basis",
        "minimum",
        "granularity",
        "rates",
        "defaults",
        "hosts",
    ],
};
static RATE: Section = Section {
    name: "rates",
    keys: &["meter", "amount", "per", "unit", "charged", "free", "states", "model", "slots"],
};
static DEFAULTS: Section = Section { name: "defaults", keys: &["vcpu", "memory_mb", "disk_mb"] };
static HOST: Section = Section { name: "hosts", keys: &["amount", "slots"] };

const BASES: &[(&str, Basis)] = &[("metered", Basis::Metered), ("self-hosted", Basis::SelfHosted)];
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

/// Far more than any provider has meters, states and GPU models.
const MAX_RATES: usize = 64;
/// More than anything costs, and low enough that no cost of a sandbox overflows.
const MAX_AMOUNT: Money = Money::from_nanos(1_000_000 * 1_000_000_000);
const MAX_SLOTS: u32 = 1_000_000;
/// Of `source`, and of names.
const MAX_TEXT: usize = 500;
const MAX_NAME: usize = 64;

/// Whose price a file is, by a look at its lines, by parsing it, or by its name; an error if nothing tells.
pub(super) fn extension_of(file: &PriceFile) -> Result<String> {
    let by_name = |error: Error| extension_by_name(&file.name).ok_or(error);
    let text = match &file.text {
        Ok(text) => text,
        Err(error) => return by_name(error.clone()),
    };
    if let Some(extension) = extension_by_lines(text) {
        return Ok(extension);
    }
    match read(file) {
        Ok(root) => match extension_in(&root) {
            Some(extension) => Ok(extension),
            None => card(&root, &file.name)
                .map(|card| card.extension)
                .or_else(|error| by_name(as_price_error(&error))),
        },
        Err(error) => by_name(as_price_error(&error)),
    }
}

pub(super) fn file(file: &PriceFile) -> Result<PriceCard> {
    read(file).and_then(|root| card(&root, &file.name)).map_err(|error| as_price_error(&error))
}

fn read(file: &PriceFile) -> Result<Node> {
    let text = file.text.as_ref().map_err(Clone::clone)?;
    if text.len() > MAX_FILE_BYTES {
        return Err(refuse_source(
            &file.name,
            format!("the file is larger than {} KiB", MAX_FILE_BYTES / 1_024),
        ));
    }
    yaml::read(text, &Arc::from(file.name.as_ref()))
}

/// The reader of profiles finds these faults; here they are faults of another kind of file.
fn as_price_error(error: &Error) -> Error {
    let message = error.to_string();
    let message = message.strip_suffix("; use `extends`").unwrap_or(&message);
    let mut out = Error::new(ErrorKind::InvalidInput, message);
    for (key, value) in error.context() {
        out = out.with_context(key, value.as_str());
    }
    match error.hint() {
        Some(hint) => out.with_hint(hint),
        None => out,
    }
}

fn is_extension(name: &str) -> bool {
    let rest = name.strip_prefix("ext.").unwrap_or_default();
    let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
    !rest.is_empty() && name.len() <= MAX_NAME && rest.chars().all(is_fine)
}

fn extension_in(root: &Node) -> Option<String> {
    match &root.entry("extension")?.node.value {
        Value::Text(text) if is_extension(text) => Some(text.clone()),
        _ => None,
    }
}

/// From the lines of a file, which need not be YAML: a broken one must be known for whose it is.
fn extension_by_lines(text: &str) -> Option<String> {
    let rest = text.lines().find_map(|line| line.strip_prefix("extension:"))?;
    let name = rest.split('#').next()?.trim().trim_matches(['"', '\'']);
    is_extension(name).then(|| name.to_owned())
}

/// `…/ext.e2b.yaml`, as the built-in files are called.
fn extension_by_name(name: &str) -> Option<String> {
    let file = name.rsplit(['/', ':']).next()?;
    let stem = file.strip_suffix(".yaml").or_else(|| file.strip_suffix(".yml"))?;
    is_extension(stem).then(|| stem.to_owned())
}

fn card(root: &Node, name: &str) -> Result<PriceCard> {
    if root.is_null() {
        return Err(root.place.refuse("the file is empty").with_hint("a price needs at least `extension`"));
    }
    let top = Fields::open(root, Path::default(), &TOP)?;
    let extension = top.required_text("extension")?;
    if !is_extension(&extension) {
        let message = format!("`{}` is not the id of an extension", printable(&extension));
        return Err(top
            .refuse_at("extension", message)
            .with_hint("ids are written `ext.name`, in small letters"));
    }
    let currency = top.required_text("currency")?;
    if currency != Money::CURRENCY {
        let message = format!("`{}` does not match: every price and account is in USD", printable(&currency));
        return Err(top
            .refuse_at("currency", message)
            .with_hint("convert the amounts and write `currency: USD`"));
    }
    let basis = top.choice("basis", BASES)?.ok_or_else(|| top.missing("basis"))?;
    let rates = rates(&top, basis)?;
    Ok(PriceCard {
        extension,
        currency,
        as_of: as_of(&top)?,
        source: source(&top)?,
        basis,
        minimum: minimum(&top)?,
        granularity: granularity(&top)?,
        hosts: hosts(&top, &rates)?,
        rates,
        defaults: defaults(&top.section(&DEFAULTS)?)?,
        file: name.to_owned(),
    })
}

fn as_of(top: &Fields<'_>) -> Result<Date> {
    let word = top.required_word("as_of")?;
    word.parse().map_err(|_| {
        top.refuse_at("as_of", format!("`{}` is not a date", printable(&word)))
            .with_hint("dates are written `2026-03-01`")
    })
}

fn source(top: &Fields<'_>) -> Result<String> {
    let source = top.required_text("source")?;
    match source.trim() {
        "" => Err(top.refuse_at("source", "it is empty").with_hint("say where the figures come from")),
        said if said.len() > MAX_TEXT => {
            Err(top.refuse_at("source", format!("it is longer than {MAX_TEXT} bytes")))
        }
        said => Ok(said.to_owned()),
    }
}

fn minimum(top: &Fields<'_>) -> Result<Money> {
    let minimum = top.money("minimum")?.unwrap_or_default();
    within(top, "minimum", minimum).map(|()| minimum)
}

fn granularity(top: &Fields<'_>) -> Result<Dur> {
    let Some(step) = top.duration("granularity")? else { return Ok(Dur::ZERO) };
    if step == Dur::ZERO || step > Dur::from_secs(86_400) {
        let hint = "leave it out where time is not rounded";
        return Err(top.refuse_at("granularity", "it is between `1ms` and `1d`").with_hint(hint));
    }
    Ok(step)
}

fn defaults(fields: &Fields<'_>) -> Result<PriceDefaults> {
    let vcpu = fields.number("vcpu")?;
    let vcpu = vcpu.map(|cpu| thousandths(cpu).filter(|some| *some > 0).ok_or(cpu)).transpose();
    let vcpu =
        vcpu.map_err(|cpu| fields.refuse_at("vcpu", format!("`{cpu}` is not a number of processors")))?;
    Ok(PriceDefaults {
        vcpu_thousandths: vcpu,
        memory_mb: fields.whole("memory_mb")?,
        disk_mb: fields.whole("disk_mb")?,
    })
}

fn rates(top: &Fields<'_>, basis: Basis) -> Result<Vec<PriceRate>> {
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

fn amount(fields: &Fields<'_>, may_be_zero: bool) -> Result<Money> {
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

fn within(fields: &Fields<'_>, key: &str, amount: Money) -> Result<()> {
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

fn slots(fields: &Fields<'_>, otherwise: u32) -> Result<u32> {
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

fn hosts(top: &Fields<'_>, rates: &[PriceRate]) -> Result<BTreeMap<String, HostPrice>> {
    let shared = rates.iter().find(|rate| rate.meter == MeterName::Host).and_then(|rate| rate.slots);
    let Some(shared) = shared else {
        return match top.has("hosts") {
            true => Err(top
                .refuse_at("hosts", "they replace the `host` rate, which is missing")
                .with_hint("add `{ meter: host, amount: 0, per: hour }` to `rates`")),
            false => Ok(BTreeMap::new()),
        };
    };
    let hosts = top.named_mappings("hosts", &HOST, |name, fields| {
        Ok((name.to_owned(), HostPrice { amount: amount(&fields, true)?, slots: slots(&fields, shared)? }))
    })?;
    Ok(hosts.into_iter().collect())
}
