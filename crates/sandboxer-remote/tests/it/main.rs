//! Commands, files and connections on this machine and over a real sshd.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod commands;
mod connection;
mod files;
mod guard;
