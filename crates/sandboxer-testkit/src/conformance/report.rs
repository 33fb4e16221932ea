//! What came out of a run: one row per case, as a table for people and as data.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// How one case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    Passed,
    Failed {
        why: String,
    },
    /// Not run: the capability does not claim it, or the report of the sandbox says that it is missing.
    NotDeclared {
        why: String,
    },
}

/// One case and its end.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: &'static str,
    /// What a pass shows.
    pub proves: &'static str,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub took_ms: u64,
}

/// Every case of a run in the order of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub extension: String,
    pub host: String,
    pub rows: Vec<Row>,
    pub took_ms: u64,
}

impl Report {
    /// Nothing that is declared failed, and something was declared.
    pub fn passed(&self) -> bool {
        self.failures().next().is_none() && self.rows.iter().any(|row| row.verdict == Verdict::Passed)
    }

    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| matches!(row.verdict, Verdict::Failed { .. }))
    }

    /// The verdict of one case; `None` when it was not part of the run.
    pub fn verdict(&self, name: &str) -> Option<&Verdict> {
        self.rows.iter().find(|row| row.name == name).map(|row| &row.verdict)
    }

    /// Shows the table, and ends the test when something failed.
    pub fn assert_passed(&self) {
        assert!(self.passed(), "{} does not pass the conformance suite:\n{self}", self.extension);
        #[allow(clippy::print_stderr, reason = "the table is what a run of the suite is for")]
        {
            eprintln!("{self}");
        }
    }
}

impl Row {
    pub(super) fn new(name: &'static str, proves: &'static str, verdict: Verdict, took: Duration) -> Self {
        Self { name, proves, verdict, took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {}", self.extension, self.host)?;
        for row in &self.rows {
            let (word, why) = match &row.verdict {
                Verdict::Passed => ("passed", String::new()),
                Verdict::Failed { why } => ("FAILED", format!("{}: {why}", row.proves)),
                Verdict::NotDeclared { why } => ("not declared", why.clone()),
            };
            writeln!(f, "  {:<28} {:<13} {:>6} ms  {why}", row.name, word, row.took_ms)?;
        }
        let count =
            |wanted: fn(&Verdict) -> bool| self.rows.iter().filter(|row| wanted(&row.verdict)).count();
        write!(
            f,
            "{} passed, {} failed, {} not declared, {:.1} s",
            count(|verdict| *verdict == Verdict::Passed),
            count(|verdict| matches!(verdict, Verdict::Failed { .. })),
            count(|verdict| matches!(verdict, Verdict::NotDeclared { .. })),
            Duration::from_millis(self.took_ms).as_secs_f64(),
        )
    }
}
