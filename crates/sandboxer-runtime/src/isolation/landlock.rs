//! Landlock: a second, independent line behind the mount namespace.
//!
//! Reading and executing is allowed everywhere, writing below the directories the sandbox owns. That
//! leaves `/proc` and `/sys` writable only where a process may change its own entries. Abstract sockets
//! and signals are kept inside. A process under Landlock can also not change any mount.

use crate::error::{Result, RuntimeError};
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};

/// The newest version whose rights this code knows.
const KNOWN: ABI = ABI::V6;

fn failed(reason: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::missing(
        "landlock",
        reason.to_string(),
        "the kernel needs CONFIG_SECURITY_LANDLOCK and lsm=landlock",
    )
}

/// Restricts this process and all it will start.
pub(crate) fn restrict() -> Result<String> {
    let everything = AccessFs::from_all(KNOWN);
    let contents = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)
        .and_then(|ruleset| ruleset.scope(Scope::from_all(KNOWN)))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    let root = PathFd::new("/").map_err(failed)?;
    let mut ruleset = ruleset.add_rule(PathBeneath::new(root, everything & !contents)).map_err(failed)?;
    for entry in std::fs::read_dir("/").map_err(failed)?.flatten() {
        let name = entry.file_name();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_dir || name == "sys" {
            continue;
        }
        // Of `/proc`, a process writes its own entries only; which they are is the kernel's to check.
        let access = if name == "proc" { AccessFs::WriteFile | AccessFs::Truncate } else { contents };
        let path = PathFd::new(entry.path()).map_err(failed)?;
        ruleset = ruleset.add_rule(PathBeneath::new(path, access)).map_err(failed)?;
    }
    let status = ruleset.restrict_self().map_err(failed)?;
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, status) => Err(failed(format!("{status:?}"))),
        (_, LandlockStatus::Available { effective_abi, .. }) => Ok(format!("ABI {}", effective_abi as i32)),
        (_, status) => Err(failed(format!("{status:?}"))),
    }
}

/// The kernel's version of Landlock; 0 where there is none.
pub(crate) fn abi() -> u32 {
    // SAFETY: with a null attribute and this flag the call only returns the version.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) };
    u32::try_from(version).unwrap_or(0)
}
