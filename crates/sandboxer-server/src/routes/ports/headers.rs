//! What crosses the proxy and what does not. Pages from inside share our origin in a browser, so they get no power
//! over it.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Means something between two neighbours only (RFC 9110, 7.6.1), beside what `Connection` itself names.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Our own credentials, and whatever a browser has for our origin.
const NEVER_IN: &[&str] = &["authorization", "x-api-key", "cookie", "expect"];
/// What would act on our whole origin and not on the page alone, or ask for credentials that never go in.
const NEVER_OUT: &[&str] = &[
    "set-cookie",
    "set-cookie2",
    "clear-site-data",
    "strict-transport-security",
    "service-worker-allowed",
    "alt-svc",
    "nel",
    "report-to",
    "reporting-endpoints",
    "origin-agent-cluster",
    "www-authenticate",
];
/// Scripts run, but with an origin of their own that nothing else has.
const SANDBOX: HeaderValue =
    HeaderValue::from_static("sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads");

/// Whether a WebSocket is asked for. No other protocol is switched to.
pub(super) fn wants_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    upgrade.eq_ignore_ascii_case("websocket")
        && connection_names(headers).iter().any(|name| name == "upgrade")
}

fn connection_names(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|list| list.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect()
}

fn strip(headers: &mut HeaderMap, also: &[&'static str]) {
    for name in connection_names(headers) {
        if let Ok(name) = HeaderName::try_from(name) {
            headers.remove(name);
        }
    }
    // Removes every value of the name.
    for name in HOP_BY_HOP.iter().chain(also) {
        headers.remove(*name);
    }
}

fn switch(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// A request on its way in.
pub(super) fn inward(headers: &mut HeaderMap, port: u16, prefix: &str, websocket: bool) {
    let host = headers.get(header::HOST).cloned();
    strip(headers, NEVER_IN);
    if websocket {
        switch(headers);
    }
    // What listens on a loopback expects to be called so.
    if let Ok(own) = HeaderValue::try_from(format!("localhost:{port}")) {
        headers.insert(header::HOST, own);
    }
    if let Some(host) = host {
        headers.insert(HeaderName::from_static("x-forwarded-host"), host);
    }
    if let Ok(prefix) = HeaderValue::try_from(prefix) {
        headers.insert(HeaderName::from_static("x-forwarded-prefix"), prefix);
    }
}

/// An answer on its way out.
pub(super) fn outward(headers: &mut HeaderMap, prefix: &str, websocket: bool) {
    strip(headers, NEVER_OUT);
    if websocket {
        switch(headers);
        return;
    }
    // A second policy only adds to the first: both hold.
    headers.append(header::CONTENT_SECURITY_POLICY, SANDBOX);
    // A path from the root of what is inside is one below our prefix outside.
    let moved = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let moved = moved.filter(|target| target.starts_with('/') && !target.starts_with("//"));
    if let Some(Ok(location)) = moved.map(|target| HeaderValue::try_from(format!("{prefix}{target}"))) {
        headers.insert(header::LOCATION, location);
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
    fn nothing_of_ours_goes_in() {
        let mut sent = headers(&[
            ("host", "127.0.0.1:8377"),
            ("authorization", "Bearer sbk_1"),
            ("x-api-key", "sbk_1"),
            ("cookie", "a=b"),
            ("connection", "keep-alive, X-Secret"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("accept", "text/html"),
        ]);
        assert!(!wants_websocket(&sent));
        inward(&mut sent, 3000, "/prefix", false);
        let expected = headers(&[
            ("accept", "text/html"),
            ("host", "localhost:3000"),
            ("x-forwarded-host", "127.0.0.1:8377"),
            ("x-forwarded-prefix", "/prefix"),
        ]);
        assert_eq!(sent, expected);
    }

    #[test]
    fn nothing_comes_out_that_acts_on_our_origin() {
        let mut answered = headers(&[
            ("set-cookie", "a=b"),
            ("set-cookie", "c=d"),
            ("clear-site-data", "\"*\""),
            ("content-security-policy", "default-src 'self'"),
            ("location", "/login?next=1"),
            ("content-type", "text/html"),
        ]);
        outward(&mut answered, "/prefix", false);
        assert!(!answered.contains_key("set-cookie") && !answered.contains_key("clear-site-data"));
        assert_eq!(answered["location"], "/prefix/login?next=1");
        let policies: Vec<_> = answered.get_all("content-security-policy").iter().collect();
        assert_eq!(policies, ["default-src 'self'", SANDBOX.to_str().unwrap()]);
        for kept in ["https://example.org/", "//example.org/", "next"] {
            let mut answered = headers(&[("location", kept)]);
            outward(&mut answered, "/prefix", false);
            assert_eq!(answered["location"], kept);
        }
    }

    #[test]
    fn a_websocket_keeps_its_switch() {
        let mut sent = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")]);
        assert!(wants_websocket(&sent));
        inward(&mut sent, 3000, "/prefix", true);
        assert_eq!(
            (&sent["connection"], &sent["upgrade"]),
            (&"Upgrade".parse().unwrap(), &"websocket".parse().unwrap())
        );
    }
}
