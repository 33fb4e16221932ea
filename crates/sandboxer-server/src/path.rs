//! Ids in paths. One that cannot be an id is answered as one that is not there.

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use sandboxer_core::{Error, ErrorKind, ExecId, KeyId, SandboxId, SnapshotId, WebhookId};

use crate::error::ApiError;

/// `{id}` of a sandbox.
pub(crate) struct SandboxPath(pub(crate) SandboxId);

/// `{id}` of a sandbox and `{exec}`.
pub(crate) struct ExecPath(pub(crate) SandboxId, pub(crate) ExecId);

/// `{id}` of a sandbox and `{port}`.
pub(crate) struct PortPath(pub(crate) SandboxId, pub(crate) u16);

/// `{id}` of a snapshot.
pub(crate) struct SnapshotPath(pub(crate) SnapshotId);

/// `{id}` of a key.
pub(crate) struct KeyPath(pub(crate) KeyId);

/// `{id}` of a webhook.
pub(crate) struct WebhookPath(pub(crate) WebhookId);

/// `{name}` of a thing in the catalog.
pub(crate) struct NamePath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for SandboxPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Ok(Self(named(&params(parts, state).await?, "id")?.parse()?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ExecPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = params(parts, state).await?;
        Ok(Self(named(&params, "id")?.parse()?, named(&params, "exec")?.parse()?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PortPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = params(parts, state).await?;
        let text = named(&params, "port")?;
        let port = text.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
            let shown = sandboxer_core::suggest::printable(text);
            Error::new(ErrorKind::InvalidInput, format!("`{shown}` is not a port"))
                .with_hint("ports go from 1 to 65535")
        })?;
        Ok(Self(named(&params, "id")?.parse()?, port))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for SnapshotPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Ok(Self(named(&params(parts, state).await?, "id")?.parse()?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for KeyPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Ok(Self(named(&params(parts, state).await?, "id")?.parse()?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for WebhookPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Ok(Self(named(&params(parts, state).await?, "id")?.parse()?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for NamePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Ok(Self(named(&params(parts, state).await?, "name")?.to_owned()))
    }
}

async fn params<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<RawPathParams, ApiError> {
    RawPathParams::from_request_parts(parts, state)
        .await
        .map_err(|_| ApiError::new(ErrorKind::InvalidInput, "the path is not valid UTF-8"))
}

fn named<'p>(params: &'p RawPathParams, name: &str) -> Result<&'p str, ApiError> {
    params
        .iter()
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .ok_or_else(|| Error::new(ErrorKind::Internal, format!("a route without its `{name}`")).into())
}
