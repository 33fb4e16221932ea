//! `list`: sandboxes, newest first, all pages of them unless a limit says otherwise.

use sandboxer_core::page::{Limit, Page};
use sandboxer_core::sandbox::Sandbox;

use super::show;
use crate::api::{Api, ListQuery};
use crate::args::ListArgs;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: ListArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let query = ListQuery { state: args.state, labels: args.label.into_iter().collect(), all: args.all };
    let page = collect(api, &query, args.cursor, args.limit).await?;
    if printer.is_json() {
        printer.document(&page)?;
        return Ok(ExitStatus::SUCCESS);
    }
    if page.items.is_empty() {
        printer.note("no sandboxes; `sandboxer create` makes one");
        return Ok(ExitStatus::SUCCESS);
    }
    show::list(&page.items, printer)?;
    if let Some(cursor) = &page.next_cursor {
        printer.note(&format!("there are more: --cursor {cursor}"));
    }
    Ok(ExitStatus::SUCCESS)
}

/// Pages one after another until the end or the limit; the last one's cursor stays in the answer.
pub(super) async fn collect(
    api: &dyn Api,
    query: &ListQuery,
    mut cursor: Option<String>,
    limit: Option<u32>,
) -> Outcome<Page<Sandbox>> {
    let mut items = Vec::new();
    loop {
        let wanted = limit.map_or(Limit::MAX, |limit| (limit - items.len() as u32).min(Limit::MAX));
        let page = api.list(query, cursor.as_deref(), Limit::new(wanted)?).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        let full = limit.is_some_and(|limit| items.len() as u32 >= limit);
        if cursor.is_none() || full {
            return Ok(Page { items, next_cursor: cursor });
        }
    }
}
