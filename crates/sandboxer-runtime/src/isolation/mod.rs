//! The isolation steps, one function each. Init calls them in order; nothing here loops or waits.

pub(crate) mod base;
pub(crate) mod landlock;
pub(crate) mod privileges;
pub(crate) mod rootfs;
pub(crate) mod seccomp;
pub(crate) mod usermounts;
