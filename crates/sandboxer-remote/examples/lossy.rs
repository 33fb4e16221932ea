use sandboxer_remote::{Command, Remote, Stdin};
use sandboxer_testkit::real::sshd::SshHost;
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let host = SshHost::start("latency");
    let state = tempfile::tempdir().unwrap();
    let remote = Remote::open(&host.host(), state.path()).unwrap();
    let mut bad = 0;
    for round in 0..1000 {
        match remote.output(Command::new(["sh", "-c", "cat; echo words >&2; exit 3"]).stdin(Stdin::Bytes(b"x".to_vec())), 10).await {
            Err(e) => { bad += 1; println!("{round} fed {e:?}"); }
            Ok(out) => if out.outcome.exit_code != 3 || out.stderr != b"words\n" || out.stdout != b"x" { bad += 1; println!("{out:?}"); }
        }
    }
    println!("bad {bad}");
    remote.disconnect().await;
}
