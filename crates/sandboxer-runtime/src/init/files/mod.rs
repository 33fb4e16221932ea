//! File operations, run in a forked child as the exec's user instead of a program. Data goes over stdin
//! and stdout, the outcome as one JSON document to stderr.
//!
//! The process has no more rights than a command would have, so a trick with links gains nothing; the
//! checks here keep an operation from doing something else than its caller asked for.

mod archive;
mod content;
mod path;
mod tree;

use crate::error::{ErrorKind, RuntimeError};
use crate::spec::FileOp;
use crate::wire::Outcome;
use std::io::{self, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;

/// What the operations fail with: their own kinds, or the system's errors.
type FileResult<T> = Result<T, FileError>;

#[derive(Debug)]
pub(super) struct FileError {
    kind: ErrorKind,
    message: String,
    errno: Option<i32>,
}

impl FileError {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), errno: None }
    }
}

impl From<rustix::io::Errno> for FileError {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(libc::ENOENT) => ErrorKind::NotFound,
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => ErrorKind::Permission,
            Some(libc::ENOTDIR) => ErrorKind::NotADirectory,
            Some(libc::EISDIR) => ErrorKind::IsADirectory,
            Some(libc::EEXIST | libc::ENOTEMPTY) => ErrorKind::Exists,
            Some(libc::EFBIG) => ErrorKind::TooLarge,
            Some(libc::ENOSPC | libc::EDQUOT) => ErrorKind::NoSpace,
            Some(libc::ELOOP | libc::EXDEV) => ErrorKind::UnsafePath,
            _ => ErrorKind::Io,
        };
        Self { kind, message: error.to_string(), errno: error.raw_os_error() }
    }
}

/// Runs the operation and reports it; the result is the exit code.
pub(super) fn run(op: &FileOp, cwd: &str) -> i32 {
    let (name, subject) = describe(op);
    let outcome = match perform(op, cwd) {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Failed(RuntimeError {
            kind: error.kind,
            step: name.to_owned(),
            message: format!("cannot {name} {subject}: {}", error.message),
            errno: error.errno,
            hint: None,
        }),
    };
    let text = serde_json::to_vec(&outcome).unwrap_or_default();
    // The descriptor stays open: it is the process's stderr.
    let mut stderr = stream(2);
    let reported = stderr.write_all(&text).is_ok();
    if reported && matches!(outcome, Outcome::Done) { 0 } else { 1 }
}

fn describe(op: &FileOp) -> (&'static str, &str) {
    match op {
        FileOp::Read { path, .. } => ("read", path),
        FileOp::Write { path, .. } => ("write", path),
        FileOp::List { path, .. } => ("list", path),
        FileOp::Stat { path } => ("stat", path),
        FileOp::Delete { path, .. } => ("delete", path),
        FileOp::Mkdir { path, .. } => ("mkdir", path),
        FileOp::Rename { from, .. } => ("rename", from),
        FileOp::TarOut { path } => ("tar_out", path),
        FileOp::TarIn { path } => ("tar_in", path),
    }
}

fn perform(op: &FileOp, cwd: &str) -> FileResult<()> {
    op.validate().map_err(|error| FileError::new(ErrorKind::UnsafePath, error.message))?;
    let absolute = |path: &str| path::absolute(path, cwd);
    match op {
        FileOp::Read { path, offset, limit } => {
            content::read(&absolute(path), *offset, *limit, &mut stream(1))
        }
        FileOp::Write { path, mode, create_parents } => {
            content::write(&absolute(path), *mode, *create_parents, &mut stream(0))
        }
        FileOp::List { path, depth } => tree::list(&absolute(path), *depth, &mut stream(1)),
        FileOp::Stat { path } => tree::stat(&absolute(path), &mut stream(1)),
        FileOp::Delete { path, recursive } => tree::delete(&absolute(path), *recursive),
        FileOp::Mkdir { path, parents } => tree::mkdir(&absolute(path), *parents),
        FileOp::Rename { from, to } => tree::rename(&absolute(from), &absolute(to)),
        FileOp::TarOut { path } => archive::pack(&absolute(path), &mut stream(1)),
        FileOp::TarIn { path } => archive::unpack(&absolute(path), &mut stream(0)),
    }
}

/// One of the process's three streams, unbuffered and not closed at the end.
fn stream(number: i32) -> ManuallyDrop<std::fs::File> {
    // SAFETY: descriptors 0 to 2 are open for the life of this process, and `ManuallyDrop` keeps them so.
    ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(number) })
}
