//! The one way to an HTTP client, so that TLS is the same everywhere.

use sandboxer_core::{Error, ErrorKind, Result};

/// A builder with our name on it. TLS is rustls on ring, with the system's roots; redirects are not followed.
pub fn client_builder() -> reqwest::ClientBuilder {
    // Fails only when it was done before, which is what is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("sandboxer/", env!("CARGO_PKG_VERSION")))
}

/// The client of a builder, or why there is none.
pub fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client> {
    builder.build().map_err(|source| Error::new(ErrorKind::Internal, "no HTTP client").with_source(source))
}
