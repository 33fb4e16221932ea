//! One run of Packer in a private folder, its words passed on line by line.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sandboxer_core::extension::Progress;
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::mpsc;

use super::{Cache, Image, Recipe};
use crate::files::{blocking, failed, private_file, private_folder, remove_tree};
use crate::tools::Tools;
use crate::vm::process;

/// Ends the build with whoever asked for it, see the file.
const SUPERVISE: &str = include_str!("supervise.sh");
/// Lines of the log that an error repeats.
const LAST_LINES: usize = 25;
/// How long a build's streams may be silent after its end.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// A line is cut beyond this.
const MAX_LINE: usize = 2_000;
/// What is kept of the log.
const MAX_LOG: usize = 16 << 20;
/// What a template may read of our environment; nothing that could be a secret of ours.
const ENVIRONMENT: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];
/// Packer's plugins listen on sockets below its temporary folder, whose paths are bounded by the kernel.
const MAX_TEMPORARY: usize = 72;

const TEMPORARY_PREFIX: &str = "sandboxer-build-";
/// The file of a build that says where its temporary folder is, if that is outside.
const TEMPORARY_NOTE: &str = "temporary";

/// Removes the temporary folder that a build noted.
pub(super) fn remove_temporary(build: &Path) {
    let Ok(noted) = std::fs::read_to_string(build.join(TEMPORARY_NOTE)) else { return };
    let noted = Path::new(&noted);
    let ours = noted.parent() == Some(&std::env::temp_dir())
        && noted
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(TEMPORARY_PREFIX));
    if ours {
        let _ = remove_tree(noted);
    }
}

/// Builds and publishes. The caller holds the lock of the hash, and dropping the future ends everything.
pub(super) async fn build(
    cache: &Cache,
    recipe: &Recipe,
    tools: &Tools,
    progress: &Progress,
) -> Result<Image> {
    let packer = tools.packer.path()?;
    tools.qemu_img.path()?;
    let setsid = tools.setsid.path()?;
    cache.discard(&recipe.hash)?;
    // A folder of its own for each try: what still ends the one before it goes by the folder.
    let folder = cache.build_folder(&recipe.hash).join(try_name());
    let work = folder.join("work");
    private_folder(&work)?;
    let folder = folder.canonicalize().map_err(|source| failed("resolved", &folder, source))?;
    let work = folder.join("work");
    recipe.stage(&work)?;
    let temporary = Temporary::below(&folder)?;
    let ends = EndWithMe { folder: folder.clone() };

    // In a session of its own, so that Ctrl-C for us does not take the supervisor away before it has done its work.
    let mut command = Command::new(setsid);
    command
        .args(["/bin/sh", "-c", SUPERVISE, "supervise"])
        .arg(setsid)
        .arg(packer)
        .args(["build", "-color=false"]);
    if !recipe.variables.is_empty() {
        // The ending is the one that templates in HCL insist on; in arguments everybody could read the values.
        let file = folder.join("variables.pkrvars.json");
        let text = serde_json::to_vec(&recipe.variables).map_err(|source| {
            Error::new(ErrorKind::Internal, "variables cannot be written").with_source(source)
        })?;
        private_file(&file, &text)?;
        let mut argument = std::ffi::OsString::from("-var-file=");
        argument.push(&file);
        command.arg(argument);
    }
    command.arg(&recipe.template).current_dir(&work).env_clear();
    command.envs(std::env::vars_os().filter(|(name, _)| {
        name.to_str().is_some_and(|name| ENVIRONMENT.contains(&name) || name.starts_with("PACKER_"))
    }));
    // Packer asks its maker for news otherwise.
    command.env("CHECKPOINT_DISABLE", "1").env("PACKER_NO_COLOR", "1").env("TMPDIR", temporary.path());
    let log = folder.join("packer.log");
    let run = run(command, &log, progress).await;
    drop(ends);
    drop(temporary);
    let kept = cache.log_file(&recipe.hash);
    let outcome = match run {
        Ok(()) => cache.publish(&recipe.hash, &work.join("output"), tools).await,
        Err(error) => Err(error),
    };
    let (cache, hash) = (cache.clone(), recipe.hash.clone());
    match outcome {
        Ok(image) => {
            let _ = std::fs::remove_file(&kept);
            blocking(move || cache.discard(&hash)).await?;
            Ok(image)
        }
        Err(error) => {
            let there = std::fs::rename(&log, &kept).is_ok();
            blocking(move || cache.discard(&hash)).await?;
            Err(if there { with_log(error, &kept) } else { error })
        }
    }
}

fn with_log(error: Error, log: &Path) -> Error {
    let hint = match error.hint() {
        Some(hint) => format!("{hint}; the whole log is {}", log.display()),
        None => format!("the whole log is {}", log.display()),
    };
    error.with_hint(hint)
}

/// Runs the build to its end.
async fn run(mut command: Command, log: &Path, progress: &Progress) -> Result<()> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut words = Words::new(log, progress).await?;
    let mut child = command.spawn().map_err(|source| {
        Error::new(ErrorKind::BuildFailed, "Packer cannot be started").with_source(source)
    })?;
    // Whoever drops this future closes the pipe, which ends the build.
    let alive = child.stdin.take();
    let (lines, mut heard) = mpsc::channel::<String>(256);
    if let Some(stdout) = child.stdout.take() {
        tokio::spawn(split(stdout, lines.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(split(stderr, lines));
    }
    let ended = loop {
        tokio::select! {
            line = heard.recv() => match line {
                Some(line) => words.hear(line).await,
                None => break child.wait().await,
            },
            ended = child.wait() => {
                // A process that the build left behind may hold the streams; it does not hold us.
                while let Ok(Some(line)) = tokio::time::timeout(LAST_WORDS, heard.recv()).await {
                    words.hear(line).await;
                }
                break ended;
            }
        }
    };
    drop(alive);
    let status = ended.map_err(|source| {
        Error::new(ErrorKind::BuildFailed, "the end of Packer was missed").with_source(source)
    })?;
    let last = words.end().await;
    if status.success() {
        return Ok(());
    }
    let kind = match last.iter().any(|line| line.contains("No space left on device")) {
        true => ErrorKind::NoSpace,
        false => ErrorKind::BuildFailed,
    };
    Err(Error::new(kind, format!("the Packer build failed ({status}); its last lines:\n{}", last.join("\n"))))
}

/// What a build says: to whoever waits, into the log, and the last of it for an error.
struct Words<'a> {
    progress: &'a Progress,
    log: tokio::fs::File,
    written: usize,
    last: VecDeque<String>,
}

impl<'a> Words<'a> {
    async fn new(log: &Path, progress: &'a Progress) -> Result<Self> {
        let log = tokio::fs::File::create(log).await.map_err(|source| failed("written", log, source))?;
        Ok(Self { progress, log, written: 0, last: VecDeque::new() })
    }

    async fn hear(&mut self, line: String) {
        if self.written < MAX_LOG {
            self.written += line.len() + 1;
            // A log that cannot be written is no reason to end a build.
            let _ = self.log.write_all(format!("{line}\n").as_bytes()).await;
        }
        if line.trim().is_empty() {
            return;
        }
        self.progress.say(&line);
        self.last.push_back(line);
        if self.last.len() > LAST_LINES {
            self.last.pop_front();
        }
    }

    async fn end(mut self) -> Vec<String> {
        let _ = self.log.flush().await;
        self.last.into()
    }
}

/// Cuts a stream into lines of bounded length without what steers terminals.
async fn split(mut stream: impl AsyncRead + Unpin, lines: mpsc::Sender<String>) {
    let mut line = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        for byte in &buffer[..count] {
            match byte {
                b'\n' | b'\r' => {
                    if !line.is_empty() && lines.send(clean(&line)).await.is_err() {
                        return;
                    }
                    line.clear();
                }
                byte if line.len() < MAX_LINE => line.push(*byte),
                _ => {}
            }
        }
        if count == 0 {
            if !line.is_empty() {
                let _ = lines.send(clean(&line)).await;
            }
            return;
        }
    }
}

fn clean(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().filter(|c| !c.is_control() || *c == '\t').collect()
}

/// Another one for every try of every process.
fn try_name() -> String {
    static TRIES: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), TRIES.fetch_add(1, Ordering::Relaxed))
}

/// Ends what works in a build's folder when the build is given up. The supervisor does the same when this whole process is
/// gone, but takes longer.
struct EndWithMe {
    folder: PathBuf,
}

impl Drop for EndWithMe {
    fn drop(&mut self) {
        if process::working_in(&self.folder).is_empty() {
            return;
        }
        let folder = std::mem::take(&mut self.folder);
        std::thread::spawn(move || process::end_all(&folder, Duration::from_secs(5)));
    }
}

/// The build's temporary folder: inside its own where the path is short enough, otherwise in the system's.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    fn below(folder: &Path) -> Result<Self> {
        let inside = folder.join("tmp");
        let path = if inside.as_os_str().len() <= MAX_TEMPORARY {
            private_folder(&inside)?;
            inside
        } else {
            let made = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempdir();
            let made = made.map_err(|source| failed("made", &std::env::temp_dir(), source))?.keep();
            // So that whoever removes the remains of this build finds it.
            private_file(&folder.join(TEMPORARY_NOTE), made.as_os_str().as_encoded_bytes())?;
            made
        };
        Ok(Self { path })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = remove_tree(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_cut_cleaned_and_never_lost() {
        let long = "x".repeat(MAX_LINE + 10);
        let text = format!("one\r\n\x1b[1;32mtwo\x1b[0m\n\n{long}\nlast");
        let (send, mut heard) = mpsc::channel(16);
        split(text.as_bytes(), send).await;
        let mut lines = Vec::new();
        while let Some(line) = heard.recv().await {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "[1;32mtwo[0m", &long[..MAX_LINE], "last"]);
    }
}
