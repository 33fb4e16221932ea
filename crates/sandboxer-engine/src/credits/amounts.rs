//! Amounts as people write them.

use sandboxer_core::ledger::{MOST, check_amount};
use sandboxer_core::{Error, ErrorKind, Money, Result};

/// An amount that somebody writes and that can be moved; the error says what is wrong with it.
pub fn parse_amount(text: &str) -> Result<Money> {
    check_amount(text.parse()?)
}

/// An amount by which an account is put right: above or below zero.
pub fn parse_adjustment(text: &str) -> Result<Money> {
    let amount: Money = text.parse()?;
    if amount == Money::ZERO {
        return Err(Error::new(ErrorKind::InvalidInput, "an adjustment of zero changes nothing"));
    }
    check_amount(Money::from_nanos(amount.nanos().abs())).map(|_| amount)
}

/// An amount that is a bound: zero means nothing at all.
pub(super) fn check_bound(amount: Money) -> Result<Money> {
    if (Money::ZERO..=MOST).contains(&amount) {
        return Ok(amount);
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("{amount} is not a limit"))
        .with_hint(format!("limits go from 0 to {MOST}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_say_what_is_wrong_with_them() {
        assert_eq!(parse_amount("12.5").unwrap().to_string(), "12.50 USD");
        assert_eq!(parse_amount("12.5 USD").unwrap().to_string(), "12.50 USD");
        for (text, why) in [
            ("5 EUR", "is in EUR"),
            ("5EUR", "is in EUR"),
            ("NaN", "a decimal number was expected"),
            ("inf", "a decimal number was expected"),
            ("0", "above zero"),
            ("-3", "above zero"),
            ("0.0000000001", "more than nine decimals"),
            ("99999999999999999999", "too large"),
            ("1000000000.01", "the most is"),
            ("1e3", "a decimal number was expected"),
        ] {
            let error = parse_amount(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }
}
