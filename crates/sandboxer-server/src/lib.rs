//! The HTTP API
