//! The report of isolation, and the boundary behind it.

use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::isolation::{IsolationLevel, Outcome as Result};

use super::Case;
use crate::conformance::rig::{Outcome, Rig, Stop, ensure};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "isolation.report",
            "the report names each control and claims no more than declared",
            &[],
            report,
        )
        .about(&["isolation"])
        .safe(),
        Case::new(
            "isolation.processes",
            "processes of the machine cannot be seen from inside",
            &["exec"],
            processes,
        )
        .about(&["isolation"]),
        Case::new(
            "isolation.loopback",
            "the machine's loopback cannot be reached from inside",
            &["exec"],
            loopback,
        )
        .about(&["isolation"]),
    ]
}

async fn report(rig: Arc<Rig>) -> Outcome {
    let handle = rig.shared().await?.handle;
    let declared = rig.capability.isolation;
    ensure(!handle.controls.is_empty(), || "the report names no control".into())?;
    ensure(handle.effective <= declared, || {
        format!("{} is more than the declared {declared}", handle.effective)
    })?;
    for control in &handle.controls {
        let silent =
            control.name.is_empty() || control.detail.is_empty() && control.outcome != Result::Enforced;
        ensure(!silent, || format!("{control:?} does not say what is missing"))?;
    }
    ensure(!handle.degraded || rig.subject.spec.allow_degraded, || {
        "it is degraded, and nobody allowed that".into()
    })
}

async fn contained(rig: &Rig) -> Outcome {
    let effective = rig.shared().await?.handle.effective;
    if effective >= IsolationLevel::Container {
        return Ok(());
    }
    Err(Stop::NotDeclared(format!("the sandbox says that its isolation is {effective}")))
}

async fn processes(rig: Arc<Rig>) -> Outcome {
    contained(&rig).await?;
    let sandbox = rig.shared().await?;
    // A number that only this process has as an argument.
    let mark = format!("1{:09}", std::process::id());
    let mut process = tokio::process::Command::new("sleep").arg(&mark).kill_on_drop(true).spawn()?;
    let line = "for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < \"$file\"; done 2>/dev/null; true";
    let seen = sandbox.sh(line, &[]).await?;
    let _ = process.kill().await;
    ensure(!seen.contains(&mark), || "a process of the machine is seen".into())
}

/// Connects with whatever is there; 9 says that nothing is.
const CONNECT: &str = r#"
if command -v python3 >/dev/null; then
  python3 -c 'import socket,sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)' "$1"
elif command -v busybox >/dev/null; then busybox nc -w 2 127.0.0.1 "$1" </dev/null
elif command -v nc >/dev/null; then nc -w 2 127.0.0.1 "$1" </dev/null
else exit 9; fi"#;

async fn loopback(rig: Arc<Rig>) -> Outcome {
    contained(&rig).await?;
    let sandbox = rig.shared().await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port().to_string();
    let output = sandbox.run(crate::conformance::sandbox::script(CONNECT, &[&port])).await?;
    if output.outcome.exit_code == 9 {
        return Err(Stop::NotDeclared("nothing inside can connect".into()));
    }
    let reached = tokio::time::timeout(Duration::from_millis(300), listener.accept()).await;
    ensure(reached.is_err(), || "a listener on the machine's loopback was reached".into())
}
