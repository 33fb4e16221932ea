//! `/docs/…`: the guides, as they were when this server was built.

use axum::extract::Path;
use axum::response::IntoResponse;
use http::header;
use rust_embed::RustEmbed;
use sandboxer_core::{Error, ErrorKind};

use crate::error::ApiResult;

#[derive(RustEmbed)]
#[folder = "../../docs"]
#[include = "*.md"]
#[include = "**/*.md"]
struct Guides;

/// The names of all guides, such as `api.md` or `runbooks/compose-e2e.md`, in order.
pub(super) fn names() -> Vec<String> {
    let mut names: Vec<String> = Guides::iter().map(std::borrow::Cow::into_owned).collect();
    names.sort_by_key(|name| (name.contains('/'), name.clone()));
    names
}

/// A guide
#[utoipa::path(
    get, path = "/docs/{page}", tag = "server", security(()),
    params(("page" = String, Path, description = "A name from the index page, such as `api.md`")),
    responses(
        (status = 200, description = "The text, in Markdown", body = String, content_type = "text/plain"),
        (status = 404, description = "There is no such guide")
    )
)]
pub(crate) async fn guide(Path(page): Path<String>) -> ApiResult {
    send(&page)
}

/// A guide in a folder; described with the others.
pub(crate) async fn guide_in_folder(Path((folder, page)): Path<(String, String)>) -> ApiResult {
    send(&format!("{folder}/{page}"))
}

fn send(page: &str) -> ApiResult {
    let found = Guides::get(page).ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            format!("there is no guide `{}`", sandboxer_core::suggest::printable(page)),
        )
        .with_hint("`/` lists them")
    })?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], found.data.into_owned()).into_response())
}
