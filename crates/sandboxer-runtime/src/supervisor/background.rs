//! A background exec's streams: the supervisor holds the pipes and keeps the beginning and the end of
//! each output on disk, so that a chatty process costs neither memory nor unbounded space.

use crate::error::{AtStep as _, ErrorKind, Result, RuntimeError};
use crate::report::LogChunk;
use crate::spec::Stream;
use rustix::event::PollFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Kept of each stream: this much from its beginning and this much from its end.
const HEAD: u64 = 1 << 20;
const TAIL: u64 = 1 << 20;
/// Most bytes of one answer.
const MAX_CHUNK: u64 = 256 << 10;
/// Stdin that the process has not taken yet.
const MAX_PENDING: usize = 4 << 20;
/// Reads of one stream a turn, so that one exec cannot starve the others.
const READS_A_TURN: usize = 4;

pub(super) struct Background {
    outputs: [Log; 2],
    stdin: Option<OwnedFd>,
    pending: VecDeque<u8>,
    close_after: bool,
}

impl Background {
    /// Makes the pipes and log files; the second value is the process's end of the three streams.
    pub(super) fn new(logs: &Path, name: &str) -> Result<(Self, Vec<OwnedFd>)> {
        let made = std::fs::create_dir(logs);
        if made.as_ref().is_err_and(|error| error.kind() != std::io::ErrorKind::AlreadyExists) {
            made.at("logs", "cannot make the log directory")?;
        }
        let pipe = || pipe_with(PipeFlags::CLOEXEC).at("exec", "cannot make a pipe");
        let ((stdin_far, stdin), (stdout, stdout_far), (stderr, stderr_far)) = (pipe()?, pipe()?, pipe()?);
        for fd in [&stdin, &stdout, &stderr] {
            rustix::io::ioctl_fionbio(fd, true).at("exec", "cannot prepare a pipe")?;
        }
        let outputs = [
            Log::new(logs.join(format!("{name}.out")), stdout)?,
            Log::new(logs.join(format!("{name}.err")), stderr)?,
        ];
        let background = Self { outputs, stdin: Some(stdin), pending: VecDeque::new(), close_after: false };
        Ok((background, vec![stdin_far, stdout_far, stderr_far]))
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>, PollFlags)> {
        let stdin = self.stdin.as_ref().filter(|_| !self.pending.is_empty());
        let stdin = stdin.map(|fd| (0, fd.as_fd(), PollFlags::OUT));
        let outputs =
            self.outputs.iter().zip(1..).filter_map(|(log, stream)| {
                log.pipe.as_ref().map(|pipe| (stream, pipe.as_fd(), PollFlags::IN))
            });
        stdin.into_iter().chain(outputs)
    }

    /// Moves what is ready on one stream.
    pub(super) fn pump(&mut self, stream: usize) {
        match stream {
            0 => self.feed(),
            _ => {
                if let Some(log) = self.outputs.get_mut(stream - 1) {
                    log.pump(READS_A_TURN);
                }
            }
        }
    }

    pub(super) fn write(&mut self, data: &[u8], eof: bool) -> Result<()> {
        if self.stdin.is_none() || self.close_after {
            return Err(RuntimeError::invalid("the exec's stdin is closed"));
        }
        if self.pending.len() + data.len() > MAX_PENDING {
            return Err(RuntimeError::new(ErrorKind::Busy, "stdin", "the process does not read its stdin"));
        }
        self.pending.extend(data);
        self.close_after = eof;
        self.feed();
        Ok(())
    }

    fn feed(&mut self) {
        while let Some(stdin) = self.stdin.as_ref().filter(|_| !self.pending.is_empty()) {
            match rustix::io::write(stdin, self.pending.as_slices().0) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => self.close_stdin(),
            }
        }
        if self.close_after {
            self.close_stdin();
        }
    }

    fn close_stdin(&mut self) {
        self.stdin = None;
        self.pending = VecDeque::new();
    }

    /// The process has ended: what is in the pipes is kept, and the streams end, whoever else holds them.
    pub(super) fn finish(&mut self) {
        self.close_stdin();
        for log in &mut self.outputs {
            log.pump(usize::MAX);
            log.pipe = None;
        }
    }

    pub(super) fn totals(&self) -> (u64, u64) {
        (self.outputs[0].total, self.outputs[1].total)
    }

    pub(super) fn log(&self, stream: Stream) -> &Log {
        match stream {
            Stream::Stdout => &self.outputs[0],
            Stream::Stderr => &self.outputs[1],
        }
    }

    pub(super) fn remove_logs(&self) {
        for log in &self.outputs {
            let _ = std::fs::remove_file(&log.path);
        }
    }
}

/// One output. The file holds the beginning, and after it a ring with the end.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    pipe: Option<OwnedFd>,
    total: u64,
}

impl Log {
    fn new(path: PathBuf, pipe: OwnedFd) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&path).at("logs", "cannot make a log file")?;
        Ok(Self { path, file, pipe: Some(pipe), total: 0 })
    }

    fn pump(&mut self, reads: usize) {
        let mut buffer = [0_u8; 64 << 10];
        for _ in 0..reads {
            let Some(pipe) = &self.pipe else { return };
            match rustix::io::read(pipe, &mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => self.append(&buffer[..count]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    /// A full disk loses output, never the sandbox.
    fn append(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let (position, room) = self.position(self.total);
            let count = usize::try_from(room).unwrap_or(usize::MAX).min(data.len());
            let _ = self.file.write_all_at(&data[..count], position);
            self.total += count as u64;
            data = &data[count..];
        }
    }

    /// Where a byte of the stream is in the file, and how many follow it there.
    fn position(&self, offset: u64) -> (u64, u64) {
        if offset < HEAD {
            return (offset, HEAD - offset);
        }
        let in_ring = (offset - HEAD) % TAIL;
        (HEAD + in_ring, TAIL - in_ring)
    }

    fn tail_start(&self) -> u64 {
        self.total.saturating_sub(TAIL).max(HEAD)
    }

    /// The output from `offset` on; bytes that were cut are jumped over.
    pub(super) fn read(&self, offset: u64) -> LogChunk {
        let tail = self.tail_start();
        let offset = if offset >= HEAD && offset < tail { tail } else { offset }.min(self.total);
        let (position, room) = self.position(offset);
        let count = room.min(self.total - offset).min(MAX_CHUNK);
        let mut data = vec![0; usize::try_from(count).unwrap_or(0)];
        if self.file.read_exact_at(&mut data, position).is_err() {
            data.fill(0);
        }
        let next_offset = offset + count;
        LogChunk {
            data,
            offset,
            next_offset,
            total: self.total,
            cut: tail - HEAD.min(tail),
            end: self.pipe.is_none() && next_offset == self.total,
        }
    }

    /// Whether a reader at `offset` has something to hear.
    pub(super) fn has_news(&self, offset: u64) -> bool {
        self.total > offset || self.pipe.is_none()
    }
}
