//! A statement as text, in pieces: what comes before the entries, a page of them at a time, what comes after.

use sandboxer_core::ledger::Entry;
use sandboxer_core::{Error, ErrorKind, Result};

use super::totals::Pages;
use super::{Statement, StatementFormat, csv_text};
use crate::Engine;

/// A statement that is being written. The pieces in their order are the whole text.
pub struct StatementText {
    engine: Engine,
    statement: Statement,
    format: StatementFormat,
    /// Entries that came after the sums were made are for the next one who asks.
    through: i64,
    pages: Pages,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Head,
    Entries { is_first: bool },
    Over,
}

impl StatementText {
    pub(super) fn new(engine: Engine, statement: Statement, through: i64, format: StatementFormat) -> Self {
        let pages = Pages::of(&statement.account, Some(statement.from), Some(statement.until));
        Self { engine, statement, format, through, pages, place: Place::Head }
    }

    /// `statement-2026-11.csv`.
    pub fn file_name(&self) -> String {
        format!("statement-{}.{}", self.statement.month, self.format.as_str())
    }

    /// The next piece; nothing at the end.
    pub async fn next(&mut self) -> Result<Option<String>> {
        let is_first = match self.place {
            Place::Head => {
                self.place = Place::Entries { is_first: true };
                return self.head().map(Some);
            }
            Place::Entries { is_first } => is_first,
            Place::Over => return Ok(None),
        };
        let mut page = self.pages.next(&self.engine).await?.unwrap_or_default();
        page.retain(|entry| entry.position <= self.through);
        if page.is_empty() {
            self.place = Place::Over;
            return self.tail(is_first).map(Some);
        }
        self.place = Place::Entries { is_first: false };
        self.lines(&page, is_first).map(Some)
    }

    fn head(&self) -> Result<String> {
        match self.format {
            StatementFormat::Csv => csv_text::head(&self.statement),
            StatementFormat::Json => {
                let whole = json(&self.statement)?;
                // The entries are the last field, and there are none yet.
                Ok(whole.strip_suffix("]}").unwrap_or(&whole).to_owned())
            }
        }
    }

    fn lines(&self, page: &[Entry], is_first: bool) -> Result<String> {
        if self.format == StatementFormat::Csv {
            return csv_text::entries(page);
        }
        let mut text = String::new();
        for (place, entry) in page.iter().enumerate() {
            text.push_str(if is_first && place == 0 { "\n" } else { ",\n" });
            text.push_str(&json(entry)?);
        }
        Ok(text)
    }

    fn tail(&self, is_empty: bool) -> Result<String> {
        match self.format {
            StatementFormat::Csv => csv_text::tail(&self.statement),
            StatementFormat::Json if is_empty => Ok("]}\n".into()),
            StatementFormat::Json => Ok("\n]}\n".into()),
        }
    }
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|source| {
        Error::new(ErrorKind::Internal, "the statement cannot be written as JSON").with_source(source)
    })
}
