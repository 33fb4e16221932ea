//! Profiles: named, versioned recipes. The schema, its strict parser, the `extends` merge and the rules.
//!
//! Text comes in with the name of its source; reading folders is the catalog's work, in the engine.
//! The way of one profile: [`ProfileFile::parse`] for each file of an `extends` chain, then [`resolve`].

pub(crate) mod decode;
// Shared with the price files, which are YAML with places as well.
pub(crate) mod fields;
mod merge;
pub(crate) mod node;
mod parse;
mod reference;
mod route;
mod schema;
mod validate;
pub(crate) mod yaml;

pub use merge::resolve;
pub use parse::{MAX_FILE_BYTES, ProfileFile};
pub use reference::{ProfileRef, Version, VersionReq};
pub(crate) use route::{check_extension, is_place};
pub use schema::*;

/// Every key of the schema, section by section; the empty name is the top level.
pub fn known_keys() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    decode::SECTIONS.iter().map(|section| (section.name, section.keys))
}

#[cfg(test)]
mod tests;
