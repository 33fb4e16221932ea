//! What is done inside a machine once SSH leads into it: commands, files, archives, ports. The same for machines that we
//! booted and for those that were there.

use std::collections::BTreeMap;
use std::time::Duration;

use sandboxer_core::exec::{BoxRead, ExecSession, ExecSpec};
use sandboxer_core::extension::BoxDuplex;
use sandboxer_core::files::{FileInfo, validate_path};
use sandboxer_core::{Error, Result};
use sandboxer_remote::{Command, Files, Remote, Stdin};

/// Runs the rest of the arguments as the user `$1`: with util-linux, else with `su`, which busybox has too.
const AS_USER: &str = r#"
user=$1; shift
id -u "$user" >/dev/null 2>&1 || { echo "there is no user $user" >&2; exit 126; }
home=$(awk -F: -v user="$user" '$1 == user { print $6 }' /etc/passwd)
export HOME="${home:-/}" USER="$user" LOGNAME="$user"
if setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups true 2>/dev/null; then
    exec setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups -- "$@"
fi
exec su -s /bin/sh "$user" -c 'exec "$@"' -- sh "$@"
"#;

const PROBE_LIMIT: Duration = Duration::from_secs(60);

/// A way into a machine, and where the sandbox is in it.
pub(crate) struct Guest {
    pub(crate) remote: Remote,
    /// Where commands start and relative paths begin.
    pub(crate) workspace: String,
    /// Files are reached below this: the whole of a machine of ours, the sandbox's folder in somebody else's.
    pub(crate) root: String,
    /// Visible to every command.
    pub(crate) variables: BTreeMap<String, String>,
    /// Only root can become somebody else.
    pub(crate) is_root: bool,
    /// `user@address:port`, for people.
    pub(crate) endpoint: String,
    /// The folder there whose guard counts a running command as use.
    pub(crate) guarded: Option<String>,
}

impl Guest {
    pub(crate) async fn exec(&self, spec: ExecSpec) -> Result<ExecSession> {
        let mut command = match &spec.user {
            Some(_) if !self.is_root => {
                return Err(Error::unsupported(crate::ID, "another user than the one that SSH logs in as"));
            }
            Some(user) => Command::script(AS_USER, std::iter::once(user.clone()).chain(spec.argv)),
            None => Command::new(spec.argv),
        };
        command = command.envs(self.variables.clone()).envs(spec.env);
        command = command.cwd(match spec.cwd {
            Some(dir) if dir.starts_with('/') => dir,
            Some(dir) => format!("{}/{dir}", self.workspace),
            None => self.workspace.clone(),
        });
        if let Some(folder) = &self.guarded {
            command = command.guarded_by(folder);
        }
        if let Some(limit) = spec.timeout {
            command = command.timeout(limit.as_std());
        }
        if let Some(size) = spec.tty {
            command = command.tty(size);
        } else if spec.stdin {
            command = command.stdin(Stdin::Piped);
        }
        self.remote.start(command).await
    }

    /// Proves that commands run.
    pub(crate) async fn answers(&self) -> Result<()> {
        let probe = Command::new(["true"]).timeout(PROBE_LIMIT);
        self.remote.check("a first command", probe).await.map(drop)
    }

    pub(crate) async fn port(&self, port: u16) -> Result<BoxDuplex> {
        self.remote.forward(port).await
    }
}

/// Files and archives. Paths are as commands see them.
impl Guest {
    /// A path as it is below the root that files are reached from.
    fn below(&self, path: &str) -> Result<String> {
        validate_path(path)?;
        if self.root == self.workspace {
            // Commands say where they are by the whole path.
            let inside =
                path.strip_prefix(&self.workspace).filter(|rest| rest.is_empty() || rest.starts_with('/'));
            return Ok(inside.map_or(path, |rest| if rest.is_empty() { "." } else { rest }).to_owned());
        }
        Ok(if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", self.workspace) })
    }

    fn files(&self) -> Files {
        self.remote.files(&self.root)
    }

    pub(crate) async fn stat(&self, path: &str) -> Result<FileInfo> {
        self.files().stat(&self.below(path)?).await
    }

    pub(crate) async fn list(&self, path: &str) -> Result<Vec<FileInfo>> {
        self.files().list(&self.below(path)?).await
    }

    pub(crate) async fn read(&self, path: &str) -> Result<BoxRead> {
        self.files().read(&self.below(path)?).await
    }

    pub(crate) async fn write(&self, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        self.files().write(&self.below(path)?, mode, data).await
    }

    pub(crate) async fn delete(&self, path: &str, recursive: bool) -> Result<()> {
        self.files().delete(&self.below(path)?, recursive).await
    }

    pub(crate) async fn mkdir(&self, path: &str) -> Result<()> {
        self.files().mkdir(&self.below(path)?).await
    }

    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.files().rename(&self.below(from)?, &self.below(to)?).await
    }

    pub(crate) async fn archive_get(&self, path: &str) -> Result<BoxRead> {
        self.files().tar_out(&self.below(path)?).await
    }

    pub(crate) async fn archive_put(&self, path: &str, tar: BoxRead) -> Result<()> {
        self.files().tar_in(&self.below(path)?, tar).await
    }
}
