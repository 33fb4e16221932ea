//! Values with a form of their own.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use sandboxer_core::profile::Scope;
use sandboxer_core::{Actor, Dur, Error, Money, State};

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

pub(super) fn money(text: &str) -> Result<Money, String> {
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
