//! Commands: their streams, codes, places and variables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Case;
use crate::conformance::rig::{Outcome, Rig, ensure, fail};
use crate::conformance::sandbox::{finish, noise, script};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("exec.codes", "exit codes are as shells report them", &["exec"], codes).safe(),
        Case::new("exec.binary", "every byte of the output arrives, and no other", &["exec"], binary).safe(),
        Case::new("exec.streams", "stdout and stderr come apart", &["exec", "exec_split_streams"], streams)
            .safe(),
        Case::new("exec.stdin", "input arrives with its end", &["exec", "exec_stdin"], stdin).safe(),
        Case::new("exec.no_stdin", "without input a command reads the end at once", &["exec"], no_stdin)
            .safe(),
        Case::new("exec.live", "output arrives while the command still runs", &["exec"], live),
        Case::new("exec.arguments", "arguments arrive as they are", &["exec"], arguments).safe(),
        Case::new("exec.cwd", "a command runs in the folder that was named", &["exec"], cwd).safe(),
        Case::new("exec.env", "variables arrive as they are and stay out of arguments", &["exec"], env)
            .safe(),
        Case::new("exec.user", "a command runs as the user that was named", &["exec", "exec_user"], user),
        Case::new("exec.many", "twenty commands at a time do not mix", &["exec"], many),
    ]
}

async fn codes(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    for (line, code) in
        [("true", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143), ("exit 255", 255)]
    {
        let output = sandbox.run(script(line, &[])).await?;
        ensure(output.outcome.exit_code == code && !output.outcome.timed_out, || {
            format!("`{line}` should be {code}: {}", output.brief())
        })?;
    }
    sandbox.sh("echo text > not-executable; chmod 644 not-executable", &[]).await?;
    for (program, code) in
        [("./not-executable", 126), ("./there-is-no-such-program", 127), ("there-is-no-such-program", 127)]
    {
        let mut spec = script("", &[]);
        spec.argv = vec![program.to_owned()];
        let output = sandbox.run(spec).await?;
        ensure(output.outcome.exit_code == code, || {
            format!("`{program}` should be {code}: {}", output.brief())
        })?;
    }
    Ok(())
}

async fn binary(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let octal: String = (0..=255u8).map(|byte| format!("\\{byte:03o}")).collect();
    let output = sandbox.run(script("printf \"$1\"", &[&octal])).await?;
    ensure(output.stdout == (0..=255u8).collect::<Vec<_>>(), || {
        format!("256 values became {:?}", output.stdout)
    })?;
    let output = sandbox.run(script("head -c 1048576 /dev/zero", &[])).await?;
    ensure(output.stdout.len() == 1 << 20 && output.stdout.iter().all(|byte| *byte == 0), || {
        format!("1 MiB of zeros became {} bytes", output.stdout.len())
    })
}

async fn streams(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let line = "echo out; echo err >&2; head -c 300000 /dev/zero >&2; head -c 200000 /dev/zero; echo end";
    let output = sandbox.run(script(line, &[])).await?;
    ensure(output.stdout.len() == 200_008 && output.stderr.len() == 300_004, || {
        format!("{} and {} bytes came out", output.stdout.len(), output.stderr.len())
    })?;
    ensure(output.stdout.starts_with(b"out\n") && output.stderr.starts_with(b"err\n"), || output.brief())
}

async fn stdin(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let data = noise(1 << 20);
    let mut spec = script("cat", &[]);
    spec.stdin = true;
    let output = sandbox.feed(spec, data.clone()).await?;
    ensure(output.stdout == data, || format!("1 MiB came back as {} bytes", output.stdout.len()))?;
    let mut spec = script("cat; echo end", &[]);
    spec.stdin = true;
    let output = sandbox.feed(spec, Vec::new()).await?;
    ensure(output.stdout == b"end\n", || format!("an empty input: {}", output.brief()))?;
    // A command that reads nothing ends all the same.
    let mut spec = script("exit 4", &[]);
    spec.stdin = true;
    let output = sandbox.feed(spec, data).await?;
    ensure(output.outcome.exit_code == 4, || format!("input that nobody reads: {}", output.brief()))
}

async fn no_stdin(rig: Arc<Rig>) -> Outcome {
    let output = rig.shared().await?.run(script("cat; echo end", &[])).await?;
    ensure(output.stdout == b"end\n", || output.brief())
}

async fn live(rig: Arc<Rig>) -> Outcome {
    use tokio::io::AsyncReadExt as _;
    let sandbox = rig.shared().await?;
    let start = Instant::now();
    let mut session = sandbox.start(script("echo first; sleep 20; echo second", &[])).await?;
    let mut first = [0; 6];
    let read = tokio::time::timeout(Duration::from_secs(10), session.stdout.read_exact(&mut first)).await;
    match read {
        Ok(read) => read?,
        Err(_) => return fail("the first line did not come before the command's end"),
    };
    ensure(&first == b"first\n" && start.elapsed() < Duration::from_secs(15), || {
        format!("{first:?} after {:?}", start.elapsed())
    })?;
    session.control.signal(9, true).await?;
    let output = finish(session, Vec::new()).await?;
    ensure(output.outcome.exit_code == 137, || format!("a killed command: {}", output.brief()))
}

/// What shells and codecs like to change.
const AWKWARD: &str = "it's \"quoted\" $HOME `id` \\ *\n second line ; & | ü 漢 -n";

async fn arguments(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let output = sandbox.run(script("printf '%s|' \"$@\"", &[AWKWARD, "", "-e", " "])).await?;
    let expected = format!("{AWKWARD}||-e| |");
    ensure(output.stdout == expected.as_bytes(), || output.brief())
}

async fn cwd(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let here = sandbox.sh("mkdir -p 'a folder/below' && pwd -P", &[]).await?;
    let mut spec = script("pwd -P", &[]);
    spec.cwd = Some(format!("{here}/a folder/below"));
    let output = sandbox.run(spec).await?;
    ensure(output.text() == format!("{here}/a folder/below"), || output.brief())?;
    let mut spec = script("echo ran", &[]);
    spec.cwd = Some(format!("{here}/there-is-no-such-folder"));
    // Refused or failed: both are right, to run elsewhere is not.
    match sandbox.run(spec).await {
        Ok(output) => ensure(output.outcome.exit_code != 0 && output.text() != "ran", || {
            format!("it ran in a folder that is not there: {}", output.brief())
        }),
        Err(_) => Ok(()),
    }
}

async fn env(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let token = format!("token-{}", sandboxer_core::ExecId::generate());
    let mut spec = script(
        "printf '%s|%s|%s|' \"$AWKWARD\" \"$CONFORMANCE_VARIABLE\" \"$EMPTY\"
         for file in /proc/[0-9]*/cmdline; do tr '\\0' '\\n' < \"$file\"; done 2>/dev/null; sleep 0.3; true",
        &[],
    );
    spec.env.insert("AWKWARD".into(), AWKWARD.into());
    spec.env.insert("EMPTY".into(), String::new());
    spec.env.insert("TOKEN".into(), token.clone());
    let watch = tokio::spawn(watch_arguments(token.clone()));
    let output = sandbox.run(spec).await?;
    let seen = watch.await.unwrap_or_default();
    let expected = format!("{AWKWARD}|of the profile||");
    ensure(output.stdout.starts_with(expected.as_bytes()), || output.brief())?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure(!text.contains(&token), || "a variable's value is in a command line inside".into())?;
    ensure(seen.is_none(), || format!("a variable's value is in a command line on this machine: {seen:?}"))
}

/// Looks through the command lines of this machine for some time.
async fn watch_arguments(token: String) -> Option<String> {
    for _ in 0..15 {
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.contains(&token) {
                return Some(line);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

async fn user(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let mut spec = script("id -un; id -u", &[]);
    spec.user = Some(rig.subject.user.clone());
    let output = sandbox.run(spec).await?;
    ensure(output.text().lines().any(|line| line == rig.subject.user), || {
        format!("`{}` became {}", rig.subject.user, output.brief())
    })?;
    let mut spec = script("echo ran", &[]);
    spec.user = Some("there-is-no-such-user".into());
    match sandbox.run(spec).await {
        Ok(output) => ensure(output.text() != "ran" && output.outcome.exit_code != 0, || {
            "a command of an unknown user ran as somebody else".into()
        }),
        Err(_) => Ok(()),
    }
}

async fn many(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let mut running = JoinSet::new();
    for number in 0..20 {
        let sandbox = sandbox.clone();
        running.spawn(async move {
            let text = number.to_string();
            let output = sandbox.run(script("echo $1; sleep 0.3; echo $1; exit $1", &[&text])).await?;
            ensure(output.text() == format!("{text}\n{text}") && output.outcome.exit_code == number, || {
                format!("command {number}: {}", output.brief())
            })
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap_or_else(|broken| fail(broken.to_string()))?;
    }
    Ok(())
}
