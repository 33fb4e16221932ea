//! Commands on a real host over SSH and on this machine: the same behaviour both ways.

use std::time::{Duration, Instant};

use sandboxer_core::ErrorKind;
use sandboxer_remote::{Command, Remote, Stdin};
use sandboxer_testkit::real::{require, sshd::SshHost};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Both ways, with what keeps them alive.
struct Ways {
    host: SshHost,
    _state: tempfile::TempDir,
    ways: Vec<Remote>,
}

fn ways() -> Option<Ways> {
    require(SshHost::available())?;
    let host = SshHost::start("one");
    let state = tempfile::tempdir().unwrap();
    let far = Remote::open(&host.host(), state.path()).unwrap();
    Some(Ways { host, _state: state, ways: vec![Remote::local(), far] })
}

#[tokio::test]
async fn streams_codes_directories_and_variables() {
    let Some(ways) = ways() else { return };
    for remote in &ways.ways {
        let out =
            remote.output(Command::new(["sh", "-c", "echo out; echo err >&2; exit 3"]), 1000).await.unwrap();
        assert_eq!(
            (out.outcome.exit_code, &out.stdout[..], &out.stderr[..]),
            (3, &b"out\n"[..], &b"err\n"[..])
        );

        let odd = "it's \"odd\" $HOME\n`x` \\ ü *";
        let command = Command::new(["printf", "%s|%s|", odd]).env("ODD", odd);
        let out = remote.output(command, 1000).await.unwrap();
        assert_eq!(out.stdout, format!("{odd}||").as_bytes());
        let command = Command::new(["sh", "-c", "printf %s \"$ODD\"; pwd"]).env("ODD", odd).cwd("/usr");
        assert_eq!(remote.output(command, 1000).await.unwrap().stdout, format!("{odd}/usr\n").as_bytes());

        for (argv, code) in [
            (vec!["nope-nope"], 127),
            (vec!["/etc/passwd"], 126),
            (vec!["sh", "-c", "kill -9 $$"], 137),
            (vec!["sh", "-c", "exit 255"], 255),
        ] {
            let out = remote.output(Command::new(argv.clone()), 1000).await.unwrap();
            assert_eq!(out.outcome.exit_code, code, "{argv:?}");
            if code == 137 {
                assert_eq!((out.stderr, out.outcome.signal), (Vec::new(), Some(9)));
            }
        }
        let error = remote.output(Command::new(["true"]).cwd("/no/such"), 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);

        let out = remote.output(Command::new(["head", "-c", "300000", "/dev/zero"]), 1000).await.unwrap();
        assert_eq!((out.stdout.len(), out.truncated, out.success()), (1000, true, true));
    }
    assert_eq!(ways.host.connections(), 1);
}

#[tokio::test]
async fn input_is_binary_clean_and_ends() {
    let Some(ways) = ways() else { return };
    for remote in &ways.ways {
        let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        let out =
            remote.output(Command::new(["cat"]).stdin(Stdin::Bytes(bytes.clone())), 2 << 20).await.unwrap();
        assert!(out.stdout == bytes && out.success());

        let mut session = remote.start(Command::new(["cat"]).stdin(Stdin::Piped)).await.unwrap();
        let mut stdin = session.stdin.take().unwrap();
        stdin.write_all(b"hello").await.unwrap();
        let mut echo = [0; 5];
        session.stdout.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"hello");
        drop(stdin);
        assert_eq!(session.control.wait().await.unwrap().exit_code, 0);
    }
}

/// Everything that runs somewhere with this word in its arguments.
fn running(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.split(' ').any(|argument| argument == word) {
            found.push(line);
        }
    }
    found
}

async fn gone(word: &str) {
    let end = Instant::now() + Duration::from_secs(10);
    while !running(word).is_empty() {
        assert!(Instant::now() < end, "still there: {:?}", running(word));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A tree of which some hide: in the background, in a session of their own, without the environment.
fn tree(word: &str) -> [String; 3] {
    let line = format!(
        "sleep {word} & setsid sleep {word} & env -i sleep {word} & (setsid sh -c 'sleep {word}; :' &) ; sleep {word}"
    );
    ["sh".into(), "-c".into(), line]
}

#[tokio::test]
async fn a_time_out_ends_the_whole_tree() {
    let Some(ways) = ways() else { return };
    for (index, remote) in ways.ways.iter().enumerate() {
        for (case, stdin) in [Stdin::Null, Stdin::Piped].into_iter().enumerate() {
            let word = format!("31{index}{case}.7");
            let command = Command::new(tree(&word)).timeout(Duration::from_millis(600)).stdin(stdin);
            let begin = Instant::now();
            let session = remote.start(command).await.unwrap();
            let outcome = session.control.wait().await.unwrap();
            assert!(outcome.timed_out && outcome.exit_code == 124, "{outcome:?}");
            assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
            gone(&word).await;
        }
    }
}

#[tokio::test]
async fn dropping_the_session_ends_the_whole_tree() {
    let Some(ways) = ways() else { return };
    for (index, remote) in ways.ways.iter().enumerate() {
        for (case, stdin) in [Stdin::Null, Stdin::Piped].into_iter().enumerate() {
            let word = format!("32{index}{case}.7");
            let session = remote.start(Command::new(tree(&word)).stdin(stdin)).await.unwrap();
            while running(&word).len() < 5 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            drop(session);
            gone(&word).await;
        }
    }
}

#[tokio::test]
async fn signals_reach_the_command_or_the_tree() {
    let Some(ways) = ways() else { return };
    for (index, remote) in ways.ways.iter().enumerate() {
        let word = format!("33{index}.7");
        let line = format!("trap 'echo caught; exit 5' INT; echo up; while :; do sleep {word} & wait; done");
        let mut session = remote.start(Command::new(["sh", "-c", &line])).await.unwrap();
        let mut up = [0; 3];
        session.stdout.read_exact(&mut up).await.unwrap();
        session.control.signal(2, false).await.unwrap();
        assert_eq!(session.control.wait().await.unwrap().exit_code, 5);
        // What the command left in the background is its own affair.
        assert_eq!(running(&word).len(), 1);
        let left =
            remote.output(Command::new(["pkill", "-f", &format!("^sleep {word}$")]), 100).await.unwrap();
        assert!(left.success());
        gone(&word).await;
    }
}

#[tokio::test]
async fn a_child_that_stays_does_not_hold_up_the_outcome() {
    let Some(ways) = ways() else { return };
    for (index, remote) in ways.ways.iter().enumerate() {
        let word = format!("34{index}.7");
        let session =
            remote.start(Command::new(["sh", "-c", &format!("sleep {word} & echo started")])).await.unwrap();
        let begin = Instant::now();
        assert_eq!(session.control.wait().await.unwrap().exit_code, 0);
        assert!(begin.elapsed() < Duration::from_secs(2));
        drop(session);
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(running(&word).len(), 1, "a finished command's children stay");
        let _ = remote.output(Command::new(["pkill", "-f", &format!("^sleep {word}$")]), 100).await.unwrap();
    }
}

#[tokio::test]
async fn many_at_once_share_few_connections() {
    let Some(ways) = ways() else { return };
    let remote = &ways.ways[1];
    let all =
        (0..25).map(|number| remote.output(Command::script("sleep 0.5; echo $1", [number.to_string()]), 100));
    for (number, output) in futures::future::join_all(all).await.into_iter().enumerate() {
        assert_eq!(output.unwrap().text(), number.to_string());
    }
    assert!(ways.host.connections() <= 4, "{}", ways.host.connections());
}
