//! Who is asking. A key that is sent must be valid; without one only the server's own user on loopback gets in.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, header};
use sandboxer_core::{ErrorKind, Result};
use sandboxer_engine::{Caller, Engine};

use crate::app::App;
use crate::error::ApiError;
use crate::limits::Payer;
use crate::request_id::RequestContext;

/// How long the answer to "are there keys" is believed. Keys made or revoked through this server count at once.
const KEYS_KNOWN_FOR: Duration = Duration::from_millis(250);

/// One connection's other end, found out once when it was accepted.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// The port that we listen on.
    pub server_port: u16,
    /// The listener is on loopback and the peer's socket belongs to the server's own uid.
    pub is_own_user: bool,
}

/// The caller of a request that may go on.
pub(crate) struct Auth(pub(crate) Caller);

impl FromRequestParts<App> for Auth {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let peer = parts.extensions.get::<Peer>().copied();
        let address = peer.map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.address.ip());
        let caller = match secret(&parts.headers)? {
            Some(secret) => match app.engine().authenticate(secret).await {
                Ok(caller) => caller,
                Err(error) => {
                    app.buckets().draw(Payer::Address(address))?;
                    return Err(error.into());
                }
            },
            None => {
                app.buckets().draw(Payer::Address(address))?;
                local_admin(app, &parts.headers, peer).await?
            }
        };
        if let Some(key) = caller.key {
            app.buckets().draw(Payer::Key(key))?;
        }
        if let Some(context) = parts.extensions.get::<RequestContext>() {
            context.set_caller(caller.key_text().unwrap_or_else(|| "local".into()));
        }
        Ok(Self(caller))
    }
}

fn unauthenticated(message: &str) -> ApiError {
    ApiError::new(ErrorKind::Unauthenticated, message).hint(
        "send `Authorization: Bearer sbk_…`; `sandboxer keys create --name NAME` on the server's machine makes a key",
    )
}

/// The key in `Authorization: Bearer` or `X-API-Key`.
fn secret(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let unreadable = || unauthenticated("the API key is not readable text");
    let bearer = match headers.get(header::AUTHORIZATION) {
        None => None,
        Some(value) => {
            let text = value.to_str().map_err(|_| unreadable())?;
            match text.split_once(' ') {
                Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => Some(rest.trim()),
                _ => return Err(unauthenticated("`Authorization` has another scheme than `Bearer`")),
            }
        }
    };
    let plain = match headers.get("x-api-key") {
        None => None,
        Some(value) => Some(value.to_str().map_err(|_| unreadable())?.trim()),
    };
    match (bearer, plain) {
        (Some(one), Some(other)) if one != other => {
            Err(unauthenticated("`Authorization` and `X-API-Key` carry different keys"))
        }
        (one, other) => Ok(one.or(other)),
    }
}

/// The server's own user, coming over loopback, from no web page of a stranger, while no key is configured.
async fn local_admin(app: &App, headers: &HeaderMap, peer: Option<Peer>) -> Result<Caller, ApiError> {
    let Some(peer) = peer.filter(|peer| peer.is_own_user) else {
        return Err(unauthenticated("an API key is needed"));
    };
    if !is_own_page(headers, peer.server_port) {
        return Err(unauthenticated(
            "a request that names another host or comes from a web page needs an API key",
        ));
    }
    if app.keys().are_there(app.engine()).await? {
        return Err(unauthenticated("API keys are configured, so one is needed"));
    }
    Ok(Caller::local_admin())
}

/// Against DNS rebinding and foreign pages: `Host` is loopback, and `Origin`, if any, is this server itself.
fn is_own_page(headers: &HeaderMap, port: u16) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    // A tunnel or a port mapping may show another port in `Host`; a page's origin may not differ from ours.
    if host.to_str().ok().and_then(loopback_authority).is_none() {
        return false;
    }
    let own_origin = headers.get_all(header::ORIGIN).iter().all(|origin| {
        let text = origin.to_str().ok().and_then(|text| text.strip_prefix("http://"));
        text.and_then(loopback_authority).is_some_and(|at| at.unwrap_or(80) == port)
    });
    let same_site = headers
        .get_all("sec-fetch-site")
        .iter()
        .all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
    own_origin && same_site
}

/// The port of `127.0.0.1`, `localhost` or `[::1]`, if it has one; `None` for every other host.
fn loopback_authority(text: &str) -> Option<Option<u16>> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok()?)),
        _ => (text, None),
    };
    let known = host == "127.0.0.1" || host == "[::1]" || host.eq_ignore_ascii_case("localhost");
    known.then_some(port)
}

/// Whether keys are configured, remembered for a moment: it is asked with every request that has none.
#[derive(Default)]
pub(crate) struct KeysKnown(Mutex<Known>);

#[derive(Clone, Copy, Default)]
struct Known {
    answer: Option<(Instant, bool)>,
    /// Counts the changes, so that an answer from before one is not remembered after it.
    changes: u64,
}

impl KeysKnown {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn are_there(&self, engine: &Engine) -> Result<bool> {
        let before = *self.known();
        if let Some((_, there)) = before.answer.filter(|(at, _)| at.elapsed() < KEYS_KNOWN_FOR) {
            return Ok(there);
        }
        let there = engine.has_keys().await?;
        let mut known = self.known();
        if known.changes == before.changes {
            known.answer = Some((Instant::now(), there));
        }
        Ok(there)
    }

    /// The keys changed.
    pub(crate) fn forget(&self) {
        let mut known = self.known();
        *known = Known { answer: None, changes: known.changes.wrapping_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn only_our_own_pages_are_trusted() {
        for (pairs, trusted) in [
            (&[("host", "127.0.0.1:8377")][..], true),
            (&[("host", "localhost:8377")], true),
            (&[("host", "LOCALHOST")], true),
            (&[("host", "[::1]:8377")], true),
            (&[("host", "[::1]")], true),
            (&[("host", "127.0.0.1:8377"), ("origin", "http://localhost:8377")], true),
            (&[("host", "127.0.0.1:8377"), ("sec-fetch-site", "none")], true),
            (&[], false),
            (&[("host", "evil.example:8377")], false),
            (&[("host", "127.0.0.1.evil.example")], false),
            (&[("host", "127.0.0.1:8377:1")], false),
            (&[("host", "localhost:x")], false),
            (&[("host", "user@127.0.0.1:8377")], false),
            (&[("host", "127.0.0.1:8377"), ("host", "evil.example")], false),
            (&[("host", "127.0.0.1:8377"), ("origin", "http://evil.example")], false),
            (&[("host", "127.0.0.1:8377"), ("origin", "null")], false),
            (&[("host", "127.0.0.1:8377"), ("origin", "http://localhost:3000")], false),
            (&[("host", "127.0.0.1:8377"), ("origin", "http://localhost:8377.evil.example")], false),
            (&[("host", "127.0.0.1:8377"), ("sec-fetch-site", "cross-site")], false),
        ] {
            assert_eq!(is_own_page(&headers(pairs), 8377), trusted, "{pairs:?}");
        }
    }

    #[test]
    fn a_key_comes_in_either_header_and_never_in_two_forms() {
        assert_eq!(secret(&headers(&[])).unwrap(), None);
        assert_eq!(secret(&headers(&[("authorization", "bearer sbk_1")])).unwrap(), Some("sbk_1"));
        assert_eq!(secret(&headers(&[("x-api-key", "sbk_1")])).unwrap(), Some("sbk_1"));
        assert!(secret(&headers(&[("authorization", "Basic abc")])).is_err());
        assert!(secret(&headers(&[("authorization", "Bearer a"), ("x-api-key", "b")])).is_err());
    }
}
