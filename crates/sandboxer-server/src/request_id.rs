//! The id of a request: the caller's own if it is harmless, else a new one.

use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const LONGEST: usize = 128;

/// What belongs to one request and is needed on its way out.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: HeaderValue,
    caller: OnceLock<String>,
}

impl RequestContext {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let id = headers.get(HEADER).filter(|id| is_harmless(id)).cloned().unwrap_or_else(generate);
        Self(Arc::new(Inner { id, caller: OnceLock::new() }))
    }

    pub(crate) fn id(&self) -> &str {
        self.0.id.to_str().unwrap_or_default()
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.id.clone()
    }

    pub(crate) fn set_caller(&self, caller: String) {
        let _ = self.0.caller.set(caller);
    }

    /// Who asked, for the access log; a dash for those who need not say.
    pub(crate) fn caller(&self) -> &str {
        self.0.caller.get().map_or("-", String::as_str)
    }
}

/// What may be repeated in a header, a log line and an envelope without a thought.
fn is_harmless(id: &HeaderValue) -> bool {
    let bytes = id.as_bytes();
    (1..=LONGEST).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
}

fn generate() -> HeaderValue {
    let id = uuid::Uuid::now_v7().simple().to_string();
    HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_for(sent: &[u8]) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_bytes(sent).unwrap());
        RequestContext::of(&headers).id().to_owned()
    }

    #[test]
    fn a_harmless_id_is_kept_and_others_are_replaced() {
        assert_eq!(id_for(b"job-7/step:2"), "job-7/step:2");
        for sent in [&b"a b"[..], b"<script>", b"\xff\xfe", &[b'x'; 129]] {
            let id = id_for(sent);
            assert_eq!(id.len(), 32, "{id}");
        }
    }
}
