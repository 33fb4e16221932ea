//! What of a folder belongs to the workspace.

/// Which ignore files count, what is left out by itself, and how much may be taken.
#[derive(Clone, Debug)]
pub struct Rules {
    /// `.gitignore`, in every folder.
    pub gitignore: bool,
    /// `.dockerignore`, at the top only, with Docker's reading of it.
    pub dockerignore: bool,
    /// Take `.git` along. Its hooks stay behind in any case: they are programs that a checkout runs.
    pub git: bool,
    /// Take files along that usually hold credentials: `.env`, private keys, `.netrc` …
    pub secrets: bool,
    /// Further patterns as in `.sandboxerignore`, relative to the top.
    pub extra: Vec<String>,
    /// Keep the times of files. Without, equal contents give equal archives.
    pub times: bool,
    pub limits: Limits,
}

/// Bounds; a folder beyond them is refused as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub entries: u64,
    pub bytes: u64,
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 500_000, bytes: 16 << 30, depth: 64 }
    }
}

impl Rules {
    /// For a workspace: the repository with its history, without what git ignores and without credentials.
    pub fn workspace() -> Self {
        Self {
            gitignore: true,
            dockerignore: false,
            git: true,
            secrets: false,
            extra: Vec::new(),
            times: true,
            limits: Limits::default(),
        }
    }

    /// For a bundle that something is built or started from: no history, no credentials, no times.
    pub fn bundle() -> Self {
        Self { dockerignore: true, git: false, times: false, ..Self::workspace() }
    }
}
