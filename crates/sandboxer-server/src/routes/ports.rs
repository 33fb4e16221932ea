//! Ports inside a sandbox: plain HTTP is passed through, anything else goes over a WebSocket.

mod headers;
pub(crate) mod proxy;
pub(crate) mod tunnel;
