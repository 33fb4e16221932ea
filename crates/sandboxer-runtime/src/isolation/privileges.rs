//! Users and capabilities of init and of the commands it starts.

use crate::error::{AtStep as _, Result};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitiesSecureBits as Bits, CapabilitySet as Caps, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// What init keeps where it has a range of ids: becoming the exec's user and ending its processes.
/// `SETPCAP` lets each command drop even these from its bounding set.
pub(crate) const INIT_CAPS: Caps = Caps::SETUID.union(Caps::SETGID).union(Caps::KILL).union(Caps::SETPCAP);

/// Takes on a user inside; the groups go first, because without being root they could not be changed.
pub(crate) fn become_user(uid: u32, gid: u32, set_groups: bool) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    if set_groups {
        set_thread_groups(&[]).at("groups", "cannot drop the groups")?;
    }
    set_thread_res_gid(gid, gid, gid).at("gid", "cannot change the group")?;
    set_thread_res_uid(uid, uid, uid).at("uid", "cannot change the user")
}

/// A program that runs as uid 0, is setuid or has file capabilities gains nothing by it, for good.
pub(crate) fn lock_secure_bits() -> Result<()> {
    let bits = Bits::NO_ROOT
        | Bits::NO_ROOT_LOCKED
        | Bits::NO_SETUID_FIXUP_LOCKED
        | Bits::KEEP_CAPS_LOCKED
        | Bits::NO_CAP_AMBIENT_RAISE
        | Bits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(bits).at("securebits", "cannot lock the secure bits")
}

/// Removes every capability but `keep` from every set of this process.
pub(crate) fn drop_capabilities(keep: Caps) -> Result<()> {
    for bit in 0..64 {
        let cap = Caps::from_bits_retain(1 << bit);
        if keep.contains(cap) {
            continue;
        }
        match remove_capability_from_bounding_set(cap) {
            Ok(()) => {}
            // The first number the kernel does not know ends the list.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error).at("capabilities", "cannot shrink the bounding set"),
        }
    }
    clear_ambient_capability_set().at("capabilities", "cannot clear the ambient set")?;
    clear_to(keep)
}

/// Removes the rest of init's capabilities, in a command.
pub(crate) fn drop_last_capabilities() -> Result<()> {
    for cap in INIT_CAPS.iter() {
        remove_capability_from_bounding_set(cap).at("capabilities", "cannot empty the bounding set")?;
    }
    Ok(())
}

pub(crate) fn clear_to(keep: Caps) -> Result<()> {
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: Caps::empty() };
    set_capabilities(None, sets).at("capabilities", "cannot drop the capabilities")
}
