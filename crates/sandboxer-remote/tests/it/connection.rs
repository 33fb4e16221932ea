//! Hosts that cannot be reached, that are not who they were, and connections that break.

use std::time::{Duration, Instant};

use sandboxer_core::ErrorKind;
use sandboxer_core::exec::TtySize;
use sandboxer_core::host::{Host, HostAccess};
use sandboxer_remote::{Command, Remote, Stdin};
use sandboxer_testkit::real::{require, sshd::SshHost};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn host() -> Option<(SshHost, tempfile::TempDir, Remote)> {
    require(SshHost::available())?;
    let host = SshHost::start("far");
    let state = tempfile::tempdir().unwrap();
    let remote = Remote::open(&host.host(), state.path()).unwrap();
    Some((host, state, remote))
}

/// The same host with something of its access changed.
fn changed(host: &SshHost, change: impl FnOnce(&mut sandboxer_core::host::SshAccess)) -> Host {
    let mut access = host.access();
    change(&mut access);
    Host { access: HostAccess::Ssh(access), ..host.host() }
}

#[tokio::test]
async fn each_refusal_has_its_kind_and_its_words() {
    let Some((mut host, state, remote)) = host() else { return };
    remote.connect().await.unwrap();
    let other = SshHost::start("other");
    let open = |host: &Host| Remote::open(host, state.path()).unwrap();

    let error = open(&changed(&host, |access| {
        access.identity_file = Some(other.identity_file().display().to_string())
    }))
    .connect()
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.hint().unwrap().contains("authorized_keys"));

    let error = open(&changed(&host, |access| access.host_keys = vec![other.host_key()]))
        .connect()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostKeyRefused, "{error:?}");
    let words = error.to_string();
    assert_eq!(words.matches("SHA256:").count(), 2, "expected and offered: {words}");

    let error = open(&changed(&host, |access| access.port = 2)).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    let error = open(&changed(&host, |access| access.address = "no-such-name.invalid".into()))
        .connect()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    let odd = changed(&host, |access| access.address = "-oProxyCommand=id".into());
    assert_eq!(Remote::open(&odd, state.path()).err().unwrap().kind(), ErrorKind::InvalidInput);
    let none = open(&changed(&host, |access| access.host_keys.clear())).connect().await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::HostKeyRefused);

    host.rekey();
    let error = remote.output(Command::new(["true"]), 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostKeyRefused, "{error:?}");
    // Once the new key is confirmed, it is the host again.
    open(&host.host()).connect().await.unwrap();
    open(&host.host()).disconnect().await;

    host.stop();
    let error = open(&host.host()).output(Command::new(["true"]), 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
}

#[tokio::test]
async fn what_is_confided_is_in_no_process_list() {
    let Some((host, _state, remote)) = host() else { return };
    let secret = "hunter-two-4242";
    for stdin in [Stdin::Null, Stdin::Piped] {
        let command =
            Command::new(["sh", "-c", "echo ${#PASSWORD}; sleep 30"]).env("PASSWORD", secret).stdin(stdin);
        let mut session = remote.start(command).await.unwrap();
        let mut length = [0; 3];
        session.stdout.read_exact(&mut length).await.unwrap();
        assert_eq!(&length, b"15\n");
        assert!(host.processes().iter().any(|line| line.contains("sleep 30")));
        assert!(!host.processes().iter().any(|line| line.contains(secret)), "{:?}", host.processes());
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&line).contains(secret));
        }
    }
}

#[tokio::test]
async fn one_connection_serves_every_process() {
    let Some((host, state, remote)) = host() else { return };
    remote.check("first", Command::new(["true"])).await.unwrap();
    for _ in 0..3 {
        let again = Remote::open(&host.host(), state.path()).unwrap();
        again.check("again", Command::new(["true"])).await.unwrap();
    }
    assert_eq!(host.connections(), 1);
    remote.disconnect().await;
    let begin = Instant::now();
    while host.connections() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_long_state_path_still_has_a_socket() {
    let Some((host, state, _)) = host() else { return };
    let deep = state.path().join("deep/".repeat(40));
    std::fs::create_dir_all(&deep).unwrap();
    let remote = Remote::open(&host.host(), &deep).unwrap();
    remote.check("it", Command::new(["true"])).await.unwrap();
    remote.disconnect().await;
}

#[tokio::test]
async fn a_command_ends_on_the_host_when_its_line_breaks() {
    let Some((host, _state, remote)) = host() else { return };
    let seen = |word: &str| host.processes().iter().any(|line| line.contains(word));
    for (stdin, word) in [(Stdin::Null, "sleep 3711"), (Stdin::Piped, "sleep 3712")] {
        let line = format!("setsid {word} & {word}");
        let session = remote.start(Command::new(["sh", "-c", &line]).stdin(stdin)).await.unwrap();
        while !seen(word) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The watcher of a command with input comes on a line of its own.
        tokio::time::sleep(Duration::from_millis(500)).await;
        // The client process that holds the connection goes, as with a crash of this machine.
        remote.disconnect().await;
        let error = session.control.wait().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
        let begin = Instant::now();
        while seen(word) {
            assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", host.processes());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    remote.check("again", Command::new(["true"])).await.unwrap();
}

#[tokio::test]
async fn a_cut_is_noticed_on_both_sides() {
    let Some((host, _state, remote)) = host() else { return };
    let session = remote.start(Command::new(["sh", "-c", "setsid sleep 3713 & sleep 3713"])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Cut before its watcher has come.
    let _early = remote.start(Command::new(["sleep", "37131"]).stdin(Stdin::Piped)).await.unwrap();
    let begin = Instant::now();
    host.cut();
    let error = session.control.wait().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    while host.processes().iter().any(|line| line.contains("3713")) {
        assert!(begin.elapsed() < Duration::from_secs(80), "{:?}", host.processes());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let error = remote.output(Command::new(["true"]), 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    host.heal();
    remote.check("again", Command::new(["true"])).await.unwrap();
}

#[tokio::test]
async fn a_terminal_here_and_there() {
    let Some((host, _state, far)) = host() else { return };
    for remote in [Remote::local(), far] {
        let line = "test -t 0 && test -t 1 && test -t 2 && stty size; read line; stty size; echo \"got $line $WORD\"; exit 6";
        let command =
            Command::new(["sh", "-c", line]).env("WORD", "kept").tty(TtySize { rows: 31, cols: 101 });
        let mut session = remote.start(command).await.unwrap();
        let mut seen = String::new();
        read_until(&mut session.stdout, &mut seen, "31 101").await;
        session.control.resize(TtySize { rows: 41, cols: 121 }).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        session.stdin.as_mut().unwrap().write_all(b"words\r").await.unwrap();
        read_until(&mut session.stdout, &mut seen, "got words kept").await;
        assert!(seen.contains("41 121"), "{seen:?}");
        assert_eq!(session.control.wait().await.unwrap().exit_code, 6);

        // Ctrl-C is for the command. A shell's child that has not yet started its program swallows the
        // signal, and the trap waits for its end: so each child is a short one.
        let line = "trap 'echo interrupted; exit 9' INT; echo up; while :; do sleep 0.2; done";
        let command = Command::new(["sh", "-c", line]).tty(TtySize::default());
        let mut session = remote.start(command).await.unwrap();
        read_until(&mut session.stdout, &mut seen, "up").await;
        session.stdin.as_mut().unwrap().write_all(&[3]).await.unwrap();
        read_until(&mut session.stdout, &mut seen, "interrupted").await;
        assert_eq!(session.control.wait().await.unwrap().exit_code, 9);

        let session = remote
            .start(Command::new(["sh", "-c", "nohup setsid sleep 3714 & sleep 3714"]).tty(TtySize::default()))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(session);
        let begin = Instant::now();
        let left =
            || std::process::Command::new("pgrep").args(["-fx", "sleep 3714"]).output().unwrap().stdout;
        while !left().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(10));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert_eq!(std::fs::read_dir(host.home().join(".sandboxer/run")).unwrap().count(), 0);
}

async fn read_until(stream: &mut sandboxer_core::exec::BoxRead, seen: &mut String, words: &str) {
    let mut chunk = [0; 4096];
    let begin = seen.len();
    while !seen[begin..].contains(words) {
        let count = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut chunk)).await;
        let Ok(Ok(count @ 1..)) = count else { panic!("`{words}` never came: {seen:?}") };
        seen.push_str(&String::from_utf8_lossy(&chunk[..count]));
    }
}

#[tokio::test]
async fn ports_of_the_host_are_reached() {
    let Some((_host, _state, remote)) = host() else { return };
    let server = "import socket\ns=socket.create_server(('127.0.0.1',7007))\nprint('up',flush=True)\nwhile True:\n c=s.accept()[0]\n c.sendall(c.recv(99).upper());c.close()";
    let mut session = remote.start(Command::new(["python3", "-c", server])).await.unwrap();
    let mut up = [0; 3];
    session.stdout.read_exact(&mut up).await.unwrap();
    for _ in 0..2 {
        let mut line = remote.forward(7007).await.unwrap();
        line.write_all(b"hello").await.unwrap();
        let mut answer = Vec::new();
        line.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"HELLO");
    }
    assert_eq!(remote.forward(7008).await.err().unwrap().kind(), ErrorKind::Unreachable);
}
