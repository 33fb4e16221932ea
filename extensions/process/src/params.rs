//! Requests of the contract as JSON, and the answers that have more than one form.

use jiff::Timestamp;
use sandboxer_core::exec::ExecSpec;
use sandboxer_core::extension::{Life, ProvisionRequest};
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) fn provision(request: &ProvisionRequest) -> Value {
    json!({
        "sandbox_id": request.sandbox_id,
        "tag": request.tag,
        "host": request.host,
        "spec": request.spec,
        "seed": request.seed,
        "from": request.from,
        "expires_at": request.expires_at,
        "idle_reap_ms": request.idle_reap.map(|idle| idle.as_millis()),
    })
}

pub(crate) fn exec(spec: &ExecSpec) -> Value {
    json!({
        "exec_id": spec.exec_id,
        "argv": spec.argv,
        "cwd": spec.cwd,
        "env": spec.env,
        "user": spec.user,
        "timeout_ms": spec.timeout.map(|timeout| timeout.as_millis()),
        "tty": spec.tty,
        "stdin": spec.stdin,
    })
}

/// The answer to `is_alive`: a word, or with the end beside it.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Alive {
    Word(bool),
    Told {
        alive: bool,
        #[serde(default)]
        ended_at: Option<Timestamp>,
    },
}

impl From<Alive> for Life {
    fn from(told: Alive) -> Self {
        match told {
            Alive::Word(true) | Alive::Told { alive: true, .. } => Self::Alive,
            Alive::Word(false) => Self::ENDED,
            Alive::Told { alive: false, ended_at } => Self::Ended { at: ended_at },
        }
    }
}
