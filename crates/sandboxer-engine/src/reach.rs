//! The way to a backend: with the platform's key, or with the workspace's own where the sandbox was made with that.
//!
//! Whoever asks a backend about something that has a row gets the extension here and nowhere else. A sandbox in a
//! workspace's own account cannot be reached with the platform's key, and must not be: that is somebody else's account.

use std::sync::Arc;

use sandboxer_core::extension::{CleanupReport, Credential, Description, Extension, Handle, Life};
use sandboxer_core::ledger::Seat;
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::tariff::ProviderKey;
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use sandboxer_store::Stored;

use crate::Engine;

/// The workspace in whose own account a sandbox is; none where it is in the platform's.
pub(crate) fn own_key_of(record: &SandboxRecord) -> Option<Seat> {
    let bill = record.bill.as_ref().filter(|bill| bill.terms.provider_key == ProviderKey::Own)?;
    let (organisation, workspace) = (bill.payer.organisation.clone(), bill.payer.workspace.clone());
    Some(Seat { organisation, workspace })
}

impl Engine {
    /// The backend of a sandbox, with the key that it was made with. An error where that key is not there: the platform's
    /// would find nothing, and what it made would be charged to somebody else.
    pub(crate) async fn extension_of(&self, record: &SandboxRecord) -> Result<Arc<dyn Extension>> {
        self.extension_in(&record.sandbox.extension, own_key_of(record).as_ref()).await
    }

    /// An extension in the account of a workspace, or in the platform's.
    pub(crate) async fn extension_in(&self, id: &str, seat: Option<&Seat>) -> Result<Arc<dyn Extension>> {
        let extension = self.inner.registry.get(id)?;
        let Some(seat) = seat else { return Ok(extension) };
        let key = self.key_of(seat, id).await?;
        extension.with_key(&key).ok_or_else(|| {
            Error::unsupported(id, "keys of a workspace's own")
                .with_hint("`sandboxer credits provider-keys remove` goes back to the platform's")
                .without_effect()
        })
    }

    /// The key that a workspace has at a provider now. One that was replaced holds from the next call on.
    pub(crate) async fn key_of(&self, seat: &Seat, extension: &str) -> Result<Credential> {
        let own = self.inner.store.own_key(&seat.organisation, &seat.workspace, extension).await?;
        let secret = match &own {
            Some(own) => self.vault()?.get(&own.secret)?,
            None => None,
        };
        let secret = secret.ok_or_else(|| {
            Error::new(
                ErrorKind::Refused,
                format!("the key of workspace {} for {extension} is not there any more", seat.workspace),
            )
            .with_hint("`sandboxer credits provider-keys set` stores it again")
            .without_effect()
        })?;
        Ok(Credential::new(secret.expose()))
    }

    /// What the extension of a sandbox is, which no key changes.
    pub(crate) fn description_of(&self, stored: &Stored) -> Result<Description> {
        Ok(self.inner.registry.get(&stored.record.sandbox.extension)?.describe())
    }

    /// How long a provision of this sandbox may take.
    pub(crate) fn provision_limit(&self, stored: &Stored) -> Result<Dur> {
        let extension = self.inner.registry.get(&stored.record.sandbox.extension)?;
        let longer = extension.provision_timeout(&stored.record.spec);
        Ok(self.inner.limits.provision_timeout.max(longer.unwrap_or_default()))
    }

    /// Whose sandbox it is, as its bill says, or else the key that asked for it.
    pub(crate) async fn seat_of(&self, record: &SandboxRecord) -> Result<Seat> {
        match &record.bill {
            Some(bill) => Ok(Seat {
                organisation: bill.payer.organisation.clone(),
                workspace: bill.payer.workspace.clone(),
            }),
            None => Ok(self.payer_of(record).await?.seat),
        }
    }

    /// What its backend says of a sandbox's life. That it is not there is no answer where the key may be of another
    /// account; a backend that says when it ended knows it.
    pub(crate) async fn life(&self, record: &SandboxRecord, handle: &Handle) -> Result<Life> {
        let life = self.extension_of(record).await?.life(handle).await?;
        if life == (Life::Ended { at: None }) {
            self.check_key(record, ErrorKind::Unreachable).await?;
        }
        Ok(life)
    }

    /// A teardown that found nothing is no proof that nothing is there where the key may be of another account.
    pub(crate) async fn check_account(&self, record: &SandboxRecord, report: &CleanupReport) -> Result<()> {
        if report.removed.is_empty() {
            self.check_key(record, ErrorKind::CleanupFailed).await
        } else {
            Ok(())
        }
    }

    /// Whether what the backend does not find is not there. At the deadline it is: the provider ended it by itself.
    async fn check_key(&self, record: &SandboxRecord, otherwise: ErrorKind) -> Result<()> {
        let made_with = record.bill.as_ref().and_then(|bill| bill.own_key.as_deref());
        let (Some(made_with), Some(seat)) = (made_with, own_key_of(record)) else { return Ok(()) };
        let extension = &record.sandbox.extension;
        if record.sandbox.expires_at <= self.now()
            || self.key_of(&seat, extension).await?.fingerprint() == made_with
        {
            return Ok(());
        }
        Err(Error::new(
            otherwise,
            format!(
                "the key of workspace {} for {extension} is another one than the sandbox was made with, and finds nothing",
                seat.workspace
            ),
        )
        .with_hint("store a key of the account that it was made in; at its deadline the provider ends it by itself"))
    }
}
