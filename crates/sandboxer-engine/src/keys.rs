//! API keys: shown once, kept as a hash, bound to an actor type, revocable.

use sandboxer_core::ledger::Seat;
use sandboxer_core::{Actor, Dur, Error, ErrorKind, KeyId, Result};
use sandboxer_store::KeyRecord;

use crate::caller::Action;
use crate::{Caller, Engine};

/// What every secret starts with, so that scanners find a leaked one.
const KEY_PREFIX: &str = "sbk_";

/// A new key with its secret, which is not kept anywhere.
#[derive(Clone)]
pub struct NewKey {
    pub record: KeyRecord,
    pub secret: String,
}

impl Engine {
    pub async fn key_create(
        &self,
        caller: &Caller,
        name: &str,
        actor: Actor,
        expires_in: Option<Dur>,
        seat: Seat,
    ) -> Result<NewKey> {
        caller.require(Action::ManageKeys)?;
        if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a key's name has 1 to 128 printable characters",
            ));
        }
        seat.check()?;
        let secret = new_secret()?;
        let now = self.now();
        let record = KeyRecord {
            key_id: KeyId::generate(),
            name: name.to_owned(),
            actor,
            organisation: seat.organisation,
            workspace: seat.workspace,
            hash: sandboxer_core::hash::sha256_hex(secret.as_bytes()),
            created_at: now,
            expires_at: expires_in.map(|span| span.after(now)),
            revoked_at: None,
        };
        self.inner.store.key_insert(&record).await?;
        Ok(NewKey { record, secret })
    }

    pub async fn key_list(&self, caller: &Caller) -> Result<Vec<KeyRecord>> {
        caller.require(Action::ManageKeys)?;
        self.inner.store.key_list().await
    }

    pub async fn key_revoke(&self, caller: &Caller, id: KeyId) -> Result<KeyRecord> {
        caller.require(Action::ManageKeys)?;
        self.inner.store.key_revoke(id, self.now()).await
    }

    /// There is a key that works, so nobody gets in without one.
    pub async fn has_keys(&self) -> Result<bool> {
        let now = self.now();
        Ok(self.inner.store.key_list().await?.iter().any(|key| is_valid(key, now)))
    }

    /// The caller behind a secret. Looked up by hash, so that the time it takes says nothing about the secret.
    pub async fn authenticate(&self, secret: &str) -> Result<Caller> {
        let refused = || {
            Error::new(ErrorKind::Unauthenticated, "the API key is not valid").with_hint(
                "`sandboxer keys create --name NAME` makes one; revoked and expired keys stay refused",
            )
        };
        if !secret.starts_with(KEY_PREFIX) || secret.len() > 128 {
            return Err(refused());
        }
        let hash = sandboxer_core::hash::sha256_hex(secret.as_bytes());
        let key = self.inner.store.key_find(&hash).await?.ok_or_else(refused)?;
        if !is_valid(&key, self.now()) {
            return Err(refused());
        }
        let seat = Seat { organisation: key.organisation, workspace: key.workspace };
        Ok(Caller { seat, ..Caller::with_key(key.actor, key.key_id) })
    }
}

fn is_valid(key: &KeyRecord, now: jiff::Timestamp) -> bool {
    key.revoked_at.is_none() && key.expires_at.is_none_or(|end| end > now)
}

/// 32 bytes from the kernel, as hexadecimal.
fn new_secret() -> Result<String> {
    let mut bytes = [0_u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|source| {
                Error::new(ErrorKind::Internal, "the kernel gave no randomness").with_source(source)
            })?;
    }
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{KEY_PREFIX}{text}"))
}
