//! Small programs of ours that run in the sandbox, in its workspace, as its user. Plain POSIX shell, as busybox has it.
//! Names reach them by stdin and are never part of a program's text.

use std::sync::Arc;

use sandboxer_core::exec::{BoxRead, ExecSpec};
use sandboxer_core::extension::{Extension, Handle};
use sandboxer_core::{Dur, Error, ErrorKind, ExecId, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The most that is read of an answer.
const MAX_OUTPUT: u64 = 256 << 20;
const MAX_WORDS: u64 = 4 << 10;
/// No step of a sync takes longer.
const LIMIT: Dur = Dur::from_secs(120);
/// Our programs are the system's own, whatever a profile or a request puts in front of them.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A sandbox to talk to.
#[derive(Clone)]
pub(crate) struct Inside {
    pub(crate) extension: Arc<dyn Extension>,
    pub(crate) handle: Handle,
}

/// How a program ended.
pub(super) struct Ran {
    pub(super) code: i32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

impl Inside {
    /// Runs a program with this input and gives its output.
    pub(super) async fn run(&self, script: &str, argument: &str, input: Option<Vec<u8>>) -> Result<Ran> {
        let mut stdout = Vec::new();
        let (code, stderr) = self.run_into(script, argument, input, &mut stdout).await?;
        Ok(Ran { code, stdout, stderr })
    }

    /// The same, with the output going somewhere else.
    pub(super) async fn run_into(
        &self,
        script: &str,
        argument: &str,
        input: Option<Vec<u8>>,
        to: &mut (impl tokio::io::AsyncWrite + Unpin + Send),
    ) -> Result<(i32, String)> {
        let argv = ["/bin/sh", "-c", script, "sandboxer-sync", argument];
        let spec = ExecSpec {
            exec_id: ExecId::generate(),
            argv: argv.iter().map(|part| (*part).to_owned()).collect(),
            cwd: None,
            env: [("LC_ALL", "C"), ("PATH", PATH)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            user: None,
            timeout: Some(LIMIT),
            tty: None,
            stdin: input.is_some(),
        };
        let mut session = self.extension.exec(&self.handle, spec).await?;
        let stdin = session.stdin.take();
        let feed = async move {
            // A program that ends early does not read on; its exit code says why.
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                let _ = stdin.write_all(&input).await;
                let _ = stdin.shutdown().await;
            }
        };
        let mut stderr = session.stderr.take();
        let mut limited = session.stdout.take(MAX_OUTPUT);
        let (copied, words, (), outcome) = tokio::join!(
            tokio::io::copy(&mut limited, to),
            words(stderr.as_mut()),
            feed,
            session.control.wait()
        );
        let copied = copied.map_err(|source| {
            Error::new(ErrorKind::BackendFailed, "what the sandbox says broke off").with_source(source)
        })?;
        if copied == MAX_OUTPUT {
            return Err(Error::new(
                ErrorKind::TooLarge,
                "the workspace in the sandbox is too large to be mirrored",
            ));
        }
        let outcome = outcome?;
        if outcome.timed_out {
            return Err(Error::new(ErrorKind::Timeout, "a step of the sync took too long in the sandbox"));
        }
        Ok((outcome.exit_code, words))
    }
}

async fn words(stream: Option<&mut BoxRead>) -> String {
    let Some(stream) = stream else { return String::new() };
    let mut kept = Vec::new();
    let _ = stream.take(MAX_WORDS).read_to_end(&mut kept).await;
    // The rest is read and forgotten, or the program would wait for us.
    let _ = tokio::io::copy(stream, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&kept).trim().to_owned()
}
