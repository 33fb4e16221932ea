//! The stronger mode: a host that has `sandboxer` runs the sandbox by its own native runtime.
//!
//! The host's command line is the interface; its store for us is a folder of its own, never that of the host's user.
//! Beside it the sandbox has a directory as in the plain mode, with the guard of its deadline, the profile that it was
//! made from, and what `sandboxer create` answered.

mod control;
mod port;
mod probe;
mod provision;
mod remains;
mod state;

use sandboxer_core::sandbox::Sandbox as Record;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::Entry;
use serde::{Deserialize, Serialize};

pub(crate) use control::Inside;
pub(crate) use port::connect;
pub(crate) use probe::{Probe, look};
pub(crate) use provision::run as provision;
pub(crate) use remains::{list, report, teardown};
pub(crate) use state::{extend, is_alive, status};

/// The profile that a host makes our sandboxes from.
const PROFILE: &str = "profile.over-ssh";
/// The label that has our tag.
const LABEL: &str = "sandboxer.tag";

/// What a handle keeps about a sandbox of this mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Native {
    /// Its id on the host.
    pub(crate) id: String,
    /// The folder of the host's store for us.
    pub(crate) home: String,
}

impl Native {
    /// The host's command line with our store and nobody's server.
    fn argv<const N: usize>(&self, args: [&str; N]) -> Vec<String> {
        let globals = ["sandboxer", "--quiet", "--server", "", "--home", &self.home];
        globals.into_iter().chain(args).map(str::to_owned).collect()
    }

    /// The way into the sandbox; `dir` is its directory on the host.
    pub(crate) fn entry(&self, dir: &str) -> Entry {
        Entry { program: self.argv(["exec"]), target: self.id.clone(), dir: dir.to_owned() }
    }
}

/// The same for scripts: `sbx` is the command line, `ids TAG` the living sandboxes of a tag, `id_in FILE` the id in an
/// answer. Nothing that it starts is taken for a part of the command that started it.
macro_rules! sbx {
    ($body:literal) => {
        concat!(
            r#"
unset SANDBOXER_EXEC SANDBOXER_HOST SANDBOXER_PROFILES SANDBOXER_REGISTRY SANDBOXER_API_KEY SANDBOXER_STATE_HUB_URL SANDBOXER_LOG
umask 077
h=$HOME/.sandboxer/native
sbx() { sandboxer --quiet --server '' --home "$h" "$@"; }
id_in() { sed -n 's/^ *"sandbox_id": *"\(sbx_[0-9a-z]*\)".*/\1/p'; }
ids() { sbx list --json --label "sandboxer.tag=$1" | id_in; }
r=$1; case $r in "~/"*) r=$HOME/${r#"~/"};; esac
"#,
            $body
        )
    };
}
use sbx;

/// What the host's command line answered about one sandbox.
fn record(json: &[u8]) -> Result<Record> {
    serde_json::from_slice(json).map_err(|source| {
        Error::new(ErrorKind::BackendFailed, "the host's `sandboxer` answers what we do not understand")
            .with_source(source)
            .with_hint("use the same version of sandboxer here and on the host")
    })
}
