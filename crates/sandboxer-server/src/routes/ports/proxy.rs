//! `…/ports/{port}/…`: HTTP/1.1 to whatever listens inside, as it is asked here. Bodies are streamed both ways.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use http::{StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sandboxer_core::extension::BoxDuplex;
use sandboxer_core::{Error, ErrorKind, Result};

use super::headers;
use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult};
use crate::openapi::Errors;
use crate::path::PortPath;

/// The head of an answer: more than this is not HTTP as anybody means it.
const LARGEST_HEAD: usize = 64 << 10;
const MOST_HEADERS: usize = 128;
/// Until the answer begins; its body may take as long as it likes.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);

/// Pass a request to a port inside a sandbox
///
/// Any method and any path below. Bodies are streamed and WebSockets passed through. Our own credentials and cookies do
/// not go in; `Set-Cookie` does not come out, and a page runs in a browser sandbox (`Content-Security-Policy: sandbox`).
/// 502 when nothing listens.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/ports/{port}/", tag = "ports",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("port" = u16, Path, description = "The port inside, on its loopback")
    ),
    responses((status = 200, description = "Whatever is answered inside"), Errors)
)]
pub(crate) async fn proxy(
    State(app): State<App>,
    Auth(caller): Auth,
    PortPath(id, port): PortPath,
    mut request: Request,
) -> ApiResult {
    let prefix = format!("/v1/sandboxes/{id}/ports/{port}");
    let websocket = headers::wants_websocket(request.headers());
    *request.uri_mut() = inside(request.uri())?;
    *request.version_mut() = Version::HTTP_11;
    headers::inward(request.headers_mut(), port, &prefix, websocket);
    // Taken before the request goes: it is the other end of a connection that is to be switched.
    let outer = hyper::upgrade::on(&mut request);
    let inner = app.engine().port_connect(&caller, id, port).await?;
    let mut answer = send(&app, inner, request).await?;
    let switched = websocket && answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS && !switched {
        return Err(broken("it switched protocols without being asked").into());
    }
    // What is spoken inside says nothing about the connection out here.
    *answer.version_mut() = Version::HTTP_11;
    headers::outward(answer.headers_mut(), &prefix, switched);
    if switched {
        let inner = hyper::upgrade::on(&mut answer);
        let stopped = app.stopped().clone();
        let draining = app.draining().clone();
        app.tasks().spawn(async move {
            let (Ok(outer), Ok(inner)) = tokio::join!(outer, inner) else { return };
            let (mut outer, mut inner) = (TokioIo::new(outer), TokioIo::new(inner));
            tokio::select! {
                () = stopped.cancelled() => {}
                () = draining.cancelled() => {}
                _ = tokio::io::copy_bidirectional(&mut outer, &mut inner) => {}
            }
        });
    }
    Ok(answer.map(Body::new))
}

/// The same request as it is seen inside: what comes after the port, byte by byte, and the query.
fn inside(uri: &Uri) -> Result<Uri, ApiError> {
    // "", v1, sandboxes, id, ports, port, the rest
    let rest = uri.path().splitn(7, '/').nth(6).unwrap_or_default();
    let target = match uri.query() {
        Some(query) => format!("/{rest}?{query}"),
        None => format!("/{rest}"),
    };
    target.parse().map_err(|_| ApiError::new(ErrorKind::InvalidInput, "the path cannot be passed on"))
}

/// One connection, one request. It ends with the answer's body.
async fn send(app: &App, inner: BoxDuplex, request: Request) -> Result<http::Response<Incoming>> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(LARGEST_HEAD).max_headers(MOST_HEADERS);
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(inner))
        .await
        .map_err(|source| broken("no connection").with_source(source))?;
    let stopped = app.stopped().clone();
    app.tasks().spawn(async move {
        tokio::select! {
            () = stopped.cancelled() => {}
            ended = connection.with_upgrades() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection into a sandbox ended in disorder");
                }
            }
        }
    });
    let answer = tokio::time::timeout(ANSWER_WITHIN, sender.send_request(request)).await.map_err(|_| {
        Error::new(ErrorKind::Timeout, format!("no answer within {} s", ANSWER_WITHIN.as_secs()))
    })?;
    answer.map_err(|source| broken("what listens there did not answer in HTTP").with_source(source))
}

fn broken(message: &str) -> Error {
    Error::new(ErrorKind::BackendFailed, message)
        .with_hint("`sandboxer port` forwards any protocol to a local address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_passed_on_as_they_are() {
        let id = "sbx_01jx0000000000000000000000";
        for (outside, inside_is) in
            [("/", "/"), ("/a//b/", "/a//b/"), ("/a%2Fb/../c?x=%26&y", "/a%2Fb/../c?x=%26&y"), ("/?q", "/?q")]
        {
            let uri: Uri = format!("/v1/sandboxes/{id}/ports/80{outside}").parse().unwrap();
            assert_eq!(inside(&uri).ok().unwrap(), inside_is, "{outside}");
        }
    }
}
