//! Users as the sandbox's own `/etc/passwd` has them. The workload may have written it: it is bounded
//! and a bad line is no line.

use crate::error::{Result, RuntimeError};
use crate::identity::{DEFAULT_UID, DEFAULT_USER, HOST_ID_COUNT};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use std::io::Read as _;

/// Who an exec runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) name: String,
    pub(super) home: String,
}

/// Finds the user that a spec names; with one mapped id there is only one.
pub(super) fn resolve(wanted: Option<&str>, mapped: bool) -> Result<User> {
    let default = User {
        uid: DEFAULT_UID,
        gid: DEFAULT_UID,
        name: DEFAULT_USER.to_owned(),
        home: format!("/home/{DEFAULT_USER}"),
    };
    let wanted = wanted.unwrap_or(DEFAULT_USER);
    if matches!(wanted, "user" | "1000" | "1000:1000") {
        return Ok(default);
    }
    if !mapped {
        let message =
            format!("user `{wanted}` is not available: this sandbox has the single user `{DEFAULT_USER}`");
        return Err(
            RuntimeError::invalid(message).with_hint("sandboxes launched by root have a range of users")
        );
    }
    let unknown = || RuntimeError::invalid(format!("there is no user `{wanted}` in the sandbox"));
    let (name, group) = wanted.split_once(':').map_or((wanted, None), |(name, group)| (name, Some(group)));
    let in_range = |id: &str| id.parse::<u32>().ok().filter(|id| *id < HOST_ID_COUNT);
    let known = passwd().into_iter().find(|user| user.name == name || in_range(name) == Some(user.uid));
    let mut user = match (known, in_range(name)) {
        (Some(user), _) => user,
        (None, Some(uid)) => User { uid, gid: uid, name: uid.to_string(), home: "/".to_owned() },
        (None, None) => return Err(unknown()),
    };
    if let Some(group) = group {
        user.gid = in_range(group).ok_or_else(unknown)?;
    }
    Ok(user)
}

fn passwd() -> Vec<User> {
    let mut text = Vec::new();
    if let Some(file) = open_regular("/etc/passwd") {
        let _ = file.take(256 << 10).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).lines().filter_map(parse).collect()
}

/// Root inside may have put a pipe or a device there, which must not hold up init.
fn open_regular(path: &str) -> Option<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let root =
        rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let file = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve).ok()?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file).ok()?.st_mode);
    (kind == FileType::RegularFile).then(|| std::fs::File::from(file))
}

fn parse(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok().filter(|id| *id < HOST_ID_COUNT)?;
    let gid = fields.next()?.parse().ok().filter(|id| *id < HOST_ID_COUNT)?;
    let home = fields.nth(1)?.to_owned();
    Some(User { uid, gid, name, home })
}
