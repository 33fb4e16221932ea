//! Requests of the contract as JSON.

use sandboxer_core::exec::ExecSpec;
use sandboxer_core::extension::ProvisionRequest;
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
