//! Profiles: named, versioned recipes. The schema, its strict parser, the `extends` merge and the rules.
//!
//! Text comes in with the name of its source; reading folders is the catalog's work, in the engine.

mod schema;

pub use schema::*;
