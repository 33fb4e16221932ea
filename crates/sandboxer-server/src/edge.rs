//! The outermost layer: request ids, the error envelope, panics, metrics and the access log.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use http::{HeaderValue, Method, StatusCode, header};
use sandboxer_core::ErrorKind;

use crate::app::App;
use crate::error::ApiError;
use crate::request_id::{self, RequestContext};

pub(crate) async fn edge(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let context = RequestContext::of(request.headers());
    request.extensions_mut().insert(context.clone());
    let method = method_label(request.method());
    let route = request.extensions().get::<MatchedPath>().cloned();
    // Without the query: it may carry what is nobody else's business.
    let path = tracing::enabled!(tracing::Level::INFO).then(|| request.uri().path().to_owned());

    let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            tracing::error!(
                request_id = context.id(),
                reason = panic_text(panic.as_ref()),
                "a handler panicked"
            );
            ApiError::new(ErrorKind::Internal, "the server made a mistake").into_response()
        }
    };
    let error = response.extensions_mut().remove::<ApiError>();
    if let Some(error) = &error {
        error.write_into(&mut response, context.id());
    }
    let headers = response.headers_mut();
    headers.insert(request_id::HEADER, context.header());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

    let (status, took) = (response.status(), started.elapsed());
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    app.metrics().request(method, route, status.as_u16(), took);
    if let Some(error) = error.filter(|_| status.is_server_error()) {
        tracing::error!(request_id = context.id(), error = ?error.error(), "a request failed");
    }
    tracing::info!(
        target: "sandboxer::access",
        request_id = context.id(),
        method,
        route,
        path = path.as_deref().unwrap_or_default(),
        status = status.as_u16(),
        duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        caller = context.caller(),
    );
    response
}

/// One of a few words, whatever a caller sends: each becomes a time series.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}

pub(crate) async fn no_such_route(request: Request) -> ApiError {
    let path = sandboxer_core::suggest::printable(request.uri().path());
    ApiError::new(ErrorKind::NotFound, format!("there is nothing at `{path}`"))
        .hint("`/openapi.json` describes every path")
}

pub(crate) async fn no_such_method(request: Request) -> ApiError {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let what = sandboxer_core::suggest::printable(&format!("{method} {path}"));
    ApiError::edge(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", format!("`{what}` is not possible"))
        .hint("the header `Allow` lists the methods of this path")
}
