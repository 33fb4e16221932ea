//! Listings, newest first.
//!
//! A page walks one index in order and tests the other conditions row by row. Which index decides over microseconds
//! or a second, so it is not left to guesses about data that SQLite has no statistics of: with several conditions
//! the one that fits the fewest rows leads.

use rusqlite::Connection;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Error, ErrorKind, SandboxId, State};

use super::fault::Attempt;
use super::query::{Query, query};
use crate::model::Filter;

/// Counting stops here: an index of this many rows is walked in about a millisecond.
const ENOUGH: i64 = 1_000;
/// What a cursor starts with; the rest is the last id of its page without the prefix.
const CURSOR: &str = "p1";

/// The condition whose index is walked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lead<'a> {
    Everything,
    Owner(&'a str),
    Label(&'a str, &'a str),
    State(State),
}

pub(super) fn list(
    connection: &Connection,
    filter: &Filter,
    cursor: Option<&str>,
    limit: Limit,
) -> Attempt<Page<Sandbox>> {
    let before = cursor.map(read_cursor).transpose()?;
    let lead = lead(connection, filter)?;
    let mut items = page_query(lead, filter, before, limit)
        .all(connection, |row| Ok(serde_json::from_str::<Sandbox>(row.get_ref(0)?.as_str()?)?))?;
    let more = items.len() > limit.get() as usize;
    items.truncate(limit.get() as usize);
    let next_cursor = items.last().filter(|_| more).map(|last| write_cursor(last.sandbox_id));
    Ok(Page { items, next_cursor })
}

fn write_cursor(last: SandboxId) -> String {
    last.to_string().replacen(SandboxId::PREFIX, CURSOR, 1)
}

fn read_cursor(text: &str) -> Result<SandboxId, Error> {
    text.strip_prefix(CURSOR).and_then(|rest| format!("{}{rest}", SandboxId::PREFIX).parse().ok()).ok_or_else(
        || {
            Error::new(ErrorKind::InvalidInput, "this cursor is not one of ours")
                .with_hint("pass `next_cursor` of the page before as it is, or no cursor for the first page")
        },
    )
}

/// A state alone says whether the destroyed are meant; without one they are left out unless `all`.
fn living_only(filter: &Filter) -> bool {
    match filter.state {
        Some(state) => state.is_living(),
        None => !filter.all,
    }
}

pub(super) fn lead<'a>(connection: &Connection, filter: &'a Filter) -> Attempt<Lead<'a>> {
    let labels = filter.labels.iter().map(|(name, value)| Lead::Label(name, value));
    let owner = filter.owner_key.as_deref().map(Lead::Owner);
    let leads: Vec<Lead<'a>> = owner.into_iter().chain(labels).collect();
    match leads.as_slice() {
        [] => return Ok(filter.state.map_or(Lead::Everything, Lead::State)),
        [only] => return Ok(*only),
        _ => {}
    }
    let mut best = (ENOUGH + 1, leads[0]);
    for lead in leads {
        let mut query = query("SELECT count(*) FROM (SELECT 1");
        push_lead(&mut query, lead, filter, "");
        query.push(" LIMIT ").push_bind(ENOUGH).push(")");
        let size: i64 = query.one(connection, |row| Ok(row.get(0)?))?;
        if size < best.0 {
            best = (size, lead);
        }
    }
    Ok(best.1)
}

/// `FROM` and `WHERE` of the leading condition, with the one index that it walks.
fn push_lead<'a>(query: &mut Query<'a>, lead: Lead<'a>, filter: &Filter, join: &str) {
    let living = living_only(filter);
    match (lead, filter.state) {
        (Lead::Everything, _) if living => {
            query.push(" FROM sandboxes s INDEXED BY sandboxes_living WHERE s.state <> 'destroyed'")
        }
        (Lead::Everything, _) => query.push(" FROM sandboxes s WHERE true"),
        (Lead::State(state), _) => query
            .push(" FROM sandboxes s INDEXED BY sandboxes_state WHERE s.state = ")
            .push_bind(state.as_str()),
        (Lead::Owner(owner), Some(state)) => query
            .push(" FROM sandboxes s INDEXED BY sandboxes_owner_state WHERE s.state = ")
            .push_bind(state.as_str())
            .push(" AND s.owner_key = ")
            .push_bind(owner),
        (Lead::Owner(owner), None) => query
            .push(if living {
                " FROM sandboxes s INDEXED BY sandboxes_owner_living WHERE s.state <> 'destroyed' AND s.owner_key = "
            } else {
                " FROM sandboxes s INDEXED BY sandboxes_owner WHERE s.owner_key = "
            })
            .push_bind(owner),
        (Lead::Label(name, value), _) => query
            .push(if living {
                " FROM sandbox_labels k INDEXED BY sandbox_labels_living "
            } else {
                " FROM sandbox_labels k INDEXED BY sandbox_labels_all "
            })
            .push(join)
            .push(if living { " WHERE k.living = 1 AND k.name = " } else { " WHERE k.name = " })
            .push_bind(name)
            .push(" AND k.value = ")
            .push_bind(value),
    };
}

/// The whole statement: the leading condition, the others, the page.
pub(super) fn page_query<'a>(
    lead: Lead<'a>,
    filter: &'a Filter,
    before: Option<SandboxId>,
    limit: Limit,
) -> Query<'a> {
    let mut query = query("SELECT s.doc");
    // CROSS JOIN fixes the order: labels first, then each one's sandbox.
    push_lead(&mut query, lead, filter, "CROSS JOIN sandboxes s ON s.id = k.id");
    if let (Lead::Label(..), Some(state)) = (lead, filter.state) {
        query.push(" AND s.state = ").push_bind(state.as_str());
    }
    if let (Lead::Label(..), Some(owner)) = (lead, &filter.owner_key) {
        query.push(" AND s.owner_key = ").push_bind(owner);
    }
    let leading = if let Lead::Label(name, _) = lead { Some(name) } else { None };
    for (name, value) in filter.labels.iter().filter(|(name, _)| Some(name.as_str()) != leading) {
        query.push(" AND EXISTS (SELECT 1 FROM sandbox_labels l WHERE l.id = s.id AND l.name = ");
        query.push_bind(name).push(" AND l.value = ").push_bind(value).push(")");
    }
    let id = if leading.is_some() { "k.id" } else { "s.id" };
    // The first page begins above every id, so that it is the same statement as the others.
    let before = before.map_or_else(|| "sbx_~".to_owned(), |id| id.to_string());
    query.push(format_args!(" AND {id} < ")).push_bind(before);
    // One more than asked tells whether there is a next page.
    query.push(format_args!(" ORDER BY {id} DESC LIMIT ")).push_bind(i64::from(limit.get()) + 1);
    query
}
