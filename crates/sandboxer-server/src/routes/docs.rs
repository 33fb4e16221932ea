//! `/docs/…`: the guides, as they were when this server was built.

use axum::extract::Path;
use axum::response::IntoResponse;
use http::header;
use sandboxer_core::{Error, ErrorKind};

use crate::error::ApiResult;

macro_rules! guides {
    ($($name:literal)*) => {
        /// Every guide by its name, those in folders last.
        const GUIDES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../docs/", $name)))),*];
    };
}

guides! {
    "api.md"
    "architecture.md"
    "cli.md"
    "environment.md"
    "events.md"
    "extension-sdk.md"
    "host-telemetry.md"
    "hosts.md"
    "payments.md"
    "performance.md"
    "prices.md"
    "profiles.md"
    "routing.md"
    "security.md"
    "snapshots.md"
    "workspaces.md"
    "integrations/glas-harness.md"
    "integrations/snuggle-inventor.md"
    "integrations/wise-validator.md"
    "runbooks/compose-e2e.md"
    "runbooks/sandbox-canary.md"
}

/// The names of all guides, such as `api.md` or `runbooks/compose-e2e.md`, in order.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    GUIDES.iter().map(|(name, _)| *name)
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
    let (_, text) = GUIDES.iter().find(|(name, _)| *name == page).ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            format!("there is no guide `{}`", sandboxer_core::suggest::printable(page)),
        )
        .with_hint("`/` lists them")
    })?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], *text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn pages(folder: &Path, prefix: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                pages(&entry.path(), &format!("{name}/"), found);
            } else if name.ends_with(".md") {
                found.push(name);
            }
        }
    }

    #[test]
    fn every_guide_is_served() {
        let mut found = Vec::new();
        pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs"), "", &mut found);
        found.sort_by_key(|name| (name.contains('/'), name.clone()));
        assert_eq!(names().collect::<Vec<_>>(), found);
    }
}
