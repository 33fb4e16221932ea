//! The HTTP API: `/v1`, its OpenAPI document, health and metrics.
//!
//! A handler parses what was sent, asks the engine and writes the answer down; what is allowed, what happens and in
//! which order is the engine's. The way of a request: [`serve()`] accepts it and learns whose it is → `edge` gives it
//! an id → `auth` says who asks → a file under `routes/` → the engine. Errors go back the same way and become the
//! envelope at the edge.

mod app;
mod auth;
mod edge;
mod error;
mod idempotency;
mod json;
mod limits;
mod local_peer;
mod metrics;
mod openapi;
mod output;
mod path;
mod pump;
mod query;
mod request_id;
mod routes;
mod serve;
mod stream;

pub use app::App;
pub use auth::Peer;
pub use error::{EDGE_CODES, Envelope, ErrorBody};
pub use limits::Limits;
pub use openapi::openapi;
pub use routes::router;
pub use serve::{ServeOptions, serve};
