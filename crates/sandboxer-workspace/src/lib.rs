//! Folders as workspaces: ignore rules, manifests, differences, safe archives.
//!
//! Everything here is about folders on this machine and blocks. Nothing follows a symbolic link, and nothing that comes
//! from a sandbox is trusted. What to do with it is decided by the engine and the extensions.

mod apply;
mod fd;
mod ignored;
mod link;
mod manifest;
mod pack;
mod plan;
mod rules;
mod scan;
mod unpack;
mod walk;

pub use apply::{as_scanned, delete, make_dirs, pack_paths, sweep_unfinished};
pub use ignored::IgnoreSet;
pub use link::stays_inside;
pub use manifest::{Entry, Kind, Manifest, disguised, hash, is_portable, is_protected, is_protected_in};
pub use pack::{Packed, pack, pack_to};
pub use plan::{Change, Conflict, Plan, agreement, plan};
pub use rules::{Limits, Rules};
pub use scan::{Cache, Scan, Stamp, scan};
pub use unpack::{Guard, Unpacked, unpack, unpack_where};
pub use walk::{LeftOut, Omissions, Why};
