//! `/`: a page that says what this is and where to go on.

use axum::http::HeaderMap;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderValue, header};

use super::docs;

const START: &str = concat!(
    r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>sand-boxer</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem; }
  pre { padding: 1rem; overflow-x: auto; border: 1px solid; border-radius: 4px; }
</style>
</head>
<body>
<h1>sand-boxer</h1>
<p>One API and one command line for establishing sandboxes. Version "#,
    env!("CARGO_PKG_VERSION"),
    r#".</p>
<ul>
  <li><a href="/openapi.json">OpenAPI document</a></li>
  <li><a href="/healthz">Health</a> and <a href="/readyz">readiness</a></li>
  <li><a href="/metrics">Metrics</a>, for operators</li>
</ul>
<h2>Guides</h2>
<ul>
"#
);
const END: &str = "<p>Anybody else sends <code>Authorization: Bearer sbk_…</code>, made by <code>sandboxer keys create</code>.</p>\n</body>\n</html>\n";

/// A page for people
#[utoipa::path(
    get, path = "/", tag = "server", security(()),
    responses((status = 200, description = "What this is and where to go on", body = String, content_type = "text/html"))
)]
pub(crate) async fn index(headers: HeaderMap) -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    ([(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy))], Html(page(address(&headers))))
        .into_response()
}

/// Where the reader found this server, if that is safe to print.
fn address(headers: &HeaderMap) -> &str {
    let plain = |host: &&str| host.bytes().all(|b| b.is_ascii_alphanumeric() || b".:-[]".contains(&b));
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).filter(plain).unwrap_or("127.0.0.1:8377")
}

fn page(address: &str) -> String {
    let guides: String =
        docs::names().map(|name| format!("  <li><a href=\"/docs/{name}\">{name}</a></li>\n")).collect();
    let first = format!(
        "</ul>\n<h2>A first sandbox</h2>\n<p>From a shell of the server's own user:</p>\n\
         <pre>curl -X POST http://{address}/v1/sandboxes\n\
         curl http://{address}/v1/sandboxes/ID/execs \\\n  \
         -H 'Content-Type: application/json' -d '{{\"command\": \"uname -a\"}}'\n\
         curl -X DELETE http://{address}/v1/sandboxes/ID</pre>\n"
    );
    [START, &guides, &first, END].concat()
}
