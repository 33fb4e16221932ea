//! Query strings, strictly: an unknown or doubled parameter is an error with a suggestion, never ignored.

use std::borrow::Cow;
use std::str::FromStr;

use sandboxer_core::page::Limit;
use sandboxer_core::suggest::{did_you_mean, printable};
use sandboxer_core::{Error, ErrorKind, Result};

pub(crate) struct Params<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Params<'a> {
    /// Each of `known` at most once.
    pub(crate) fn parse(query: Option<&'a str>, known: &[&'static str]) -> Result<Self> {
        Self::parse_with(query, known, &[])
    }

    /// Each of `known` at most once, each of `repeatable` as often as wanted.
    pub(crate) fn parse_with(
        query: Option<&'a str>,
        known: &[&'static str],
        repeatable: &[&'static str],
    ) -> Result<Self> {
        let mut pairs: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let name_text = name.as_ref();
            if known.contains(&name_text) {
                if pairs.iter().any(|(other, _)| other == name_text) {
                    return Err(invalid(format!("the parameter `{name_text}` is given twice")));
                }
            } else if !repeatable.contains(&name_text) {
                return Err(unknown(name_text, known.iter().chain(repeatable).copied().collect()));
            }
            pairs.push((name, value));
        }
        Ok(Self { pairs })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(other, _)| other.as_ref() == name).map(|(_, value)| value.as_ref())
    }

    pub(crate) fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s str> {
        self.pairs.iter().filter(move |(other, _)| other.as_ref() == name).map(|(_, value)| value.as_ref())
    }

    pub(crate) fn required(&self, name: &str) -> Result<&str> {
        self.get(name).ok_or_else(|| invalid(format!("the parameter `{name}` is missing")))
    }

    /// Absent is false; `?follow` and `?follow=true` are true.
    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        match self.get(name) {
            None | Some("false" | "0") => Ok(false),
            Some("" | "true" | "1") => Ok(true),
            Some(other) => Err(invalid(format!("`{name}` is `true` or `false`, not `{}`", printable(other)))),
        }
    }

    /// A value whose own type says what is wrong with it.
    pub(crate) fn typed<T: FromStr<Err = Error>>(&self, name: &str) -> Result<Option<T>> {
        self.get(name).map(str::parse).transpose()
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| invalid(format!("`{name}` is a whole number, not `{}`", printable(text))))
        };
        self.get(name).map(parse).transpose()
    }

    /// A moment such as `2026-11-16T10:00:00Z`, or a day, which means its beginning in UTC.
    pub(crate) fn moment(&self, name: &str) -> Result<Option<jiff::Timestamp>> {
        let parse = |text: &str| {
            let day = || text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
            text.parse().ok().or_else(|| day().map(|zoned| zoned.timestamp())).ok_or_else(|| {
                invalid(format!("`{name}` is a time, not `{}`", printable(text)))
                    .with_hint("times are written `2026-11-16T10:00:00Z`, days `2026-11-16`")
            })
        };
        self.get(name).map(parse).transpose()
    }

    pub(crate) fn limit(&self) -> Result<Limit> {
        self.number("limit")?.map_or(Ok(Limit::DEFAULT), Limit::new)
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

fn unknown(name: &str, known: Vec<&'static str>) -> Error {
    let error = invalid(format!("there is no parameter `{}`", printable(name)));
    match did_you_mean(name, known.iter().copied()) {
        Some(hint) => error.with_hint(hint),
        None if known.is_empty() => error.with_hint("this path takes no parameters"),
        None => error.with_hint(format!("known are {}", known.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_named_and_doubles_are_refused() {
        let error = Params::parse(Some("limt=3"), &["limit", "cursor"]).err().unwrap();
        assert_eq!(error.hint(), Some("did you mean `limit`?"));
        assert!(Params::parse(Some("limit=3&limit=4"), &["limit"]).is_err());
        let both = Params::parse_with(Some("label=a%3Db&label=c=d"), &[], &["label"]).unwrap();
        assert_eq!(both.all("label").collect::<Vec<_>>(), ["a=b", "c=d"]);
    }

    #[test]
    fn flags_and_numbers() {
        let params = Params::parse(Some("a&b=false&c=maybe&n=-1"), &["a", "b", "c", "n"]).unwrap();
        assert!(params.flag("a").unwrap());
        assert!(!params.flag("b").unwrap());
        assert!(params.flag("c").is_err());
        assert!(params.number::<u64>("n").is_err());
    }
}
