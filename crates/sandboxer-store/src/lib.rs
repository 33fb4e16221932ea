//! The Store trait and its SQLite implementation
