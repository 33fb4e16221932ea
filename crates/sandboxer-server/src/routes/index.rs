//! `/`: a page that says what this is and where to go on.

use axum::response::{Html, IntoResponse, Response};
use http::{HeaderValue, header};

const PAGE: &str = concat!(
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
  <li>The guide is <code>docs/api.md</code> in the repository.</li>
</ul>
<p>A first sandbox, from a shell of the server's own user:</p>
<pre>curl -X POST http://127.0.0.1:8377/v1/sandboxes
curl http://127.0.0.1:8377/v1/sandboxes/ID/execs \
  -H 'Content-Type: application/json' -d '{"command": "uname -a"}'
curl -X DELETE http://127.0.0.1:8377/v1/sandboxes/ID</pre>
<p>Anybody else sends <code>Authorization: Bearer sbk_…</code>, made by <code>sandboxer keys create</code>.</p>
</body>
</html>
"#
);

/// A page for people
#[utoipa::path(
    get, path = "/", tag = "server", security(()),
    responses((status = 200, description = "What this is and where to go on", body = String, content_type = "text/html"))
)]
pub(crate) async fn index() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    ([(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy))], Html(PAGE)).into_response()
}
