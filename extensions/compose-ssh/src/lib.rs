//! `ext.compose-ssh`: the compose stack of a repository on a placement host, see `docs.md`.

mod bundle;
mod file;
mod judge;
mod rewrite;
