//! What an extension declares that it can do. Each field has a case in the extension suite of the testkit.

use serde::{Deserialize, Serialize};

use crate::isolation::IsolationLevel;

/// One flat struct. Grammar: the name of the operation, then `_` and the refinement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
// What an extension of another version does not know of, it does not do.
#[serde(default)]
pub struct Capability {
    /// Strongest isolation that it can give.
    pub isolation: IsolationLevel,
    /// Runs commands.
    pub exec: bool,
    /// Keeps stdout and stderr apart.
    pub exec_split_streams: bool,
    /// Feeds stdin, with its end.
    pub exec_stdin: bool,
    /// Gives a terminal with resize.
    pub exec_tty: bool,
    /// Runs commands that outlive their caller, and keeps their output.
    pub exec_background: bool,
    /// Runs a command as a chosen user.
    pub exec_user: bool,
    /// Reads, writes, lists and removes files.
    pub files: bool,
    /// Takes and gives tar archives.
    pub archive: bool,
    /// Reaches a port inside.
    pub port: bool,
    /// Enforces `workspace.access: ro`.
    pub workspace_access: bool,
    /// Keeps a workspace beyond the life of a sandbox; without it only `persistence: ephemeral` is accepted.
    pub persistence: bool,
    /// Mounts host folders.
    pub mounts: bool,
    /// Enforces egress rules; without it only `network.default: deny` with no egress is accepted.
    pub egress: bool,
    /// Injects secrets at the boundary.
    pub secrets: bool,
    /// Moves the deadline of a living sandbox.
    pub extend_ttl: bool,
    /// Ends an idle sandbox by itself.
    pub idle_reap: bool,
    pub pause: bool,
    /// Takes checkpoints of a living sandbox, and deletes them.
    pub snapshot: bool,
    /// Starts a sandbox from a checkpoint.
    pub restore: bool,
    /// Several sandboxes from one checkpoint at a time.
    pub fork: bool,
    pub gpu: bool,
    /// Only for profiles and requests that name it: it needs inputs that others do not give.
    pub only_by_name: bool,
    /// Runs on a machine of the user's own.
    pub self_hosted: bool,
    /// Places sandboxes on the engine's own machine.
    pub host_local: bool,
    /// Places sandboxes on hosts that are reached by SSH.
    pub host_ssh: bool,
    /// Has logs of its own beside those of commands.
    pub backend_logs: bool,
    /// Accepts `image: host`.
    pub image_host: bool,
    /// Accepts an OCI reference.
    pub image_oci: bool,
    /// Accepts a root file system as a tar.
    pub image_rootfs_tar: bool,
}

/// The names of what is simply there or not, which a route may ask for.
macro_rules! flags {
    ($($name:ident),* $(,)?) => {
        impl Capability {
            pub const FLAGS: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Whether it has the capability of this name; nothing when there is no such name.
            pub fn flag(&self, name: &str) -> Option<bool> {
                match name {
                    $(stringify!($name) => Some(self.$name),)*
                    _ => None,
                }
            }
        }
    };
}

flags! {
    exec, exec_split_streams, exec_stdin, exec_tty, exec_background, exec_user, files, archive, port,
    workspace_access, persistence, mounts, egress, secrets, extend_ttl, idle_reap, pause, snapshot, restore, fork,
    gpu, only_by_name, self_hosted, host_local, host_ssh, backend_logs, image_host, image_oci, image_rootfs_tar,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_name() {
        let json = serde_json::to_value(Capability::default()).unwrap();
        let named = json.as_object().unwrap().iter().filter(|(_, value)| value.is_boolean());
        assert_eq!(named.map(|(name, _)| name.as_str()).collect::<Vec<_>>(), Capability::FLAGS);
        assert_eq!(Capability { gpu: true, ..Capability::default() }.flag("gpu"), Some(true));
        assert_eq!(Capability::default().flag("isolation"), None);
    }
}
