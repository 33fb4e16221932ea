//! Times launch, exec and stop, and the memory of idle sandboxes.
//!
//! `cargo run --release --example launch_loop -- [rounds] [idle sandboxes]`
#![allow(clippy::print_stdout, reason = "a measuring program prints")]
#![allow(clippy::unwrap_used, reason = "a measuring program may stop at the first failure")]

use sandboxer_runtime::{ExecSpec, LauncherExe, Limits, Runtime, RuntimeDirs, SandboxSpec, Stdio};
use std::time::{Duration, Instant};

fn main() {
    sandboxer_runtime::run_if_launcher();
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let (rounds, idle) = (args.next().unwrap_or(200), args.next().unwrap_or(100));
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    executor.block_on(measure(rounds, idle));
}

fn spec(id: String) -> SandboxSpec {
    let mut spec = SandboxSpec::new(id, Duration::from_secs(600));
    spec.limits = Limits { memory_mb: Some(256), pids: Some(256), ..Limits::default() };
    spec
}

async fn run_true(control: &sandboxer_runtime::Control) {
    let streams = [Stdio::Null, Stdio::Null, Stdio::Null];
    let mut session = control.exec_with(ExecSpec::new(["/bin/true"]), streams).await.unwrap();
    assert_eq!(session.wait().await.unwrap().code, 0);
}

async fn measure(rounds: usize, idle: usize) {
    let dir = std::env::temp_dir().join(format!("sandboxer-loop-{}", std::process::id()));
    let runtime = Runtime::new(RuntimeDirs::new(&dir), LauncherExe::CurrentExe);
    let (mut launches, mut firsts, mut stops, mut execs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds + 5 {
        let id = format!("loop-{round}");
        let start = Instant::now();
        let launched = runtime.launch(spec(id.clone())).await.unwrap();
        let launch = start.elapsed();
        run_true(&launched.control).await;
        let first = start.elapsed();
        let again = Instant::now();
        run_true(&launched.control).await;
        let exec = again.elapsed();
        let stopping = Instant::now();
        assert!(runtime.stop(&id).await.unwrap().is_clean());
        if round >= 5 {
            launches.push(launch);
            firsts.push(first);
            execs.push(exec);
            stops.push(stopping.elapsed());
        }
    }
    println!("{:<28}{:>10}{:>10}{:>10}", "milliseconds", "p50", "p95", "p99");
    print_row("launch", &mut launches);
    print_row("launch + first exec", &mut firsts);
    print_row("exec of /bin/true", &mut execs);
    print_row("stop", &mut stops);
    measure_memory(&runtime, idle).await;
    drop(runtime);
    std::fs::remove_dir_all(&dir).unwrap();
}

async fn measure_memory(runtime: &Runtime, count: usize) {
    let mut pids = Vec::new();
    for number in 0..count {
        let launched = runtime.launch(spec(format!("idle-{number}"))).await.unwrap();
        pids.extend([launched.supervisor_pid, launched.init_pid]);
    }
    let total: u64 = pids.iter().map(|pid| pss_kb(*pid)).sum();
    if count > 0 {
        println!("PSS of supervisor + init, {count} idle sandboxes: {} KiB each", total / count as u64);
    }
    for number in 0..count {
        assert!(runtime.stop(&format!("idle-{number}")).await.unwrap().is_clean());
    }
}

fn pss_kb(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn print_row(name: &str, times: &mut [Duration]) {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
    println!("{name:<28}{:>10.2}{:>10.2}{:>10.2}", at(50), at(95), at(99));
}
