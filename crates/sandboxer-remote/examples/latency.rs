//! How long a command over an open connection takes, beside a bare multiplexed `ssh`: `cargo run --release --example latency`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

use std::time::{Duration, Instant};

use sandboxer_remote::{Command, Remote, Stdin};
use sandboxer_testkit::real::sshd::SshHost;

const ROUNDS: usize = 200;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let host = SshHost::start("latency");
    let state = tempfile::tempdir().unwrap();
    let remote = Remote::open(&host.host(), state.path()).unwrap();
    remote.connect().await.unwrap();
    let socket = std::fs::read_dir(state.path().join("ssh")).unwrap().flatten().map(|entry| entry.path());
    let socket = socket.into_iter().find(|path| path.extension().is_some_and(|end| end == "sock")).unwrap();
    let (mut ours, mut fed, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        remote.check("it", Command::new(["true"])).await.unwrap();
        ours.push(begin.elapsed());
        let begin = Instant::now();
        remote.check("it", Command::new(["cat"]).stdin(Stdin::Bytes(b"x".to_vec()))).await.unwrap();
        fed.push(begin.elapsed());
        let begin = Instant::now();
        let mut ssh = tokio::process::Command::new("ssh");
        ssh.args(["-F", "/dev/null", "-S"]).arg(&socket).args(["unused", "true"]);
        assert!(ssh.stdin(std::process::Stdio::null()).output().await.unwrap().status.success());
        bare.push(begin.elapsed());
    }
    println!("ours {:?}, with input {:?}, bare ssh {:?}", median(ours), median(fed), median(bare));
    remote.disconnect().await;
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}
