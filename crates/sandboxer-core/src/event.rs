//! Lifecycle facts, as CloudEvents 1.0.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{EventId, SandboxId};
use crate::lifecycle::State;

/// One fact about one sandbox. `sequence` counts from 1 per sandbox and has no gaps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Event {
    pub specversion: String,
    pub id: EventId,
    /// The server or command line that recorded it.
    pub source: String,
    /// `dev.sandboxer.sandbox.ready`.
    #[serde(rename = "type")]
    pub kind: String,
    pub subject: SandboxId,
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    pub sequence: u64,
    pub datacontenttype: String,
    #[schema(value_type = Object)]
    pub data: serde_json::Value,
}

/// What an event is about, before the store gives it a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    pub id: EventId,
    pub kind: String,
    pub time: Timestamp,
    pub data: serde_json::Value,
}

impl NewEvent {
    /// The event of a transition into `state`.
    pub fn transition(state: State, time: Timestamp, data: serde_json::Value) -> Self {
        Self::fact(&format!("sandbox.{state}"), time, data)
    }

    /// Any other fact: `sandbox.ttl_extended`, `sandbox.recreated`.
    pub fn fact(name: &str, time: Timestamp, data: serde_json::Value) -> Self {
        Self { id: EventId::generate(), kind: format!("dev.sandboxer.{name}"), time, data }
    }

    pub fn into_event(self, source: &str, subject: SandboxId, sequence: u64) -> Event {
        Event {
            specversion: "1.0".into(),
            id: self.id,
            source: source.to_owned(),
            kind: self.kind,
            subject,
            time: self.time,
            sequence,
            datacontenttype: "application/json".into(),
            data: self.data,
        }
    }
}
