//! ext.native: the native runtime behind the extension contract
