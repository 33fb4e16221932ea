//! One running process: its pipes, the requests that are under way, and its end.

use std::collections::{HashMap, VecDeque};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::lines::{self, Line};
use crate::manifest::Manifest;
use crate::wire::{self, Message, Stream, WINDOW};

/// Variables that every process gets.
const PASSED: [&str; 3] = ["PATH", "HOME", "LANG"];
/// How long a process may take to end after its input did.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same when everything of ours ends and nobody can wait for long.
const LAST_MOMENT: Duration = Duration::from_millis(500);
/// Lines on stderr that reach our log, and how long each may be.
const LOG_LINES: usize = 500;
const LOG_LINE: usize = 4_096;
const PROGRESS_LINES: u32 = 1_000;

/// What a request hears.
#[derive(Debug)]
pub(crate) enum Step {
    Started,
    Progress(String),
    Answer(Result<Value>),
}

pub(crate) type Chunks = mpsc::UnboundedSender<std::io::Result<Bytes>>;

struct Output {
    chunks: Chunks,
    /// What may still come; the channel holds no more than this.
    granted: usize,
}

struct Pending {
    steps: mpsc::UnboundedSender<Step>,
    outputs: [Option<Output>; 3],
    /// How much input the process takes.
    credit: Arc<Semaphore>,
    progress_left: u32,
}

#[derive(Default)]
struct Table {
    last_id: u64,
    pending: HashMap<u64, Pending>,
    dead: Option<Error>,
}

pub(crate) struct Shared {
    extension: String,
    lines: mpsc::Sender<Vec<u8>>,
    table: Mutex<Table>,
    last_words: Mutex<VecDeque<String>>,
}

/// Dropped, it ends the process.
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    closing: CancellationToken,
    pub(crate) started: Instant,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Connection {
    /// Starts the process in the folder of its manifest, with few variables and a process group of its own.
    pub(crate) fn start(manifest: &Manifest) -> Result<Self> {
        let folder = manifest.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(std::path::Path::new("."));
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let program = &manifest.command[0];
        let beside = program.contains('/') && !program.starts_with('/');
        let path = if beside { folder.join(program) } else { program.into() };
        let mut command = Command::new(path);
        command.args(&manifest.command[1..]).current_dir(folder).env_clear().process_group(0);
        let names = PASSED.iter().copied().chain(manifest.env.iter().map(String::as_str));
        command.envs(names.filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?))));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let cannot = |why: String| {
            let words = format!("the process of {} cannot be started: {why}", manifest.id);
            Error::new(ErrorKind::BackendFailed, words)
                .with_context("extension", manifest.id.clone())
                .with_hint(format!("look at `command` in {}", manifest.file.display()))
        };
        let mut child = command.spawn().map_err(|why| cannot(format!("{}: {why}", printable(program))))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(cannot("it has no pipes".into()));
        };
        let (lines, queue) = mpsc::channel(64);
        let shared = Arc::new(Shared {
            extension: manifest.id.clone(),
            lines,
            table: Mutex::default(),
            last_words: Mutex::default(),
        });
        let closing = CancellationToken::new();
        tokio::spawn(log(stderr, shared.clone()));
        let (limit, told, close) = (manifest.max_message_bytes, shared.clone(), closing.clone());
        tokio::spawn(async move {
            // Declared first, dropped last: its input has ended by then, also when everything of ours ends.
            let mut group = Group(child);
            let write = write(stdin, queue, close.clone());
            let hear = hear_all(stdout, &told, &close, limit);
            let ((), breach) = tokio::join!(write, hear);
            if let Some(breach) = breach {
                told.break_off(&format!("broke the protocol: it {breach}"));
                group.kill(Signal::KILL);
            } else if told.table().dead.is_some() {
                group.kill(Signal::KILL);
            }
            let status = group.end().await;
            told.break_off(&format!("ended: {status}"));
        });
        Ok(Self { shared, closing, started: Instant::now() })
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.shared.table().dead.is_some()
    }

    /// Gives it up, now; every request that waits gets the reason.
    pub(crate) fn give_up(&self, why: &str) {
        self.shared.break_off(why);
        self.closing.cancel();
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A failure of the process itself, with its last words.
    pub(crate) fn broken(&self, why: &str) -> Error {
        let last = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let last: Vec<&str> = last.iter().map(String::as_str).collect();
        let words =
            if last.is_empty() { String::new() } else { format!("; its last words: {}", last.join(" | ")) };
        Error::new(ErrorKind::BackendFailed, format!("the process of {} {why}{words}", self.extension))
            .with_context("extension", self.extension.clone())
            .with_hint("it is started again at the next call")
    }

    /// Marks the connection as dead and tells everybody who waits.
    fn break_off(&self, why: &str) {
        let error = self.broken(why);
        let mut table = self.table();
        if table.dead.is_none() {
            table.dead = Some(error.clone());
        }
        for (_, pending) in table.pending.drain() {
            pending.end(Err(error.clone()));
        }
    }

    /// Enters a request; `outputs` get what the process writes to these streams.
    pub(crate) fn enter(
        &self,
        steps: mpsc::UnboundedSender<Step>,
        outputs: Vec<(Stream, Chunks)>,
        credit: Arc<Semaphore>,
    ) -> Result<u64> {
        let mut table = self.table();
        if let Some(error) = &table.dead {
            return Err(error.clone());
        }
        table.last_id += 1;
        let id = table.last_id;
        let mut slots = [None, None, None];
        for (stream, chunks) in outputs {
            slots[stream as usize] = Some(Output { chunks, granted: WINDOW });
        }
        let pending = Pending { steps, outputs: slots, credit, progress_left: PROGRESS_LINES };
        table.pending.insert(id, pending);
        Ok(id)
    }

    pub(crate) async fn send(&self, line: Vec<u8>) -> Result<()> {
        self.lines.send(line).await.map_err(|_| self.broken("takes no more requests"))
    }

    /// Sends without waiting, from places that cannot.
    pub(crate) fn post(self: &Arc<Self>, line: Vec<u8>) {
        if let Err(mpsc::error::TrySendError::Full(line)) = self.lines.try_send(line) {
            let shared = self.clone();
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { shared.send(line).await });
            }
        }
    }

    /// Nobody waits for this request any more.
    pub(crate) fn cancel(self: &Arc<Self>, id: u64) {
        if self.table().pending.remove(&id).is_some() {
            self.post(wire::line(None, "cancel", serde_json::json!({ "request": id })));
        }
    }

    /// So many bytes of a stream were taken off, so that as many may come.
    pub(crate) fn grant(self: &Arc<Self>, id: u64, stream: Stream, bytes: usize) {
        {
            let mut table = self.table();
            let output =
                table.pending.get_mut(&id).and_then(|pending| pending.outputs[stream as usize].as_mut());
            let Some(output) = output else { return };
            output.granted += bytes;
        }
        let params = serde_json::json!({ "request": id, "stream": stream.as_str(), "bytes": bytes });
        self.post(wire::line(None, "more", params));
    }

    /// One line of the process. An error is a breach of the protocol.
    fn hear(&self, line: &[u8]) -> std::result::Result<(), String> {
        let (id, message) = wire::parse(line)?;
        let mut table = self.table();
        if id == 0 || id > table.last_id {
            return Err(format!("answered request {id}, which nobody made"));
        }
        // The late answer to a request that was given up.
        let Some(pending) = table.pending.get_mut(&id) else { return Ok(()) };
        match message {
            Message::Answer(answer) => {
                let answer = answer.map_err(|error| self.named(error));
                if let Some(pending) = table.pending.remove(&id) {
                    pending.end(answer);
                }
            }
            Message::Started => drop(pending.steps.send(Step::Started)),
            Message::Progress(line) if pending.progress_left > 0 => {
                pending.progress_left -= 1;
                let _ = pending.steps.send(Step::Progress(line));
            }
            Message::Progress(_) => {}
            Message::More(bytes) => {
                pending
                    .credit
                    .add_permits(bytes.min(WINDOW.saturating_sub(pending.credit.available_permits())));
            }
            Message::Output(stream, data) => {
                let Some(output) = &mut pending.outputs[stream as usize] else {
                    return Err(format!("wrote to `{}` of request {id}, which has none", stream.as_str()));
                };
                output.granted = output.granted.checked_sub(data.len()).ok_or_else(|| {
                    format!("wrote more to `{}` of request {id} than it was granted", stream.as_str())
                })?;
                let _ = output.chunks.send(Ok(data.into()));
            }
        }
        Ok(())
    }

    /// The process's own error, with whose it is.
    fn named(&self, error: Error) -> Error {
        let out = Error::new(error.kind(), format!("{}: {error}", self.extension))
            .with_context("extension", self.extension.clone());
        match error.hint() {
            Some(hint) => out.with_hint(hint.to_owned()),
            None => out,
        }
    }
}

impl Pending {
    fn end(self, answer: Result<Value>) {
        if let Err(error) = &answer {
            for output in self.outputs.into_iter().flatten() {
                let _ = output.chunks.send(Err(std::io::Error::other(error.clone())));
            }
        }
        self.credit.close();
        let _ = self.steps.send(Step::Answer(answer));
    }
}

async fn write(mut stdin: ChildStdin, mut queue: mpsc::Receiver<Vec<u8>>, closing: CancellationToken) {
    let work = async {
        while let Some(line) = queue.recv().await {
            // A process that reads no more ends soon, which the other pipe shows.
            if stdin.write_all(&line).await.is_err() {
                return;
            }
        }
    };
    tokio::select! { () = work => {}, () = closing.cancelled() => {} }
}

/// Puts what the process says on stderr into our log.
async fn log(stderr: ChildStderr, shared: Arc<Shared>) {
    let mut pipe = BufReader::with_capacity(LOG_LINE, stderr);
    let mut count = 0;
    loop {
        let text = match lines::next(&mut pipe, LOG_LINE).await {
            Ok(Line::Whole(line)) => printable(&String::from_utf8_lossy(&line)).to_string(),
            Ok(Line::TooLong) => {
                let Ok(rest) = pipe.fill_buf().await.map(<[u8]>::len) else { return };
                pipe.consume(rest);
                "a line that is too long".to_owned()
            }
            Ok(Line::End) | Err(_) => return,
        };
        count += 1;
        if count <= LOG_LINES {
            tracing::warn!(extension = shared.extension, "{text}");
        }
        let mut last = shared.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        last.push_back(text.chars().take(300).collect());
        while last.len() > 3 {
            last.pop_front();
        }
    }
}

/// Reads until the process ends, breaks the protocol, or nobody needs it any more. A breach is the answer.
async fn hear_all(
    stdout: ChildStdout,
    shared: &Shared,
    closing: &CancellationToken,
    limit: usize,
) -> Option<String> {
    let mut pipe = BufReader::with_capacity(64 << 10, stdout);
    let breach = loop {
        let line = tokio::select! {
            line = lines::next(&mut pipe, limit) => line,
            () = closing.cancelled() => break None,
        };
        match line {
            Ok(Line::Whole(line)) => {
                if let Err(breach) = shared.hear(&line) {
                    break Some(breach);
                }
            }
            Ok(Line::TooLong) => break Some(format!("wrote a line of more than {limit} bytes")),
            Ok(Line::End) | Err(_) => break None,
        }
    };
    closing.cancel();
    breach
}

/// The process and whatever it started in its group. Dropped before its end, it gets a moment and is killed.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let start = Instant::now();
        while start.elapsed() < LAST_MOMENT && !self.has_left() {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill(Signal::KILL);
    }
}

impl Group {
    /// It leads its group and is not reaped before `end`, so that the number is its own.
    fn pid(&self) -> Option<Pid> {
        self.0.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw)
    }

    fn kill(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    /// Whether it has ended, without reaping it.
    fn has_left(&self) -> bool {
        let Some(pid) = self.pid() else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(None))
    }

    async fn leaves(&self, within: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < within && !self.has_left() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.has_left()
    }

    /// Waits for the end of the process, helps it along, and gives its status in words.
    async fn end(&mut self) -> String {
        if !self.leaves(PATIENCE).await {
            self.kill(Signal::TERM);
            self.leaves(Duration::from_secs(1)).await;
        }
        self.kill(Signal::KILL);
        match self.0.wait().await {
            Ok(status) => status.to_string(),
            Err(why) => why.to_string(),
        }
    }
}
