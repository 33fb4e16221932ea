//! Requests to the server and their answers.

use std::time::Duration;

use futures::TryStreamExt as _;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::{Body, Method, Response, Url};
use sandboxer_core::exec::BoxRead;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_engine::http;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::io::{ReaderStream, StreamReader};

use super::fault;

const CONNECT: Duration = Duration::from_secs(10);

/// A server and the key for it. Cheap to clone.
#[derive(Clone)]
pub(super) struct Client {
    base: Url,
    key: Option<HeaderValue>,
    http: reqwest::Client,
}

impl Client {
    pub(super) fn new(url: &str, key: Option<String>) -> Result<Self> {
        let base = parse(url)?;
        let key = key.map(|key| bearer(&key)).transpose()?;
        let mut builder = http::client_builder().connect_timeout(CONNECT).tcp_nodelay(true);
        if base.scheme() == "http" {
            // Reading the system's certificates takes longer than most requests, and none are needed.
            builder = builder.tls_certs_only([]);
        }
        let http = http::build(builder)?;
        Ok(Self { base, key, http })
    }

    /// Where a path of the API is; every piece is escaped.
    pub(super) fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    pub(super) fn key(&self) -> Option<&HeaderValue> {
        self.key.as_ref()
    }

    pub(super) fn get(&self, path: &[&str]) -> Call {
        self.call(Method::GET, path)
    }

    pub(super) fn post(&self, path: &[&str]) -> Call {
        self.call(Method::POST, path)
    }

    pub(super) fn call(&self, method: Method, path: &[&str]) -> Call {
        let mut request = reqwest::Request::new(method, self.url(path));
        if let Some(key) = &self.key {
            request.headers_mut().insert(AUTHORIZATION, key.clone());
        }
        Call { http: self.http.clone(), request }
    }
}

/// One request that is being put together.
pub(super) struct Call {
    http: reqwest::Client,
    request: reqwest::Request,
}

impl Call {
    #[must_use]
    pub(super) fn query(mut self, name: &str, value: &str) -> Self {
        self.request.url_mut().query_pairs_mut().append_pair(name, value);
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: &str) -> Result<Self> {
        let value = HeaderValue::from_str(value).map_err(|_| {
            Error::new(ErrorKind::InvalidInput, format!("`{}` cannot be sent as a header", printable(value)))
        })?;
        self.request.headers_mut().insert(HeaderName::from_static(name), value);
        Ok(self)
    }

    pub(super) fn json<T: Serialize>(mut self, body: &T) -> Result<Self> {
        let bytes = serde_json::to_vec(body).map_err(|source| {
            Error::new(ErrorKind::Internal, "a request cannot be written").with_source(source)
        })?;
        *self.request.body_mut() = Some(Body::from(bytes));
        self.header(CONTENT_TYPE_NAME, "application/json")
    }

    pub(super) fn bytes(mut self, kind: &str, data: Vec<u8>) -> Result<Self> {
        *self.request.body_mut() = Some(Body::from(data));
        self.header(CONTENT_TYPE_NAME, kind)
    }

    pub(super) fn upload(mut self, kind: &str, data: BoxRead) -> Result<Self> {
        *self.request.body_mut() = Some(Body::wrap_stream(ReaderStream::with_capacity(data, 64 << 10)));
        self.header(CONTENT_TYPE_NAME, kind)
    }

    /// The answer's document.
    pub(super) async fn answer<T: DeserializeOwned>(self) -> Result<T> {
        let call = if self.request.headers().contains_key(ACCEPT) {
            self
        } else {
            self.header("accept", "application/json")?
        };
        let response = call.send().await?;
        let bytes = response.bytes().await.map_err(|source| fault::unreachable(&source))?;
        serde_json::from_slice(&bytes).map_err(|source| {
            Error::new(ErrorKind::BackendFailed, "the server's answer cannot be understood")
                .with_source(source)
                .with_hint("is it a sandboxer server of the same version?")
        })
    }

    /// Nothing but success.
    pub(super) async fn done(self) -> Result<()> {
        self.send().await.map(drop)
    }

    /// The answer as it comes.
    pub(super) async fn body(self) -> Result<BoxRead> {
        let stream = self.send().await?.bytes_stream().map_err(std::io::Error::other);
        Ok(Box::pin(StreamReader::new(stream)))
    }

    async fn send(self) -> Result<Response> {
        let response = self.http.execute(self.request).await.map_err(|source| fault::unreachable(&source))?;
        if response.status().is_success() { Ok(response) } else { Err(fault::of_response(response).await) }
    }
}

const CONTENT_TYPE_NAME: &str = "content-type";

fn parse(url: &str) -> Result<Url> {
    let invalid = |why: &str| {
        Error::new(ErrorKind::InvalidInput, format!("`{}` is not the URL of a server: {why}", printable(url)))
            .with_hint("write it as `http://127.0.0.1:8377`")
    };
    let parsed: Url = url.parse().map_err(|_| invalid("it cannot be read"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(invalid("it does not begin with `http://` or `https://`"));
    }
    if parsed.host_str().is_none_or(str::is_empty) || parsed.query().is_some() || parsed.fragment().is_some()
    {
        return Err(invalid("only a host, a port and a path belong there"));
    }
    Ok(parsed)
}

fn bearer(key: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
        .map_err(|_| Error::new(ErrorKind::InvalidInput, "the API key has characters that no key has"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked_and_paths_escaped() {
        for bad in ["", "127.0.0.1:8377", "ftp://x", "http://", "http://x?a=b"] {
            assert_eq!(parse(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
        let client = Client::new("http://host:1/prefix/", None).unwrap();
        assert_eq!(
            client.url(&["v1", "profiles", "a/../b?c"]).as_str(),
            "http://host:1/prefix/v1/profiles/a%2F..%2Fb%3Fc"
        );
    }

    #[test]
    fn the_key_is_not_shown() {
        let value = bearer("sbk_secret").unwrap();
        assert!(!format!("{value:?}").contains("secret"));
        assert!(bearer("a\nb").is_err());
    }
}
