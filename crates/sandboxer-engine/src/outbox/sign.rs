//! Signatures as Standard Webhooks 1.0 defines them: HMAC-SHA256 over id, time and body.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::vault::Secret;

/// What every secret starts with, so that scanners find a leaked one.
const PREFIX: &str = "whsec_";
/// The standard asks for 24 to 64.
const SECRET_BYTES: usize = 32;

/// A secret from the kernel's randomness.
pub(super) fn new_secret() -> Result<Secret> {
    let mut bytes = [0_u8; SECRET_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|source| {
                Error::new(ErrorKind::Internal, "the kernel gave no randomness").with_source(source)
            })?;
    }
    Ok(Secret::new(format!("{PREFIX}{}", BASE64_STANDARD.encode(bytes))))
}

/// The value of `webhook-signature`: one signature per secret.
pub(super) fn signatures(secrets: &[Secret], id: &str, seconds: i64, body: &[u8]) -> Result<String> {
    let signed = secrets.iter().map(|secret| signature(secret, id, seconds, body));
    Ok(signed.collect::<Result<Vec<_>>>()?.join(" "))
}

fn signature(secret: &Secret, id: &str, seconds: i64, body: &[u8]) -> Result<String> {
    let key = secret.expose().strip_prefix(PREFIX).and_then(|text| BASE64_STANDARD.decode(text).ok());
    let key = key.ok_or_else(|| {
        Error::new(ErrorKind::Internal, "a webhook's secret is not one")
            .with_hint("`sandboxer webhooks rotate` makes a new one")
    })?;
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &key));
    context.update(format!("{id}.{seconds}.").as_bytes());
    context.update(body);
    Ok(format!("v1,{}", BASE64_STANDARD.encode(context.sign())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_is_signed_as_it_says() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let found =
            signatures(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(found.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secrets_differ_and_have_the_right_length() {
        let (one, two) = (new_secret().unwrap(), new_secret().unwrap());
        assert_ne!(one, two);
        let bytes = BASE64_STANDARD.decode(one.expose().strip_prefix("whsec_").unwrap()).unwrap();
        assert!((24..=64).contains(&bytes.len()));
        assert_eq!(signatures(&[one, two], "evt_1", 1, b"x").unwrap().split(' ').count(), 2);
        assert!(signatures(&[Secret::new("nonsense")], "evt_1", 1, b"x").is_err());
    }
}
