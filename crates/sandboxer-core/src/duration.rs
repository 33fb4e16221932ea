//! Durations as people write them: `90s`, `30m`, `2h`, `1d`, `1h30m`, `250ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::suggest::printable;

/// A non-negative span of time in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dur(u64);

/// The longest span that is accepted anywhere: ten years keeps every sum inside the calendar.
const LONGEST_MS: u64 = 10 * 366 * 86_400_000;
/// Largest unit first: the order in which they must be written.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Dur {
    pub const ZERO: Self = Self(0);

    pub const fn from_millis(ms: u64) -> Self {
        Self(if ms > LONGEST_MS { LONGEST_MS } else { ms })
    }

    pub const fn from_secs(seconds: u64) -> Self {
        Self::from_millis(seconds.saturating_mul(1_000))
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }

    pub const fn as_std(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// The moment this long after `start`.
    pub fn after(self, start: jiff::Timestamp) -> jiff::Timestamp {
        start.checked_add(self.as_std()).unwrap_or(jiff::Timestamp::MAX)
    }
}

fn invalid(text: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("`{}` is not a duration: {why}", printable(text)))
        .with_hint("durations are written `90s`, `30m`, `2h`, `1d` or combined as `1h30m`")
}

impl FromStr for Dur {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(invalid(text, "it is empty"));
        }
        let mut total: u64 = 0;
        let mut next_unit = 0;
        while !rest.is_empty() {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            if digits == 0 {
                return Err(invalid(text, "a whole number was expected"));
            }
            let number: u64 = rest[..digits].parse().map_err(|_| invalid(text, "the number is too large"))?;
            rest = &rest[digits..];
            let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
            let unit = &rest[..letters];
            rest = &rest[letters..];
            let place = UNITS.iter().position(|(name, _)| *name == unit).ok_or_else(|| {
                invalid(text, if unit.is_empty() { "the unit is missing" } else { "the unit is unknown" })
            })?;
            if place < next_unit {
                return Err(invalid(text, "units go from large to small, each once"));
            }
            next_unit = place + 1;
            total = number
                .checked_mul(UNITS[place].1)
                .and_then(|part| total.checked_add(part))
                .filter(|sum| *sum <= LONGEST_MS)
                .ok_or_else(|| invalid(text, "it is longer than ten years"))?;
        }
        Ok(Self(total))
    }
}

impl fmt::Display for Dur {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (name, size) in UNITS {
            if rest >= size {
                write!(f, "{}{name}", rest / size)?;
                rest %= size;
            }
        }
        Ok(())
    }
}

impl serde::Serialize for Dur {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Dur {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Dur {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::schema::Object::builder()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some("A duration: `90s`, `30m`, `2h`, `1d`, `1h30m`"))
            .examples([serde_json::json!("2h")])
            .into()
    }
}

impl utoipa::ToSchema for Dur {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_people_write() {
        for (text, ms) in
            [("90s", 90_000), ("30m", 1_800_000), ("1h30m", 5_400_000), ("1d", 86_400_000), ("250ms", 250)]
        {
            assert_eq!(text.parse::<Dur>().unwrap().as_millis(), ms, "{text}");
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        for (text, why) in [
            ("", "empty"),
            ("10", "unit is missing"),
            ("h", "whole number"),
            ("1.5h", "unit is missing"),
            ("-3s", "whole number"),
            ("5x", "unit is unknown"),
            ("30m1h", "large to small"),
            ("1s1s", "large to small"),
            ("99999999999999999999s", "too large"),
            ("99999d", "ten years"),
        ] {
            let error = text.parse::<Dur>().unwrap_err();
            assert!(error.to_string().contains(why), "{text}: {error}");
            assert!(error.hint().is_some());
        }
    }

    proptest! {
        #[test]
        fn text_and_back(ms in 0..LONGEST_MS) {
            let dur = Dur::from_millis(ms);
            prop_assert_eq!(dur.to_string().parse::<Dur>().unwrap(), dur);
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,30}") {
            let _ = text.parse::<Dur>();
        }
    }
}
