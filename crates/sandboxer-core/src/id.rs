//! Ids: a prefix and a UUIDv7 in lower-case base 32, so that they sort by time and fit in a URL or a file name.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// Crockford's alphabet: no `i`, `l`, `o`, `u`, and in ASCII order, so the text sorts as the number does.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// 26 characters carry 130 bits; a UUID has 128.
const LENGTH: usize = 26;

fn encode(value: u128) -> String {
    (0..LENGTH).rev().map(|place| char::from(ALPHABET[(value >> (place * 5)) as usize & 31])).collect()
}

fn decode(text: &str) -> Option<u128> {
    if text.len() != LENGTH {
        return None;
    }
    let mut value: u128 = 0;
    for byte in text.bytes() {
        let digit = ALPHABET.iter().position(|&c| c == byte)?;
        if value >> 123 != 0 {
            return None;
        }
        value = (value << 5) | digit as u128;
    }
    Some(value)
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal, $missing:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// What every id of this kind starts with.
            pub const PREFIX: &'static str = concat!($prefix, "_");

            /// A new id. The caller passes the UUID so that tests can fix it.
            pub fn new(uuid: uuid::Uuid) -> Self {
                Self(uuid.as_u128())
            }

            /// A new id from the system's clock and randomness.
            pub fn generate() -> Self {
                Self::new(uuid::Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", Self::PREFIX, encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                text.strip_prefix(Self::PREFIX).and_then(decode).map(Self).ok_or_else(|| {
                    Error::new($missing, format!("`{}` is not {} id", crate::suggest::printable(text), $what))
                        .with_hint(concat!("ids look like `", $prefix, "_01jx…` and are printed by the command that made them"))
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::schema::Object::builder()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .description(Some(concat!("Id of ", $what, ", prefix `", $prefix, "_`")))
                    .pattern(Some(concat!("^", $prefix, "_[0-9a-hjkmnp-tv-z]{26}$")))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}
    };
}

id!(
    /// One sandbox.
    SandboxId, "sbx", "a sandbox", ErrorKind::SandboxNotFound
);
id!(
    /// One command run in a sandbox.
    ExecId, "exe", "an exec", ErrorKind::ExecNotFound
);
id!(
    /// One point-in-time checkpoint of a workspace.
    SnapshotId, "snp", "a snapshot", ErrorKind::SnapshotNotFound
);
id!(
    /// One lifecycle fact.
    EventId, "evt", "an event", ErrorKind::NotFound
);
id!(
    /// One API key's public half; the secret half is never stored.
    KeyId, "key", "an API key", ErrorKind::NotFound
);
id!(
    /// One endpoint that events are posted to.
    WebhookId, "whk", "a webhook", ErrorKind::NotFound
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_and_back(value: u128) {
            let id = SandboxId::new(uuid::Uuid::from_u128(value));
            prop_assert_eq!(id.to_string().parse::<SandboxId>().unwrap(), id);
        }

        #[test]
        fn text_sorts_as_the_number_does(a: u128, b: u128) {
            let (a_id, b_id) = (SandboxId::new(uuid::Uuid::from_u128(a)), SandboxId::new(uuid::Uuid::from_u128(b)));
            prop_assert_eq!(a.cmp(&b), a_id.to_string().cmp(&b_id.to_string()));
        }

        #[test]
        fn garbage_is_refused(text in "\\PC{0,40}") {
            prop_assume!(!text.starts_with("sbx_"));
            prop_assert!(text.parse::<SandboxId>().is_err());
        }
    }

    #[test]
    fn a_value_beyond_128_bits_is_refused() {
        assert!("sbx_zzzzzzzzzzzzzzzzzzzzzzzzzz".parse::<SandboxId>().is_err());
        assert!("sbx_7zzzzzzzzzzzzzzzzzzzzzzzzz".parse::<SandboxId>().is_ok());
    }

    #[test]
    fn another_kind_of_id_is_refused() {
        let exec = ExecId::new(uuid::Uuid::from_u128(7)).to_string();
        assert!(exec.parse::<SandboxId>().is_err());
    }
}
