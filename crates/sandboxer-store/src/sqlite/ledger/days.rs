//! Days of the calendar in UTC, counted since 1970, and how a hold is spread over them.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use sandboxer_core::ledger::Period;

use crate::sqlite::fault::{Attempt, Fault};

const DAY: i64 = 86_400;

/// The day of a moment with the first and the last of its month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Days {
    pub(super) day: i64,
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Days {
    pub(super) fn of(moment: Timestamp) -> Self {
        let day = moment.as_second().div_euclid(DAY);
        let date = moment.to_zoned(TimeZone::UTC).date();
        let first = day - i64::from(date.day() - 1);
        Self { day, first, last: first + i64::from(date.days_in_month() - 1) }
    }

    /// From which day to which a period goes.
    #[cfg(test)]
    pub(super) fn span(self, period: Period) -> (i64, i64) {
        match period {
            Period::Day => (self.day, self.day),
            Period::Month => (self.first, self.last),
        }
    }
}

/// When a period that has begun is over, for people.
pub(super) fn next(period: Period) -> &'static str {
    match period {
        Period::Day => "until midnight in UTC",
        Period::Month => "until the next month begins in UTC",
    }
}

/// What of a hold counts for which day, in order of the days.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct Parts(Vec<(i64, i64)>);

impl Parts {
    /// More is held, on this day. What changes in the days' sums.
    pub(super) fn add(&mut self, day: i64, amount: i64) -> Attempt<Vec<(i64, i64)>> {
        match self.0.binary_search_by_key(&day, |part| part.0) {
            Ok(place) => {
                let sum = self.0[place].1.checked_add(amount);
                self.0[place].1 = sum.ok_or_else(|| Fault::internal("a hold beyond all bounds"))?;
            }
            Err(place) => self.0.insert(place, (day, amount)),
        }
        Ok(vec![(day, amount)])
    }

    /// Less is held: the latest days get theirs back first, because what was used was used before.
    pub(super) fn take(&mut self, amount: i64) -> Attempt<Vec<(i64, i64)>> {
        let mut left = amount;
        let mut out = Vec::new();
        while left > 0 {
            let part = self.0.last_mut().ok_or_else(|| Fault::internal("a hold without its days"))?;
            let back = left.min(part.1);
            part.1 -= back;
            left -= back;
            out.push((part.0, -back));
            if part.1 == 0 {
                self.0.pop();
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_have_their_days() {
        let days = |text: &str| Days::of(text.parse().unwrap());
        let leap = days("2028-02-29T23:59:59.999999Z");
        assert_eq!(leap.last, leap.day);
        assert_eq!(leap.last - leap.first, 28);
        assert_eq!(days("2028-03-01T00:00:00Z").first, leap.day + 1);
        let before = days("1969-12-31T23:59:59Z");
        assert_eq!((before.day, before.first, before.last), (-1, -31, -1));
        assert_eq!(leap.span(Period::Day), (leap.day, leap.day));
        assert_eq!(leap.span(Period::Month), (leap.first, leap.last));
    }

    #[test]
    fn the_latest_days_are_given_back_first() {
        let mut parts = Parts::default();
        parts.add(7, 10).unwrap();
        parts.add(8, 5).unwrap();
        // A clock that went back.
        parts.add(6, 1).unwrap();
        parts.add(7, 1).unwrap();
        assert_eq!(parts.take(9).unwrap(), [(8, -5), (7, -4)]);
        assert_eq!(parts, Parts(vec![(6, 1), (7, 7)]));
        assert_eq!(parts.take(8).unwrap(), [(7, -7), (6, -1)]);
        assert!(parts.take(1).is_err());
    }
}
