//! Routes at work: who is asked, who is left alone, who is taken over, and what is never left behind.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]

mod charges;
mod example;
mod fallback;
mod health;
mod hedging;
mod limits;
mod provider;
mod site;
mod wishes;
