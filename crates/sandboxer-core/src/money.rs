//! Money: an integer number of nano-dollars inside, a decimal string with its currency outside.
//!
//! Rates go down to 1.4e-5 dollars for a second of a virtual processor, which is why the unit is so small.
//! Floating point never touches an amount.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::suggest::printable;

/// An amount in nano-dollars; negative for a debit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(i128);

const NANOS_PER_DOLLAR: i128 = 1_000_000_000;
const DOLLAR: u64 = 1_000_000_000;
/// The largest accepted amount, a million million dollars: far above any bill and far below an overflow.
const LIMIT: i128 = 1_000_000_000_000 * NANOS_PER_DOLLAR;

impl Money {
    pub const ZERO: Self = Self(0);
    pub const CURRENCY: &'static str = "USD";

    pub const fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }

    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// The sum, or an error where it leaves the accepted range.
    pub fn checked_add(self, other: Self) -> Result<Self, Error> {
        self.0.checked_add(other.0).filter(|sum| sum.abs() <= LIMIT).map(Self).ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, "the amount leaves the accepted range".to_owned())
        })
    }
}

fn invalid(text: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("`{}` is not an amount: {why}", printable(text)))
        .with_hint("amounts are decimal dollars such as `12.50` or `0.000014`, with at most nine decimals")
}

/// The currency behind a number, where it is another one than ours.
fn foreign_currency(bare: &str) -> Option<&str> {
    let word = bare.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let is_code = word.len() == 3 && word.bytes().all(|b| b.is_ascii_uppercase());
    (is_code && word.len() < bare.len() && word != Money::CURRENCY).then_some(word)
}

impl FromStr for Money {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bare = text.trim();
        if let Some(other) = foreign_currency(bare) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("`{}` is in {other}, and accounts are kept in {}", printable(text), Self::CURRENCY),
            )
            .with_hint("change it first; no rate of exchange is known here"));
        }
        let bare = bare.strip_suffix(Self::CURRENCY).map_or(bare, str::trim_end);
        let (sign, digits) = match bare.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, bare),
        };
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
        let only_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !only_digits(whole) || !only_digits(decimals) || digits.ends_with('.') {
            return Err(invalid(text, "a decimal number was expected"));
        }
        if decimals.len() > 9 {
            return Err(invalid(text, "it has more than nine decimals"));
        }
        let whole: i128 = whole.parse().map_err(|_| invalid(text, "it is too large"))?;
        let nanos: i128 =
            format!("{decimals:0<9}").parse().map_err(|_| invalid(text, "a decimal number was expected"))?;
        whole
            .checked_mul(NANOS_PER_DOLLAR)
            .map(|dollars| dollars + nanos)
            .filter(|sum| *sum <= LIMIT)
            .map(|sum| Self(sign * sum))
            .ok_or_else(|| invalid(text, "it is too large"))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        // What prices and bills are fits into 64 bits, whose division costs a tenth.
        let (whole, mut rest) = match u64::try_from(self.0.unsigned_abs()) {
            Ok(nanos) => (u128::from(nanos / DOLLAR), nanos % DOLLAR),
            Err(_) => {
                let (nanos, dollar) = (self.0.unsigned_abs(), u128::from(DOLLAR));
                (nanos / dollar, (nanos % dollar) as u64)
            }
        };
        let mut decimals = [b'0'; 9];
        for digit in decimals.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        let decimals = std::str::from_utf8(&decimals).map_err(|_| fmt::Error)?;
        let shown = decimals.trim_end_matches('0');
        // Two decimals at the least, as people read prices.
        if let Ok(whole) = u64::try_from(whole) {
            return write!(f, "{sign}{whole}.{shown:0<2} {}", Self::CURRENCY);
        }
        write!(f, "{sign}{whole}.{shown:0<2} {}", Self::CURRENCY)
    }
}

impl serde::Serialize for Money {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Money {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amount;
        impl serde::de::Visitor<'_> for Amount {
            type Value = Money;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount in quotes: write \"0.1\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Money, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Amount)
    }
}

impl utoipa::PartialSchema for Money {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::schema::Object::builder()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some("A decimal amount with its currency, exact to nine decimals"))
            .examples([serde_json::json!("0.083 USD")])
            .into()
    }
}

impl utoipa::ToSchema for Money {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prices_as_people_write_them() {
        assert_eq!("0.000014".parse::<Money>().unwrap().nanos(), 14_000);
        assert_eq!("12.5 USD".parse::<Money>().unwrap().to_string(), "12.50 USD");
        assert_eq!(Money::ZERO.to_string(), "0.00 USD");
    }

    #[test]
    fn what_is_refused() {
        for text in
            ["", "NaN", "inf", "1e5", "1.", ".5", "0.0000000001", "99999999999999999", "1,5", "5 EUR", "--1"]
        {
            assert!(text.parse::<Money>().is_err(), "{text}");
        }
    }

    #[test]
    fn another_currency_is_named() {
        for text in ["5 EUR", "5EUR", " 0.5 CHF "] {
            let error = text.parse::<Money>().unwrap_err();
            assert!(error.to_string().contains("accounts are kept in USD"), "{error}");
        }
        assert!("NaN".parse::<Money>().unwrap_err().to_string().contains("a decimal number was expected"));
    }

    proptest! {
        #[test]
        fn text_and_back(nanos in -LIMIT..LIMIT) {
            let money = Money::from_nanos(nanos);
            prop_assert_eq!(money.to_string().parse::<Money>().unwrap(), money);
        }
    }
}
