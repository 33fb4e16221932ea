//! Values with a form of their own.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::ledger::Period;
use sandboxer_core::profile::{Hedge, HedgeAfter, Scope, Strategy};
use sandboxer_core::{Actor, Dur, Error, Money, State};
use sandboxer_store::EventPattern;

/// The message with its hint: clap has one place for both.
fn told(error: &Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error}\n{hint}"),
        None => error.to_string(),
    }
}

pub(super) fn dur(text: &str) -> Result<Dur, String> {
    text.parse().map_err(|error| told(&error))
}

/// Money that is a bound: zero or more.
pub(super) fn bound(text: &str) -> Result<Money, String> {
    match text.parse::<Money>() {
        Ok(amount) if amount < Money::ZERO => Err(format!("{amount} is not a limit: it is below zero")),
        other => other.map_err(|error| told(&error)),
    }
}

/// Money by which an account is put right.
pub(super) fn adjustment(text: &str) -> Result<Money, String> {
    sandboxer_engine::parse_adjustment(text).map_err(|error| told(&error))
}

/// Money that can be moved: above zero, in our currency.
pub(super) fn amount(text: &str) -> Result<Money, String> {
    sandboxer_engine::parse_amount(text).map_err(|error| told(&error))
}

pub(super) fn month(text: &str) -> Result<sandboxer_engine::Month, String> {
    text.parse().map_err(|error| told(&error))
}

/// A moment, or a day, which means its beginning in UTC.
pub(super) fn moment(text: &str) -> Result<jiff::Timestamp, String> {
    let day = || text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    text.parse().ok().or_else(|| day().map(|zoned| zoned.timestamp())).ok_or_else(|| {
        "it is not a time\ntimes are written `2026-11-16T10:00:00Z`, days `2026-11-16`".to_owned()
    })
}

pub(super) fn period() -> impl TypedValueParser<Value = Period> {
    PossibleValuesParser::new([Period::Day, Period::Month].map(Period::as_str))
        .try_map(|text| text.parse::<Period>())
}

pub(super) fn strategy() -> impl TypedValueParser<Value = Strategy> {
    let find =
        |text: String| Strategy::ALL.iter().find(|(name, _)| *name == text).map(|(_, strategy)| *strategy);
    PossibleValuesParser::new(Strategy::ALL.iter().map(|(name, _)| *name))
        .map(move |text| find(text).unwrap_or_default())
}

pub(super) fn isolation() -> impl TypedValueParser<Value = IsolationLevel> {
    use IsolationLevel::{Container, Microvm, Network, Policy};
    const ALL: [IsolationLevel; 4] = [Network, Policy, Container, Microvm];
    PossibleValuesParser::new(ALL.map(IsolationLevel::as_str))
        .map(|text| ALL.into_iter().find(|level| level.as_str() == text).unwrap_or_default())
}

/// `on`, `off`, or how long to wait for the first.
pub(super) fn hedge(text: &str) -> Result<Hedge, String> {
    match text {
        "on" | "true" => Ok(Hedge::Flag(true)),
        "off" | "false" => Ok(Hedge::Flag(false)),
        text => dur(text).map(|after| Hedge::After(HedgeAfter { after })),
    }
}

/// `ext.x=3`.
pub(super) fn weight(text: &str) -> Result<(String, u32), String> {
    let (name, weight) = pair(text)?;
    weight.parse().map(|weight| (name, weight)).map_err(|_| "the weight is a whole number".to_owned())
}

pub(super) fn pattern(text: &str) -> Result<EventPattern, String> {
    text.parse().map_err(|error| told(&error))
}

/// `key=value`; the value may be empty and may contain `=`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the key before `=` is empty".into()),
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err("`key=value` was expected".into()),
    }
}

/// `key=value`, or `key` alone for the value that it has in this process.
pub(super) fn env_pair(text: &str) -> Result<(String, String), String> {
    if text.contains('=') || text.is_empty() {
        return pair(text);
    }
    match std::env::var(text) {
        Ok(value) => Ok((text.to_owned(), value)),
        Err(_) => Err(format!("`{text}` is not set here; write `{text}=value`")),
    }
}

pub(super) fn state() -> impl TypedValueParser<Value = State> {
    PossibleValuesParser::new(State::ALL.map(State::as_str)).try_map(|text| text.parse::<State>())
}

pub(super) fn actor() -> impl TypedValueParser<Value = Actor> {
    PossibleValuesParser::new(Actor::ALL.map(Actor::as_str)).try_map(|text| text.parse::<Actor>())
}

pub(super) fn scope() -> impl TypedValueParser<Value = Scope> {
    const ALL: [Scope; 3] = [Scope::Session, Scope::Agent, Scope::Shared];
    PossibleValuesParser::new(ALL.map(Scope::as_str))
        .map(|text| ALL.into_iter().find(|scope| scope.as_str() == text).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_what_follows_the_first_sign() {
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(pair("a="), Ok(("a".into(), String::new())));
        assert!(pair("a").is_err());
        assert!(pair("=b").is_err());
    }

    #[test]
    fn a_bad_duration_says_how_they_are_written() {
        let said = dur("5 parsecs").unwrap_err();
        assert!(said.contains("durations are written"), "{said}");
    }
}
