//! A workspace's own key at a provider. The key goes into the vault; the store knows where it is, and people see a
//! fingerprint.

use jiff::Timestamp;
use sandboxer_core::extension::Credential;
use sandboxer_core::hash::sha256_hex;
use sandboxer_core::ledger::{DEFAULT, Seat, check_name};
use sandboxer_core::page::Limit;
use sandboxer_core::snapshot::Snapshot;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_store::{OwnKey, SnapshotFilter};
use serde::{Deserialize, Serialize};

use crate::caller::Action;
use crate::reach::own_key_of;
use crate::{Caller, Engine};

/// A refusal names so many sandboxes.
const MOST_NAMED: usize = 5;

/// A key to keep.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderKeyRequest {
    /// `research`, or `acme/research` of another organisation.
    pub workspace: String,
    pub extension: String,
    /// The secret itself; it is never shown again.
    #[schema(example = "…")]
    pub key: String,
    /// What the platform adds to the provider's cost, in per cent with at most two decimals. Where it is
    /// absent, what was agreed before stays, which is nothing at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fee_percent: Option<String>,
}

impl std::fmt::Debug for ProviderKeyRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { workspace, extension, fee_percent, .. } = self;
        write!(f, "ProviderKeyRequest {{ {workspace}, {extension}, {fee_percent:?}, … }}")
    }
}

/// A key that is kept, without the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProviderKeyView {
    pub organisation: String,
    pub workspace: String,
    pub extension: String,
    /// The beginning of the key's SHA-256; absent where the key is not in the vault any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    #[schema(example = "2.5")]
    pub fee_percent: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// `research` or `acme/research`.
pub fn parse_workspace(text: &str) -> Result<Seat> {
    let (organisation, workspace) = text.split_once('/').unwrap_or((DEFAULT, text));
    let seat = Seat { organisation: organisation.into(), workspace: workspace.into() };
    seat.check()?;
    Ok(seat)
}

/// Hundredths of a per cent: `2.5` is 250.
fn basis_points(text: &str) -> Result<u32> {
    let wrong = || {
        Error::new(ErrorKind::InvalidInput, format!("`{}` is not a fee", printable(text)))
            .with_hint("a fee is 0 to 100 per cent with at most two decimals, such as `2.5`")
    };
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || whole.len() > 3 || decimals.len() > 2 {
        return Err(wrong());
    }
    let points: u32 = format!("{whole}{decimals:0<2}").parse().map_err(|_| wrong())?;
    if points > 10_000 { Err(wrong()) } else { Ok(points) }
}

fn percent(points: u32) -> String {
    let text = format!("{}.{:02}", points / 100, points % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Engine {
    pub async fn provider_keys(&self, caller: &Caller) -> Result<Vec<ProviderKeyView>> {
        caller.require(Action::ManageMoney)?;
        let keys = self.inner.store.own_keys().await?;
        keys.into_iter().map(|key| self.provider_key_view(key)).collect()
    }

    /// Keeps a key, in place of what was there.
    pub async fn provider_key_set(
        &self,
        caller: &Caller,
        request: &ProviderKeyRequest,
    ) -> Result<ProviderKeyView> {
        caller.require(Action::ManageMoney)?;
        let seat = parse_workspace(&request.workspace)?;
        let points = match &request.fee_percent {
            Some(fee) => basis_points(fee)?,
            // Another key is no reason to change what was agreed.
            None => {
                let before =
                    self.inner.store.own_key(&seat.organisation, &seat.workspace, &request.extension).await?;
                before.map_or(0, |before| before.fee_basis_points)
            }
        };
        let key = request.key.trim();
        if key.is_empty() || key.len() > 16_384 || key.chars().any(char::is_control) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a provider's key has 1 to 16384 printable characters on one line",
            ));
        }
        self.check_provider(&request.extension, &Credential::new(key))?;
        let own = OwnKey {
            secret: secret_name(&seat, &request.extension),
            organisation: seat.organisation,
            workspace: seat.workspace,
            extension: request.extension.clone(),
            fee_basis_points: points,
            created_at: self.now(),
        };
        // The secret first: a row that names nothing would fail creates.
        self.vault()?.put(&own.secret, key)?;
        self.inner.store.own_key_put(&own).await?;
        self.provider_key_view(own)
    }

    pub async fn provider_key_remove(
        &self,
        caller: &Caller,
        workspace: &str,
        extension: &str,
    ) -> Result<ProviderKeyView> {
        caller.require(Action::ManageMoney)?;
        let seat = parse_workspace(workspace)?;
        let store = &self.inner.store;
        let found = store.own_key(&seat.organisation, &seat.workspace, extension).await?;
        let view = self.provider_key_view(found.ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("{} has no key of its own for {}", printable(workspace), printable(extension)),
            )
            .with_hint("`sandboxer credits provider-keys list` shows those that there are")
        })?)?;
        self.refuse_while_needed(&seat, extension).await?;
        let removed = store.own_key_remove(&seat.organisation, &seat.workspace, extension).await?;
        // A create may have read the key just before it went. Its row was there by then, so that it is seen now.
        if let Err(refusal) = self.refuse_while_needed(&seat, extension).await {
            store.own_key_put(&removed).await?;
            return Err(refusal);
        }
        self.vault()?.remove(&removed.secret)?;
        Ok(view)
    }

    /// What was made with a key can only be ended with it.
    async fn refuse_while_needed(&self, seat: &Seat, extension: &str) -> Result<()> {
        let mut names = Vec::new();
        for stored in self.inner.store.living().await? {
            let (record, id) = (&stored.record, stored.record.id().to_string());
            let is_in_it = record.sandbox.extension == extension && own_key_of(record).as_ref() == Some(seat);
            let second =
                record.sandbox.route.hedge.as_ref().is_some_and(|hedge| hedge.extension == extension);
            if is_in_it || second && self.seat_of(record).await? == *seat {
                names.push(id);
            }
        }
        names.extend(self.snapshots_with_key(seat, extension).await?);
        if names.is_empty() {
            return Ok(());
        }
        let more = names.len().saturating_sub(MOST_NAMED);
        names.truncate(MOST_NAMED);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(Error::new(
            ErrorKind::Conflict,
            format!("the key is needed by {}{rest}: without it they could not be ended", names.join(", ")),
        )
        .with_hint("end them first; another key of the same account can be stored in its place at any time"))
    }

    async fn snapshots_with_key(&self, seat: &Seat, extension: &str) -> Result<Vec<String>> {
        let (mut out, mut cursor) = (Vec::new(), None);
        loop {
            let all = SnapshotFilter::default();
            let page =
                self.inner.store.snapshot_list(&all, cursor.as_deref(), Limit::new(Limit::MAX)?).await?;
            let of_it = |snapshot: &&Snapshot| {
                snapshot.extension == extension && snapshot.own_key_of.as_ref() == Some(seat)
            };
            out.extend(page.items.iter().filter(of_it).map(|snapshot| snapshot.snapshot_id.to_string()));
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(out),
            }
        }
    }

    fn check_provider(&self, extension: &str, key: &Credential) -> Result<()> {
        check_name("an extension", extension)?;
        let found = self.inner.registry.get(extension)?;
        if found.describe().capability.self_hosted {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("{extension} runs on machines of one's own, where no key is needed"),
            ));
        }
        match found.with_key(key) {
            Some(_) => Ok(()),
            None => Err(Error::unsupported(extension, "keys of a workspace's own")),
        }
    }

    fn provider_key_view(&self, key: OwnKey) -> Result<ProviderKeyView> {
        let secret = self.vault()?.get(&key.secret)?;
        Ok(ProviderKeyView {
            organisation: key.organisation,
            workspace: key.workspace,
            extension: key.extension,
            fingerprint: secret
                .map(|secret| format!("SHA256:{}", Credential::new(secret.expose()).fingerprint())),
            fee_percent: percent(key.fee_basis_points),
            created_at: key.created_at,
        })
    }
}

/// Names may be longer than a file's name, and contain what separates them.
fn secret_name(seat: &Seat, extension: &str) -> String {
    let whole = format!("{}/{}/{extension}", seat.organisation, seat.workspace);
    format!("provider-key-{}", &sha256_hex(whole.as_bytes())[..40])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fees_in_per_cent() {
        for (text, points) in [("0", 0), ("2.5", 250), ("2.05", 205), ("100", 10_000), ("0.01", 1)] {
            assert_eq!(basis_points(text).unwrap(), points, "{text}");
        }
        for text in ["", "-1", "100.01", "2.555", "NaN", "1e1", ".5", "5.", "1000"] {
            assert!(basis_points(text).is_err(), "{text}");
        }
        assert_eq!((percent(250), percent(0), percent(205)), ("2.5".into(), "0".into(), "2.05".into()));
    }

    #[test]
    fn a_request_does_not_show_its_key() {
        let request = ProviderKeyRequest {
            workspace: "w".into(),
            extension: "ext.x".into(),
            key: "hidden".into(),
            fee_percent: None,
        };
        assert!(!format!("{request:?}").contains("hidden"));
    }
}
