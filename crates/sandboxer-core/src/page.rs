//! Cursor pages: a bounded list and where it goes on.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// One page of a listing. `next_cursor` is absent on the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next_cursor: self.next_cursor }
    }
}

/// How many items a page may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(u32);

impl Limit {
    pub const DEFAULT: Self = Self(100);
    pub const MAX: u32 = 1_000;

    pub fn new(wanted: u32) -> Result<Self, Error> {
        if (1..=Self::MAX).contains(&wanted) {
            return Ok(Self(wanted));
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("a page of {wanted} items is not possible"))
            .with_hint(format!("`limit` goes from 1 to {}", Self::MAX)))
    }

    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self::DEFAULT
    }
}
