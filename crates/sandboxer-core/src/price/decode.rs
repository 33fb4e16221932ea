//! A price file's text to a [`PriceCard`]: every key known, every hole named with its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::civil::Date;

use super::PriceFile;
use super::apply::thousandths;
use super::card::{Basis, HostPrice, MeterName, PriceCard, PriceDefaults, PriceRate};
use super::rate::{amount, bundled, rates, slots, within};
use super::whose::is_extension;
use crate::duration::Dur;
use crate::error::{Error, ErrorKind, Result};
use crate::money::Money;
use crate::profile::MAX_FILE_BYTES;
use crate::profile::decode::Section;
use crate::profile::fields::Fields;
use crate::profile::node::{Node, Path, refuse_source};
use crate::profile::yaml;
use crate::suggest::printable;

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
        "bundled",
        "defaults",
        "hosts",
    ],
};
static DEFAULTS: Section = Section { name: "defaults", keys: &["vcpu", "memory_mb", "disk_mb"] };
static HOST: Section = Section { name: "hosts", keys: &["amount", "slots"] };

const BASES: &[(&str, Basis)] = &[("metered", Basis::Metered), ("self-hosted", Basis::SelfHosted)];
/// Of `source`.
const MAX_TEXT: usize = 500;

pub(super) fn file(file: &PriceFile) -> Result<PriceCard> {
    read(file).and_then(|root| card(&root, &file.name)).map_err(|error| as_price_error(&error))
}

pub(super) fn read(file: &PriceFile) -> Result<Node> {
    let text = file.text()?;
    if text.len() > MAX_FILE_BYTES {
        return Err(refuse_source(
            &file.name,
            format!("the file is larger than {} KiB", MAX_FILE_BYTES / 1_024),
        ));
    }
    yaml::read(text, &Arc::from(file.name.as_ref()))
}

/// The reader of profiles finds these faults; here they are faults of another kind of file.
pub(super) fn as_price_error(error: &Error) -> Error {
    let message = error.chain().join(": ");
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

pub(super) fn card(root: &Node, name: &str) -> Result<PriceCard> {
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
        defaults: defaults(&top.section(&DEFAULTS)?)?,
        bundled: bundled(&top, basis, &rates)?,
        rates,
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
