//! The native Linux sandbox: launcher, supervisor, init and their client
