//! One sandbox of a run, and what cases do with it again and again.

use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::exec::{BoxRead, ExecOutcome, ExecSession, ExecSpec};
use sandboxer_core::extension::{Extension, Handle};
use sandboxer_core::{Dur, ExecId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::rig::{Outcome, ensure, fail};

/// No command of a case runs longer.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(super) struct Sandbox {
    pub(super) extension: Arc<dyn Extension>,
    pub(super) handle: Handle,
}

/// What a command said and how it ended.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) outcome: ExecOutcome,
}

impl Output {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }

    /// For a failure's words.
    pub(super) fn brief(&self) -> String {
        let cut = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
        format!(
            "exit code {}, stdout {:?}, stderr {:?}",
            self.outcome.exit_code,
            cut(&self.stdout),
            cut(&self.stderr)
        )
    }
}

/// A command for `sh`, with arguments that the script reads as `$1`, `$2` …
pub(super) fn script(line: &str, arguments: &[&str]) -> ExecSpec {
    let mut argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), line.to_owned(), "sh".to_owned()];
    argv.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    ExecSpec {
        exec_id: ExecId::generate(),
        argv,
        cwd: None,
        env: Default::default(),
        user: None,
        timeout: Some(Dur::from_secs(45)),
        tty: None,
        stdin: false,
    }
}

impl Sandbox {
    /// The same sandbox through another instance.
    pub(super) fn through(&self, extension: Arc<dyn Extension>) -> Self {
        Self { extension, handle: self.handle.clone() }
    }

    pub(super) async fn start(&self, spec: ExecSpec) -> Outcome<ExecSession> {
        Ok(self.extension.exec(&self.handle, spec).await?)
    }

    /// Runs a command to its end.
    pub(super) async fn run(&self, spec: ExecSpec) -> Outcome<Output> {
        self.feed(spec, Vec::new()).await
    }

    /// Runs a command to its end and feeds it.
    pub(super) async fn feed(&self, spec: ExecSpec, input: Vec<u8>) -> Outcome<Output> {
        let argv = spec.argv.clone();
        match tokio::time::timeout(COMMAND_LIMIT, finish(self.start(spec).await?, input)).await {
            Ok(output) => output,
            Err(_) => fail(format!("{argv:?} gave no end within {COMMAND_LIMIT:?}")),
        }
    }

    /// Runs a script that must succeed, and gives what it said without the last newline.
    pub(super) async fn sh(&self, line: &str, arguments: &[&str]) -> Outcome<String> {
        let output = self.run(script(line, arguments)).await?;
        ensure(output.outcome.exit_code == 0, || format!("`{line}`: {}", output.brief()))?;
        Ok(output.text())
    }

    pub(super) async fn read(&self, path: &str) -> Outcome<Vec<u8>> {
        all(self.extension.file_read(&self.handle, path).await?).await
    }

    pub(super) async fn write(&self, path: &str, mode: u32, data: &[u8]) -> Outcome {
        Ok(self.extension.file_write(&self.handle, path, mode, reader(data)).await?)
    }

    /// The lines of a file that something inside adds to; none while it is not there.
    pub(super) async fn beats(&self, file: &str) -> Outcome<u64> {
        let count = self.sh("if test -f \"$1\"; then wc -l < \"$1\"; else echo 0; fi", &[file]).await?;
        count.trim().parse().or_else(|_| fail(format!("`{count}` is not a number of lines")))
    }

    /// Waits until something adds lines to the file.
    pub(super) async fn wait_for_beats(&self, file: &str) -> Outcome {
        for _ in 0..100 {
            if self.beats(file).await? > 1 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        fail(format!("nothing ever wrote to {file}"))
    }

    /// Shows that nothing adds lines to the file any more, after some time for the end to take effect.
    pub(super) async fn beats_stop(&self, file: &str) -> Outcome {
        for _ in 0..10 {
            let before = self.beats(file).await?;
            tokio::time::sleep(Duration::from_millis(700)).await;
            if self.beats(file).await? == before {
                return Ok(());
            }
        }
        fail(format!("something still writes to {file}"))
    }

    pub(super) async fn teardown(&self) -> Outcome {
        let Handle { host, tag, .. } = &self.handle;
        let report = self.extension.teardown(host, tag, Some(&self.handle)).await?;
        ensure(report.is_clean(), || format!("a teardown left {:?}", report.left))
    }
}

/// Reads a session's streams to their end while it is fed.
pub(super) async fn finish(session: ExecSession, input: Vec<u8>) -> Outcome<Output> {
    let ExecSession { stdin, stdout, stderr, control } = session;
    let feed = async move {
        if let Some(mut stdin) = stdin {
            // A command that ends without reading everything is no failure of its input.
            let _ = stdin.write_all(&input).await;
            let _ = stdin.shutdown().await;
        }
    };
    let errors = async move {
        match stderr {
            Some(stderr) => all(stderr).await,
            None => Ok(Vec::new()),
        }
    };
    let ((), stdout, stderr, outcome) = tokio::join!(feed, all(stdout), errors, control.wait());
    Ok(Output { stdout: stdout?, stderr: stderr?, outcome: outcome? })
}

/// Everything that a stream has.
pub(super) async fn all(mut stream: BoxRead) -> Outcome<Vec<u8>> {
    let mut data = Vec::new();
    stream.read_to_end(&mut data).await?;
    Ok(data)
}

pub(super) fn reader(data: &[u8]) -> BoxRead {
    Box::pin(std::io::Cursor::new(data.to_vec()))
}

/// Bytes of every value in an order that no codec leaves alone by chance.
pub(super) fn noise(length: usize) -> Vec<u8> {
    let mut state: u32 = 0x2545_f491;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 11) as u8
        })
        .collect()
}
