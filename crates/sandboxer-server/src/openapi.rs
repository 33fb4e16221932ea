//! The OpenAPI document, collected from the handlers.

use std::collections::BTreeMap;

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use crate::error::{Envelope, ErrorBody};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "sand-boxer",
        description = "One API for establishing sandboxes.\n\nEvery error has the form of `Envelope`; its `code` is stable.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(Envelope, ErrorBody)),
    modifiers(&Keys),
    security(("bearer" = []), ("api_key" = []), ()),
    tags(
        (name = "sandboxes", description = "Create, look at, prolong and destroy"),
        (name = "execs", description = "Commands in a sandbox"),
        (name = "files", description = "Files and archives in a sandbox"),
        (name = "ports", description = "What listens inside a sandbox"),
        (name = "snapshots", description = "Checkpoints: take, start from, fork, delete"),
        (name = "events", description = "What happened, in order, with resume"),
        (name = "catalog", description = "Profiles, extensions and routes"),
        (name = "hosts", description = "Where sandboxes are placed"),
        (name = "inspect", description = "What really is"),
        (name = "credits", description = "Balances, budgets, entries, meters and statements"),
        (name = "keys", description = "API keys"),
        (name = "server", description = "Health, metrics and this document")
    )
)]
pub(crate) struct Base;

struct Keys;

impl Modify for Keys {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_with(Default::default);
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API key, `sbk_…`"))
            .build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        let header = ApiKeyValue::with_description("X-API-Key", "The same key in a header of its own");
        components.add_security_scheme("api_key", SecurityScheme::ApiKey(ApiKey::Header(header)));
    }
}

/// What every path may answer instead.
pub(crate) struct Errors;

impl IntoResponses for Errors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let response = |description: &str| {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Envelope"))).build();
            ResponseBuilder::new().description(description).content("application/json", content)
        };
        let retry_after = HeaderBuilder::new().description(Some("Seconds to wait")).build();
        [
            ("401", response("No valid key").build()),
            ("429", response("Too many requests").header("Retry-After", retry_after).build()),
            ("4XX", response("The request cannot be fulfilled as it is; `code` says why").build()),
            ("5XX", response("The server or a backend failed; `code` says which").build()),
        ]
        .into_iter()
        .map(|(status, response)| (status.to_owned(), RefOr::T(response)))
        .collect()
    }
}

/// The whole document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    crate::routes::described().into_openapi()
}
