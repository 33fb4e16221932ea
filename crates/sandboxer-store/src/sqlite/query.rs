//! A statement with its parameters.

use std::borrow::Cow;
use std::fmt::Write as _;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{CachedStatement, Connection, Row, Rows, params_from_iter};

use super::fault::{Attempt, Fault};

/// Text and parameters, in the order of their places. Text is kept as it is, so that SQLite's plan for it is found again.
#[derive(Debug)]
pub(super) struct Query<'a> {
    sql: Cow<'a, str>,
    parameters: Vec<ToSqlOutput<'a>>,
}

pub(super) fn query(sql: &str) -> Query<'_> {
    Query { sql: Cow::Borrowed(sql), parameters: Vec::new() }
}

impl<'a> Query<'a> {
    /// The next parameter.
    pub(super) fn bind(mut self, value: impl Parameter<'a>) -> Self {
        self.parameters.push(value.into_parameter());
        self
    }

    /// More text.
    pub(super) fn push(&mut self, sql: impl std::fmt::Display) -> &mut Self {
        // Writing to a string cannot fail.
        let _ = write!(self.sql.to_mut(), "{sql}");
        self
    }

    /// A place for a parameter, and its value.
    pub(super) fn push_bind(&mut self, value: impl Parameter<'a>) -> &mut Self {
        self.sql.to_mut().push('?');
        self.parameters.push(value.into_parameter());
        self
    }

    /// For statements that give no rows; how many they changed.
    pub(super) fn run(self, connection: &Connection) -> Attempt<usize> {
        let mut statement = self.prepare(connection)?;
        Ok(statement.execute(params_from_iter(self.parameters))?)
    }

    /// Every row, read by `read`.
    pub(super) fn all<T>(
        self,
        connection: &Connection,
        mut read: impl FnMut(&Row<'_>) -> Attempt<T>,
    ) -> Attempt<Vec<T>> {
        let mut out = Vec::new();
        self.each(connection, |row| {
            out.push(read(row)?);
            Ok(())
        })?;
        Ok(out)
    }

    /// Each row in turn.
    pub(super) fn each(
        self,
        connection: &Connection,
        mut see: impl FnMut(&Row<'_>) -> Attempt<()>,
    ) -> Attempt<()> {
        let mut statement = self.prepare(connection)?;
        let mut rows = self.rows(&mut statement)?;
        while let Some(row) = rows.next()? {
            see(row)?;
        }
        Ok(())
    }

    /// The first row, if there is one.
    pub(super) fn first<T>(
        self,
        connection: &Connection,
        read: impl FnOnce(&Row<'_>) -> Attempt<T>,
    ) -> Attempt<Option<T>> {
        let mut statement = self.prepare(connection)?;
        let mut rows = self.rows(&mut statement)?;
        rows.next()?.map(read).transpose()
    }

    /// The row of a statement that always gives one.
    pub(super) fn one<T>(
        self,
        connection: &Connection,
        read: impl FnOnce(&Row<'_>) -> Attempt<T>,
    ) -> Attempt<T> {
        self.first(connection, read)?.ok_or_else(|| Fault::internal("a statement gave no row"))
    }

    /// Whether there is a row.
    pub(super) fn any(self, connection: &Connection) -> Attempt<bool> {
        Ok(self.first(connection, |_| Ok(()))?.is_some())
    }

    #[cfg(test)]
    pub(super) fn sql(&self) -> &str {
        &self.sql
    }

    fn prepare<'c>(&self, connection: &'c Connection) -> Attempt<CachedStatement<'c>> {
        Ok(connection.prepare_cached(&self.sql)?)
    }

    fn rows<'s>(self, statement: &'s mut CachedStatement<'_>) -> Attempt<Rows<'s>> {
        Ok(statement.query(params_from_iter(self.parameters))?)
    }
}

/// What can be a parameter. Text is borrowed where it can be.
pub(super) trait Parameter<'a> {
    fn into_parameter(self) -> ToSqlOutput<'a>;
}

impl<'a> Parameter<'a> for &'a str {
    fn into_parameter(self) -> ToSqlOutput<'a> {
        ToSqlOutput::Borrowed(ValueRef::Text(self.as_bytes()))
    }
}

impl<'a> Parameter<'a> for &'a String {
    fn into_parameter(self) -> ToSqlOutput<'a> {
        self.as_str().into_parameter()
    }
}

impl<'a> Parameter<'a> for String {
    fn into_parameter(self) -> ToSqlOutput<'a> {
        ToSqlOutput::Owned(Value::Text(self))
    }
}

impl<'a> Parameter<'a> for f64 {
    fn into_parameter(self) -> ToSqlOutput<'a> {
        ToSqlOutput::Owned(Value::Real(self))
    }
}

/// Whole numbers that fit.
macro_rules! whole {
    ($($kind:ty),*) => {$(
        impl<'a> Parameter<'a> for $kind {
            fn into_parameter(self) -> ToSqlOutput<'a> {
                ToSqlOutput::Owned(Value::Integer(i64::from(self)))
            }
        }
    )*};
}
whole!(bool, u16, u32, i64);

impl<'a, T: Parameter<'a>> Parameter<'a> for Option<T> {
    fn into_parameter(self) -> ToSqlOutput<'a> {
        self.map_or(ToSqlOutput::Owned(Value::Null), T::into_parameter)
    }
}

impl<'a, T> Parameter<'a> for &'a Option<T>
where
    &'a T: Parameter<'a>,
{
    fn into_parameter(self) -> ToSqlOutput<'a> {
        self.as_ref().into_parameter()
    }
}
