//! Each word, what it may be, and what is said when it is something else.

use sandboxer_core::suggest::{did_you_mean, printable};
use sandboxer_core::{Dur, Error, ErrorKind, Money, Result};

use super::{Behaviour, CallFault, CreateFault};

/// Every word, in the order of the documentation.
const KEYS: &[&str] = &[
    "latency",
    "jitter",
    "ready_latency",
    "hang",
    "create",
    "create_times",
    "create_rate",
    "retry_after",
    "death",
    "lost",
    "teardown",
    "teardown_times",
    "status",
    "list",
    "max_sandboxes",
    "require_key",
    "vcpu_second",
    "gib_second",
    "create_fee",
    "region",
    "residency",
    "backing",
];
/// Those that are the provider's own, whoever asks: no request chooses them.
pub(super) const OF_THE_PROVIDER: &[&str] = &["region", "residency", "backing"];
const CREATE: &[(&str, CreateFault)] = &[
    ("ok", CreateFault::Ok),
    ("timeout-after", CreateFault::TimeoutAfter),
    ("timeout-before", CreateFault::TimeoutBefore),
    ("429", CreateFault::TooManyRequests),
    ("402", CreateFault::PaymentRequired),
    ("401", CreateFault::Unauthorized),
    ("500", CreateFault::ServerError),
    ("500-after", CreateFault::ServerErrorAfter),
    ("capacity", CreateFault::Capacity),
];
const CALL: &[(&str, CallFault)] =
    &[("ok", CallFault::Ok), ("500", CallFault::ServerError), ("hang", CallFault::Hang)];
const FLAG: &[(&str, bool)] = &[("true", true), ("false", false)];
const BACKING: &[(&str, bool)] = &[("native", false), ("none", true)];

/// A latency above this is a hang.
const LONGEST_WAIT: Dur = Dur::from_secs(3_600);
/// Less than a sandbox needs to come up would be a create that fails.
const SHORTEST_LIFE: Dur = Dur::from_millis(100);

pub(super) fn set(behaviour: &mut Behaviour, key: &str, value: &str) -> Result<()> {
    match key {
        "latency" => behaviour.latency = wait(key, value)?,
        "jitter" => behaviour.jitter = wait(key, value)?,
        "ready_latency" => behaviour.ready_latency = wait(key, value)?,
        "hang" => behaviour.hang = span(key, value)?,
        "create" => behaviour.create = one_of(key, value, CREATE)?,
        "create_times" => behaviour.create_times = Some(count(key, value)?),
        "create_rate" => behaviour.create_rate = Some(rate(key, value)?),
        "retry_after" => behaviour.retry_after = wait(key, value)?,
        "death" => behaviour.death = Some(life(key, value)?),
        "lost" => behaviour.lost = Some(life(key, value)?),
        "teardown" => behaviour.teardown = one_of(key, value, CALL)?,
        "teardown_times" => behaviour.teardown_times = Some(count(key, value)?),
        "status" => behaviour.status = one_of(key, value, CALL)?,
        "list" => behaviour.list = one_of(key, value, CALL)?,
        "max_sandboxes" => behaviour.max_sandboxes = Some(count(key, value)?),
        "require_key" => behaviour.require_key = one_of(key, value, FLAG)?,
        "vcpu_second" => behaviour.vcpu_second = price(key, value)?,
        "gib_second" => behaviour.gib_second = price(key, value)?,
        "create_fee" => behaviour.create_fee = price(key, value)?,
        "region" => behaviour.region = Some(label(key, value)?),
        "residency" => behaviour.residency = Some(label(key, value)?),
        "backing" => behaviour.nothing_behind = one_of(key, value, BACKING)?,
        _ => return Err(unknown(key)),
    }
    Ok(())
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

fn unknown(key: &str) -> Error {
    let error = invalid(format!("`{}` is no word of the stub's behaviour", printable(key)));
    match did_you_mean(key, KEYS.iter().copied()) {
        Some(hint) => error.with_hint(hint),
        None => error.with_hint(format!("the words are {}", KEYS.join(", "))),
    }
}

pub(super) fn not_a_pair(part: &str) -> Error {
    invalid(format!("`{}` says nothing about the stub's behaviour", printable(part)))
        .with_hint("it is written `word=value`, separated by commas: `latency=200ms,create=429`")
}

pub(super) fn of_the_provider(word: &str) -> Error {
    invalid(format!("`{word}` of the stub's behaviour cannot be chosen by a request"))
        .with_hint("it is the provider's own: set it in SANDBOXER_STUB or in behaviour.toml")
}

pub(super) fn not_a_value(key: &str) -> Error {
    invalid(format!("`{}` of the stub's behaviour is neither text, number nor flag", printable(key)))
}

fn wrong(key: &str, value: &str, what: &str) -> Error {
    invalid(format!("`{key}={}` of the stub's behaviour: {what}", printable(value)))
}

fn one_of<T: Copy>(key: &str, value: &str, choices: &[(&'static str, T)]) -> Result<T> {
    if let Some((_, found)) = choices.iter().find(|(name, _)| *name == value) {
        return Ok(*found);
    }
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    let error = wrong(key, value, "there is no such value");
    // Of those equally near, the one that begins alike: `501` is rather `500` than `401`.
    let alike = |name: &&str| name.bytes().zip(value.bytes()).take_while(|(a, b)| a == b).count();
    let mut nearest = names.clone();
    nearest.sort_by_key(|name| std::cmp::Reverse(alike(name)));
    Err(match did_you_mean(value, nearest) {
        Some(hint) => error.with_hint(hint),
        None => error.with_hint(format!("it is one of {}", names.join(", "))),
    })
}

fn span(key: &str, value: &str) -> Result<Dur> {
    value.parse().map_err(|source: Error| {
        let hint = source.hint().unwrap_or_default().to_owned();
        wrong(key, value, "a duration was expected").with_hint(hint).with_source(source)
    })
}

fn wait(key: &str, value: &str) -> Result<Dur> {
    let span = span(key, value)?;
    if span > LONGEST_WAIT {
        return Err(wrong(key, value, &format!("it is above {LONGEST_WAIT}")));
    }
    Ok(span)
}

fn life(key: &str, value: &str) -> Result<Dur> {
    let span = span(key, value)?;
    if span < SHORTEST_LIFE {
        return Err(wrong(key, value, &format!("it is below {SHORTEST_LIFE}")));
    }
    Ok(span)
}

fn count(key: &str, value: &str) -> Result<u64> {
    let most = u64::from(u32::MAX);
    value
        .parse()
        .ok()
        .filter(|count| *count <= most)
        .ok_or_else(|| wrong(key, value, &format!("a whole number up to {most} was expected")))
}

fn rate(key: &str, value: &str) -> Result<f64> {
    value
        .parse()
        .ok()
        .filter(|rate| (0.0..=1.0).contains(rate))
        .ok_or_else(|| wrong(key, value, "a number from 0 to 1 was expected"))
}

fn label(key: &str, value: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if value.is_empty() || value.len() > 64 || !value.chars().all(plain) {
        return Err(wrong(key, value, "a short name of letters, digits, `-` and `_` was expected"));
    }
    Ok(value.to_owned())
}

fn price(key: &str, value: &str) -> Result<Money> {
    let amount: Money = value.parse().map_err(|source: Error| {
        let hint = source.hint().unwrap_or_default().to_owned();
        wrong(key, value, "an amount was expected").with_hint(hint).with_source(source)
    })?;
    if amount < Money::ZERO {
        return Err(wrong(key, value, "it is below zero"));
    }
    Ok(amount)
}
