//! A launcher of its own, so that this crate's tests and example need no other binary. Called with
//! `self-test DIR` it launches a sandbox as whoever runs it and prints what it finds.
#![allow(clippy::print_stdout, reason = "it prints what the test reads")]

use sandboxer_runtime::{
    ControlName, ExecSpec, LauncherExe, Outcome, Result, Runtime, RuntimeDirs, SandboxSpec,
};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

fn main() {
    sandboxer_runtime::run_if_launcher();
    let mut args = std::env::args().skip(1);
    let (Some("self-test"), Some(dir)) = (args.next().as_deref(), args.next()) else { std::process::exit(2) };
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = executor.map(|executor| executor.block_on(self_test(&dir)));
    match outcome {
        Ok(Ok(())) => {}
        other => {
            println!("failed: {other:?}");
            std::process::exit(1);
        }
    }
}

async fn self_test(dir: &str) -> Result<()> {
    let runtime = Runtime::new(RuntimeDirs::new(dir), LauncherExe::CurrentExe);
    let id = format!("self-test-{}", std::process::id());
    let mut spec = SandboxSpec::new(&id, Duration::from_secs(60));
    spec.limits.memory_mb = Some(64);
    let launched = runtime.launch(spec).await?;
    for control in &launched.enforced.controls {
        println!("{:?} {:?}: {}", control.control, control.outcome, control.detail);
    }
    let missing = launched
        .enforced
        .controls
        .iter()
        .filter(|c| c.outcome != Outcome::Enforced && c.control != ControlName::MemoryLimit);
    let missing: Vec<String> = missing.map(|control| format!("{:?}", control.control)).collect();
    println!(
        "missing capabilities: {}",
        if missing.is_empty() { "none".to_owned() } else { missing.join(", ") }
    );
    if launched.enforced.get(ControlName::MemoryLimit).is_some_and(|c| c.outcome == Outcome::Missing) {
        println!("memory_limit missing");
    }
    let script = "echo uid $(id -u); touch /workspace/x $HOME/y /tmp/z || echo unwritable
        echo caps $(grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | awk '{print $2}')
        cat /proc/1/environ 2>/dev/null || echo init hidden";
    let mut session = launched.control.exec(ExecSpec::new(["sh", "-c", script])).await?;
    let mut text = String::new();
    if let Some(mut stdout) = session.stdout.take() {
        let _ = stdout.read_to_string(&mut text).await;
    }
    println!("{text}exit {}", session.wait().await?.code);
    let mut root = ExecSpec::new(["true"]);
    root.user = Some("root".to_owned());
    if launched.control.exec(root).await.is_err() {
        println!("root refused");
    }
    let report = runtime.stop(&id).await?;
    println!("stopped {}", if report.is_clean() { "clean" } else { "with leftovers" });
    Ok(())
}
