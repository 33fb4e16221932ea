//! Commands: streams, codes, signals, time-outs, terminals, background.

use sandboxer_runtime::{ErrorKind, ExecSpec, ExecState, Limits, Stream, Tty};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{Fixture, run, sh, sh_root};

#[tokio::test]
async fn codes_are_those_of_a_shell() {
    let fixture = Fixture::new();
    let launched = fixture.launch("codes").await;
    let control = &launched.control;
    assert_eq!(sh(control, "exit 7").await.exit.code, 7);
    let missing = run(control, ExecSpec::new(["no-such-command"])).await;
    assert_eq!(missing.exit.code, 127);
    assert!(missing.stderr.contains("no-such-command"), "{}", missing.stderr);
    assert_eq!(run(control, ExecSpec::new(["/etc/passwd"])).await.exit.code, 126);
    assert_eq!(run(control, ExecSpec::new(["/no/such/file"])).await.exit.code, 127);
    let killed = sh(control, "kill -TERM $$").await;
    assert_eq!((killed.exit.code, killed.exit.signal), (143, Some(15)));
    let mut nowhere = ExecSpec::new(["true"]);
    nowhere.cwd = Some("/no/such/dir".to_owned());
    assert_eq!(run(control, nowhere).await.exit.code, 126);
    assert_eq!(control.exec(ExecSpec::default()).await.unwrap_err().kind, ErrorKind::InvalidSpec);
    assert_eq!(control.exec(ExecSpec::new(["a\0b"])).await.unwrap_err().kind, ErrorKind::InvalidSpec);
    fixture.end(&launched).await;
}

#[tokio::test]
async fn stdin_is_binary_clean_and_ends() {
    let fixture = Fixture::new();
    let launched = fixture.launch("stdin").await;
    let mut session = launched.control.exec(ExecSpec::new(["cat"])).await.unwrap();
    let data: Vec<u8> = (0..=255_u8).cycle().take(300_000).collect();
    let (mut stdin, mut stdout) = (session.stdin.take().unwrap(), session.stdout.take().unwrap());
    let sent = data.clone();
    let write = async move {
        stdin.write_all(&sent).await.unwrap();
        drop(stdin);
    };
    let mut received = Vec::new();
    let (_, read) = tokio::join!(write, stdout.read_to_end(&mut received));
    read.unwrap();
    assert_eq!(received, data);
    assert_eq!(session.wait().await.unwrap().code, 0);
    fixture.end(&launched).await;
}

#[tokio::test]
async fn environment_directory_and_user_are_as_asked() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec("env");
    spec.env.insert("FROM_SANDBOX".to_owned(), "one".to_owned());
    let launched = fixture.runtime.launch(spec).await.unwrap();
    let mut exec = ExecSpec::new(["sh", "-c", "echo $FROM_SANDBOX $FROM_EXEC $HOME; pwd"]);
    exec.env.insert("FROM_EXEC".to_owned(), "two".to_owned());
    exec.cwd = Some("/tmp".to_owned());
    assert_eq!(run(&launched.control, exec).await.stdout, "one two /home/user\n/tmp\n");
    assert_eq!(sh_root(&launched.control, "id -u; echo $HOME").await.stdout, "0\n/root\n");
    let mut exec = ExecSpec::new(["id"]);
    exec.user = Some("77:88".to_owned());
    assert!(run(&launched.control, exec.clone()).await.stdout.starts_with("uid=77 gid=88"));
    exec.user = Some("nobody-knows".to_owned());
    assert_eq!(launched.control.exec(exec).await.unwrap_err().kind, ErrorKind::InvalidSpec);
    fixture.end(&launched).await;
}

/// Waits until no `sleep` is left, killed ones not yet reaped included.
async fn no_sleepers(control: &sandboxer_runtime::Control) {
    let start = Instant::now();
    while sh(control, "ps -e -o comm= | grep -c sleep").await.stdout != "0\n" {
        assert!(start.elapsed() < Duration::from_secs(10), "processes are left");
    }
}

#[tokio::test]
async fn a_timeout_kills_the_whole_tree() {
    let fixture = Fixture::new();
    let launched = fixture.launch("timeout").await;
    let script = "trap '' TERM INT HUP; (setsid sh -c 'sleep 1000 & sleep 1000' >/dev/null 2>&1 &) ; \
                  (sh -c '(sleep 1000 &) ' &); sleep 1000 & sleep 1000";
    let mut spec = ExecSpec::new(["/bin/sh", "-c", script]);
    spec.timeout_ms = Some(500);
    let start = Instant::now();
    let ran = run(&launched.control, spec).await;
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!((ran.exit.code, ran.exit.timed_out), (124, true));
    let control = &launched.control;
    no_sleepers(control).await;
    fixture.end(&launched).await;
}

#[tokio::test]
async fn a_dropped_session_kills_its_tree_and_a_background_child_does_not_hold_output() {
    let fixture = Fixture::new();
    let launched = fixture.launch("drop").await;
    let session = launched.control.exec(ExecSpec::new(["sh", "-c", "sleep 998 & sleep 998"])).await.unwrap();
    drop(session);
    no_sleepers(&launched.control).await;
    // The child keeps the pipe; the output ends with the command all the same, and the child lives on.
    let start = Instant::now();
    assert_eq!(sh(&launched.control, "sleep 997 & echo done").await.stdout, "done\n");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(sh(&launched.control, "ps -e -o comm= | grep -c sleep").await.stdout, "1\n");
    fixture.end(&launched).await;
}

#[tokio::test]
async fn signals_reach_the_command_or_its_tree() {
    let fixture = Fixture::new();
    let launched = fixture.launch("signal").await;
    let mut session = launched
        .control
        .exec(ExecSpec::new([
            "sh",
            "-c",
            "trap 'echo got; exit 3' USR1; echo up; while :; do sleep 0.05; done",
        ]))
        .await
        .unwrap();
    let mut stdout = session.stdout.take().unwrap();
    let mut up = [0; 3];
    stdout.read_exact(&mut up).await.unwrap();
    session.signal(10, false).await.unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await.unwrap();
    assert_eq!((rest.as_str(), session.wait().await.unwrap().code), ("got\n", 3));
    let mut session = launched.control.exec(ExecSpec::new(["sleep", "100"])).await.unwrap();
    session.signal(9, true).await.unwrap();
    assert_eq!(session.wait().await.unwrap().signal, Some(9));
    fixture.end(&launched).await;
}

#[tokio::test]
async fn a_terminal_is_one_and_can_be_resized() {
    let fixture = Fixture::new();
    let launched = fixture.launch("tty").await;
    let mut spec = ExecSpec::new([
        "sh",
        "-c",
        "tty; stty size; read line; stty size; echo \"<$line>\"; test -w $(tty) && echo writable",
    ]);
    spec.tty = Some(Tty { rows: 24, cols: 80 });
    let mut session = launched.control.exec(spec).await.unwrap();
    let mut stdout = session.stdout.take().unwrap();
    let mut seen = String::new();
    while !seen.contains("24 80") {
        let mut buffer = [0; 256];
        let count = stdout.read(&mut buffer).await.unwrap();
        assert!(count > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    session.resize(50, 132).unwrap();
    session.stdin.as_mut().unwrap().write_all(b"hello\n").await.unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await.unwrap();
    assert!(seen.contains("/dev/pts/"), "{seen}");
    assert!(rest.contains("50 132") && rest.contains("<hello>") && rest.contains("writable"), "{rest}");
    assert_eq!(session.wait().await.unwrap().code, 0);
    fixture.end(&launched).await;
}

#[tokio::test]
async fn background_output_is_kept_bounded() {
    let fixture = Fixture::new();
    let launched = fixture.launch("background").await;
    let control = &launched.control;
    let mut spec = ExecSpec::new([
        "sh",
        "-c",
        "echo begin; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end; read a; echo \"got $a\" >&2",
    ]);
    spec.id = "job-1".to_owned();
    let info = control.exec_background(spec.clone()).await.unwrap();
    assert_eq!((info.id.as_str(), info.background), ("job-1", true));
    assert_eq!(control.exec_background(spec).await.unwrap_err().kind, ErrorKind::Exists);
    control.exec_stdin("job-1", b"input\n", true).await.unwrap();
    let chunk = control.exec_logs("job-1", Stream::Stderr, 0, true).await.unwrap();
    assert_eq!(chunk.data, b"got input\n");
    let (mut offset, mut log) = (0, Vec::new());
    let cut = loop {
        let chunk = control.exec_logs("job-1", Stream::Stdout, offset, true).await.unwrap();
        log.extend(chunk.data);
        offset = chunk.next_offset;
        if chunk.end {
            break chunk.cut;
        }
    };
    assert!(log.starts_with(b"begin\nxxx") && log.ends_with(b"x\nend\n"));
    assert_eq!(log.len(), 2 << 20);
    assert_eq!(cut, 5_000_000 + 6 + 1 + 4 - (2 << 20));
    let info = control.exec_status("job-1").await.unwrap();
    assert_eq!((info.state, info.exit.unwrap().code), (ExecState::Exited, 0));
    assert_eq!(control.exec_status("nothing").await.unwrap_err().kind, ErrorKind::NotFound);
    let mut sleeper = ExecSpec::new(["sleep", "1000"]);
    sleeper.id = "job-2".to_owned();
    control.exec_background(sleeper).await.unwrap();
    control.exec_signal("job-2", 9, true).await.unwrap();
    let end = control.exec_logs("job-2", Stream::Stdout, 0, true).await.unwrap();
    assert!(end.end);
    assert_eq!(control.execs().await.unwrap().len(), 2);
    fixture.end(&launched).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_execs_at_once() {
    let fixture = Fixture::new();
    let launched = fixture.launch("hundred").await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..100 {
        let control = launched.control.clone();
        tasks.spawn(async move {
            let ran = sh(&control, &format!("sleep 0.2; echo {number}; exit {number}")).await;
            assert_eq!((ran.stdout, ran.exit.code), (format!("{number}\n"), number));
        });
    }
    tasks.join_all().await;
    fixture.end(&launched).await;
}

#[tokio::test]
async fn a_gibibyte_of_output_goes_through_in_bounded_memory() {
    let fixture = Fixture::new();
    let launched = fixture.launch("gigabyte").await;
    let mut session =
        launched.control.exec(ExecSpec::new(["head", "-c", "1073741824", "/dev/zero"])).await.unwrap();
    let mut stdout = session.stdout.take().unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0_u64;
    loop {
        let count = stdout.read(&mut buffer).await.unwrap();
        if count == 0 {
            break;
        }
        total += count as u64;
    }
    assert_eq!(total, 1 << 30);
    let status = std::fs::read_to_string(format!("/proc/{}/status", launched.supervisor_pid)).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().to_owned();
    let peak: u64 = peak.trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 32 << 10, "the supervisor grew to {peak} KiB");
    assert_eq!(session.wait().await.unwrap().code, 0);
    fixture.end(&launched).await;
}

#[tokio::test]
async fn a_fork_bomb_and_a_memory_hog_are_bounded() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec("bomb");
    spec.limits = Limits { memory_mb: Some(96), pids: Some(60), ..Limits::default() };
    let launched = fixture.runtime.launch(spec).await.unwrap();
    let mut bomb = ExecSpec::new(["bash", "-c", ":(){ :|:& };:; sleep 60"]);
    bomb.timeout_ms = Some(700);
    let ran = run(&launched.control, bomb).await;
    assert!(ran.exit.timed_out || ran.exit.code != 0);
    let control = launched.control.clone();
    let mut hog = ExecSpec::new(["perl", "-e", "$x = 'a' x 500000000; sleep 10"]);
    hog.timeout_ms = Some(20_000);
    let mut ended = None;
    for _ in 0..100 {
        match control.exec(hog.clone()).await {
            Ok(mut session) => {
                let exit = session.wait().await.unwrap();
                if exit.oom {
                    ended = Some(exit);
                    break;
                }
            }
            Err(error) => assert_eq!(error.kind, ErrorKind::Busy, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let exit = ended.expect("the memory limit never struck");
    assert_eq!((exit.code, exit.signal, exit.timed_out), (137, Some(9), false));
    // Init is still there.
    control.ping().await.unwrap();
    fixture.end(&launched).await;
}

#[tokio::test]
async fn everyday_tools_work() {
    let fixture = Fixture::new();
    let launched = fixture.launch("tools").await;
    let script = "set -e
        cd /workspace; mkdir -p src && cd src
        printf 'int main(){return 42;}' > a.c; gcc a.c -o a; set +e; ./a; test $? = 42; set -e
        printf 'all:\\n\\techo made\\n' > Makefile; make -s
        git init -q . && git -c user.name=a -c user.email=b add . && git -c user.name=a -c user.email=b commit -qm x
        tar cf /tmp/x.tar . && tar tf /tmp/x.tar >/dev/null
        /usr/bin/python3 -c 'import threading,socket,sqlite3,ssl,subprocess
t=threading.Thread(target=lambda: None); t.start(); t.join()
s=socket.socket(); s.bind((\"127.0.0.1\",0)); s.listen(); c=socket.create_connection(s.getsockname())
d=sqlite3.connect(\"x.db\"); d.execute(\"create table t(a)\"); d.commit()
print(subprocess.check_output([\"echo\",\"python\"]).decode().strip())'
        if [ -x /usr/bin/node ]; then node -e 'console.log(\"node\")'; fi
        perl -e 'print \"perl\\n\"'; echo hi | sed s/hi/sed/ | awk '{print $1}'";
    let ran = sh(&launched.control, script).await;
    assert_eq!(ran.exit.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    assert!(
        ran.stdout.contains("made\n")
            && ran.stdout.contains("python\n")
            && ran.stdout.contains("perl\nsed\n"),
        "{}",
        ran.stdout
    );
    fixture.end(&launched).await;
}

/// The first answer of a terminal's exec brings a descriptor, which splits the stream; the end must not be overlooked.
#[tokio::test]
async fn quick_commands_on_a_terminal_always_end() {
    let fixture = Fixture::new();
    let launched = fixture.launch("quick-tty").await;
    for round in 0..150 {
        let mut spec = ExecSpec::new(["true"]);
        spec.tty = Some(Tty { rows: 24, cols: 80 });
        let mut session = launched.control.exec(spec).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(10), session.wait()).await;
        assert_eq!(ended.unwrap_or_else(|_| panic!("round {round} hangs")).unwrap().code, 0);
    }
    fixture.end(&launched).await;
}

#[tokio::test]
async fn a_terminal_whose_input_ends_is_told() {
    let fixture = Fixture::new();
    let launched = fixture.launch("tty-end").await;
    let mut spec = ExecSpec::new(["cat"]);
    spec.tty = Some(Tty { rows: 24, cols: 80 });
    let mut session = launched.control.exec(spec).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.shutdown().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), session.wait()).await;
    assert_eq!(ended.expect("cat reads its end").unwrap().code, 0);
    fixture.end(&launched).await;
}

/// A command of the monitor's own user stops the monitor, before or after that has reported the start; the
/// time-out still ends both.
#[tokio::test]
async fn a_stopped_monitor_does_not_evade_the_time_out() {
    let fixture = Fixture::new();
    let launched = fixture.launch("stopped-monitor").await;
    let mut spec = ExecSpec::new(["sh", "-c", "kill -STOP $PPID; sleep 300"]);
    spec.timeout_ms = Some(250);
    if rustix::process::geteuid().is_root() {
        spec.user = Some("root".to_owned());
    }
    for _ in 0..12 {
        let ran = tokio::time::timeout(Duration::from_secs(20), run(&launched.control, spec.clone())).await;
        assert!(ran.expect("it ends").exit.timed_out);
    }
    fixture.end(&launched).await;
}

/// Root inside puts a pipe where init looks users up; init does not wait for a writer.
#[tokio::test]
async fn a_pipe_as_the_list_of_users_holds_up_nobody() {
    let fixture = Fixture::new();
    let launched = fixture.launch("passwd-pipe").await;
    let control = &launched.control;
    sh_root(control, "rm /etc/passwd; mkfifo /etc/passwd").await;
    let mut spec = ExecSpec::new(["true"]);
    spec.user = Some("nobody-here".to_owned());
    let asked = tokio::time::timeout(Duration::from_secs(10), control.exec(spec)).await;
    assert!(asked.expect("an answer").is_err());
    assert_eq!(sh(control, "exit 3").await.exit.code, 3);
    fixture.end(&launched).await;
}

/// Deep, read-only and strangely named trees are removed like any other; `end` checks that nothing is left.
#[tokio::test]
async fn no_tree_resists_its_removal() {
    let fixture = Fixture::new();
    let launched = fixture.launch("deep").await;
    let deep = "import os\nfor name in ('moved-1', '.moved-1', 'x'):\n os.chdir('/workspace')\n for _ in range(90):\n  os.mkdir(name); os.chdir(name)\n";
    let made = sh(
        &launched.control,
        &format!("python3 -c \"{deep}\" && find /workspace -depth -type d -exec chmod 0555 {{}} +"),
    )
    .await;
    assert_eq!(made.exit.code, 0, "{}", made.stderr);
    fixture.end(&launched).await;
}
