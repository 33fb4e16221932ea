//! Between money and the 64 bits in which it is stored.

use sandboxer_core::ledger::MOST;
use sandboxer_core::{Error, ErrorKind, Money};

use crate::sqlite::fault::Attempt;

/// How far from zero an account may get; the schema says the same.
pub(super) const BOUND: i64 = 9_000_000_000_000_000_000;

/// An amount that is held, charged or allowed: from zero to the most that one transaction moves.
pub(super) fn nanos(what: &str, amount: Money) -> Attempt<i64> {
    if amount < Money::ZERO || amount > MOST {
        let message = format!("{what} of {amount} is not possible");
        return Err(Error::new(ErrorKind::InvalidInput, message)
            .with_hint(format!("from {} to {MOST}", Money::ZERO))
            .into());
    }
    i64::try_from(amount.nanos()).map_err(|_| beyond(what).into())
}

pub(super) fn money(nanos: i64) -> Money {
    Money::from_nanos(i128::from(nanos))
}

/// The sum, within what an account may have.
pub(super) fn add(account: &str, one: i64, other: i64) -> Attempt<i64> {
    one.checked_add(other).filter(|sum| (-BOUND..=BOUND).contains(sum)).ok_or_else(|| beyond(account).into())
}

fn beyond(what: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{what} would leave the range that the ledger can count"))
        .with_hint(format!("an account stays within {} of zero", money(BOUND)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_wraps() {
        assert!(nanos("a hold", Money::from_nanos(-1)).is_err());
        assert!(nanos("a hold", Money::from_nanos(MOST.nanos() + 1)).is_err());
        assert!(nanos("a hold", Money::from_nanos(i128::MAX)).is_err());
        assert_eq!(nanos("a hold", MOST).unwrap(), 1_000_000_000_000_000_000);
        assert!(add("x", i64::MAX, 1).is_err());
        assert!(add("x", -BOUND, -1).is_err());
        assert_eq!(add("x", -BOUND, 1).unwrap(), 1 - BOUND);
    }
}
