//! Months of the calendar, in UTC.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};

/// A month of the calendar, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Month(Date);

impl std::str::FromStr for Month {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(ErrorKind::InvalidInput, format!("`{}` is not a month", printable(text)))
                .with_hint("months are written `2026-11`")
        };
        let is_shaped = text.len() == 7
            && text.bytes().enumerate().all(|(at, b)| if at == 4 { b == b'-' } else { b.is_ascii_digit() });
        let year: i16 = text.get(..4).and_then(|year| year.parse().ok()).ok_or_else(wrong)?;
        let month: i8 = text.get(5..).and_then(|month| month.parse().ok()).ok_or_else(wrong)?;
        if !is_shaped || !(1970..=9998).contains(&year) {
            return Err(wrong());
        }
        Date::new(year, month, 1).map(Self).map_err(|_| wrong())
    }
}

impl std::fmt::Display for Month {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}", self.0.year(), self.0.month())
    }
}

impl Month {
    /// Its first moment and the first moment after it.
    pub(super) fn bounds(self) -> Result<(Timestamp, Timestamp)> {
        let start = |date: Date| {
            date.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp()).map_err(|source| {
                Error::new(ErrorKind::InvalidInput, "the month is out of range").with_source(source)
            })
        };
        let next = if self.0.month() == 12 {
            Date::new(self.0.year() + 1, 1, 1)
        } else {
            Date::new(self.0.year(), self.0.month() + 1, 1)
        };
        let next = next.map_err(|source| {
            Error::new(ErrorKind::InvalidInput, "the month is out of range").with_source(source)
        })?;
        Ok((start(self.0)?, start(next)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_and_their_bounds() {
        let (from, until) = "2026-12".parse::<Month>().unwrap().bounds().unwrap();
        assert_eq!(
            (from.to_string(), until.to_string()),
            ("2026-12-01T00:00:00Z".into(), "2027-01-01T00:00:00Z".into())
        );
        assert_eq!("2026-02".parse::<Month>().unwrap().to_string(), "2026-02");
        for text in
            ["", "2026", "2026-13", "2026-00", "26-11", "2026-1", "2026/11", "9999-12", "-026-11", "+026-11"]
        {
            assert!(text.parse::<Month>().is_err(), "{text}");
        }
    }
}
