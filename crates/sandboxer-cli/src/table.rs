//! Tables and key-value lists: aligned by spaces, no lines, so that they can be read and cut by other tools.

use comfy_table::{Table, presets};

use crate::human::{cell, inert};
use crate::printer::{Printer, Tone};
use crate::status::Outcome;

/// Rows below a line of headings.
pub(crate) struct Rows {
    table: Table,
    empty: bool,
}

impl Rows {
    pub(crate) fn new<const N: usize>(headings: [&str; N]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(headings);
        Self { table, empty: true }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.empty = false;
        self.table.add_row(cells.map(|text| match cell(&text) {
            text if text.is_empty() => "-".to_owned(),
            text => text,
        }));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    /// The table's lines, without the padding at both ends.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.table.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect()
    }

    pub(crate) fn print(&self, printer: &Printer) -> Outcome<()> {
        for (index, line) in self.lines().iter().enumerate() {
            printer.line(&if index == 0 { printer.tone(Tone::Strong, line) } else { line.clone() })?;
        }
        Ok(())
    }
}

/// `key:  value` lines with the values below each other.
#[derive(Default)]
pub(crate) struct Fields {
    fields: Vec<(String, String, Tone)>,
}

impl Fields {
    pub(crate) fn add(&mut self, key: &str, value: impl Into<String>) -> &mut Self {
        self.toned(key, value, Tone::Plain)
    }

    pub(crate) fn toned(&mut self, key: &str, value: impl Into<String>, tone: Tone) -> &mut Self {
        self.fields.push((key.to_owned(), value.into(), tone));
        self
    }

    /// Only what is there.
    pub(crate) fn maybe(&mut self, key: &str, value: Option<String>) -> &mut Self {
        match value.filter(|value| !value.is_empty()) {
            Some(value) => self.add(key, value),
            None => self,
        }
    }

    pub(crate) fn print(&self, printer: &Printer) -> Outcome<()> {
        let width = self.fields.iter().map(|(key, ..)| key.chars().count()).max().unwrap_or(0) + 1;
        for (key, value, tone) in &self.fields {
            let indent = format!("\n{:width$}  ", "");
            let value = printer.tone(*tone, &inert(value).replace('\n', &indent));
            printer.line(&format!("{:width$}  {value}", format!("{key}:")))?;
        }
        Ok(())
    }
}
