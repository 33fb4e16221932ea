//! The sandboxer command
