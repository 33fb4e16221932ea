//! Where a connection's socket and files are. The kernel allows a socket no more than 107 bytes of path.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use sandboxer_core::{Error, ErrorKind, Result};

/// The client binds a temporary name first, with seventeen bytes more.
const MOST: usize = 107 - 17;

/// The folder for sockets: below the state folder, or in a temporary one where that is too deep.
pub(super) fn socket_dir(state_dir: &Path, file: &str) -> Result<PathBuf> {
    let near = state_dir.join("ssh");
    let fits = |dir: &Path| dir.as_os_str().len() + 1 + file.len() <= MOST;
    if fits(&near) {
        make_private(&near)?;
        return Ok(near);
    }
    let uid = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let far = match runtime.map(|dir| dir.join("sandboxer-ssh")).filter(|dir| fits(dir)) {
        Some(dir) => dir,
        None => PathBuf::from(format!("/tmp/sandboxer-ssh-{uid}")),
    };
    make_private(&far)?;
    Ok(far)
}

/// A folder that is ours and nobody else's: whoever can put a socket there would get our commands.
pub(super) fn make_private(dir: &Path) -> Result<()> {
    let broken = |source| {
        Error::new(ErrorKind::StoreFailed, format!("{} cannot be made", dir.display())).with_source(source)
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(broken)?;
    let found = std::fs::symlink_metadata(dir).map_err(broken)?;
    let ours = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !ours || found.mode() & 0o022 != 0 {
        return Err(Error::new(
            ErrorKind::Denied,
            format!("{} is not a folder that only this user can write to", dir.display()),
        )
        .with_hint("remove it, or set SANDBOXER_HOME to another place"));
    }
    Ok(())
}
