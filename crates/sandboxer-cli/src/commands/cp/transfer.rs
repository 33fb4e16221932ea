//! The copies themselves, as streams: nothing is held in memory as a whole.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use sandboxer_core::exec::BoxRead;
use sandboxer_core::files::{FileInfo, FileKind};
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio_util::io::SyncIoBridge;

use super::location::Inside;
use crate::api::Api;
use crate::printer::Printer;
use crate::status::{Outcome, Stop, io_error};
use crate::tree::{self, Copied};

/// Between a task that packs and one that sends.
const PIPE: usize = 256 << 10;
/// The permission bits that are copied. Set-user bits are not: the content is not trusted.
const MODE: u32 = 0o777;

/// From here into a sandbox.
pub(super) async fn into(api: &dyn Api, from: &Path, to: &Inside) -> Result<Copied> {
    let metadata = fs::metadata(from)
        .map_err(|source| io_error(format!("{} cannot be read", from.display()), source))?;
    let target = stat(api, to).await?;
    if metadata.is_dir() {
        let name = if local_means_contents(from) { None } else { local_name(from) };
        let to = folder_target(to, target.as_ref(), name.as_deref())?;
        return put_folder(api, from.to_path_buf(), &to).await;
    }
    let to = match (&target, local_name(from)) {
        (Some(FileInfo { kind: FileKind::Directory, .. }), Some(name)) => to.join(&name),
        (None, Some(name)) if to.path.ends_with('/') => to.join(&name),
        _ => to.clone(),
    };
    let file = tokio::fs::File::open(from)
        .await
        .map_err(|source| io_error(format!("{} cannot be read", from.display()), source))?;
    write_file(api, &to, metadata.mode() & MODE, Box::pin(file)).await
}

/// From stdin: a tar where the destination is a folder, the bytes of a file otherwise.
pub(super) async fn from_stdin(api: &dyn Api, to: &Inside) -> Result<Copied> {
    let stdin: BoxRead = Box::pin(tokio::io::stdin());
    match stat(api, to).await? {
        Some(FileInfo { kind: FileKind::Directory, .. }) => {
            let (counted, count) = counting(stdin);
            api.archive_put(to.id, &to.path, counted).await?;
            Ok(Copied { entries: 1, bytes: count.load(Ordering::Relaxed), left_out: Vec::new() })
        }
        _ => write_file(api, to, 0o644, stdin).await,
    }
}

/// From a sandbox to here.
pub(super) async fn out(api: &dyn Api, from: &Inside, to: &Path) -> Result<Copied> {
    let target = fs::metadata(to).ok();
    let into_folder = target.as_ref().is_some_and(fs::Metadata::is_dir);
    let (kind, info) = source(api, from).await?;
    if kind == FileKind::Directory {
        let to = match (&target, from.base_name()) {
            (Some(metadata), _) if !metadata.is_dir() => return Err(not_a_folder(&to.display().to_string())),
            (Some(_), Some(name)) if !from.means_contents() => to.join(name),
            _ => to.to_path_buf(),
        };
        return get_folder(api, from, to).await;
    }
    let to = match from.base_name() {
        Some(name) if into_folder => to.join(name),
        _ if into_folder || ends_with_slash(to) => return Err(not_a_folder(&to.display().to_string())),
        _ => to.to_path_buf(),
    };
    let mode = u32::from_str_radix(&info.mode, 8).unwrap_or(0o644) & MODE;
    get_file(api.file_read(from.id, &from.path).await?, to, mode).await
}

/// To stdout: the bytes of a file, or the tar of a folder.
pub(super) async fn to_stdout(api: &dyn Api, from: &Inside, printer: &Printer) -> Outcome<Copied> {
    let mut content = match source(api, from).await?.0 {
        FileKind::Directory => api.archive_get(from.id, &from.path).await?,
        _ => api.file_read(from.id, &from.path).await?,
    };
    let (mut stdout, mut chunk, mut bytes) = (printer.stdout_stream(), vec![0_u8; 64 << 10], 0);
    loop {
        let count = content.read(&mut chunk).await.map_err(|source| io_error(broke_off(from), source))?;
        if count == 0 {
            break;
        }
        bytes += count as u64;
        let written = async {
            stdout.write_all(&chunk[..count]).await?;
            stdout.flush().await
        };
        written.await.map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe => Stop::BrokenPipe,
            _ => io_error("the content cannot be written to stdout", error).into(),
        })?;
    }
    Ok(Copied { entries: 1, bytes, left_out: Vec::new() })
}

/// From one sandbox to another, through here but not over this disk.
pub(super) async fn between(api: &dyn Api, from: &Inside, to: &Inside) -> Result<Copied> {
    let (kind, info) = source(api, from).await?;
    let target = stat(api, to).await?;
    if kind == FileKind::Directory {
        let name = from.base_name().filter(|_| !from.means_contents());
        let to = folder_target(to, target.as_ref(), name)?;
        let (counted, count) = counting(api.archive_get(from.id, &from.path).await?);
        api.archive_put(to.id, &to.path, counted).await?;
        return Ok(Copied { entries: 1, bytes: count.load(Ordering::Relaxed), left_out: Vec::new() });
    }
    let into_folder =
        target.is_some_and(|target| target.kind == FileKind::Directory) || to.path.ends_with('/');
    let to = match from.base_name() {
        Some(name) if into_folder => to.join(name),
        _ => to.clone(),
    };
    let mode = u32::from_str_radix(&info.mode, 8).unwrap_or(0o644) & MODE;
    write_file(api, &to, mode, api.file_read(from.id, &from.path).await?).await
}

async fn write_file(api: &dyn Api, to: &Inside, mode: u32, content: BoxRead) -> Result<Copied> {
    let (counted, count) = counting(content);
    api.file_write(to.id, &to.path, mode, counted).await?;
    Ok(Copied { entries: 1, bytes: count.load(Ordering::Relaxed), left_out: Vec::new() })
}

/// A task packs while the other side unpacks.
async fn put_folder(api: &dyn Api, from: PathBuf, to: &Inside) -> Result<Copied> {
    let (write, read) = tokio::io::duplex(PIPE);
    let packing = tokio::task::spawn_blocking(move || {
        let mut bridge = SyncIoBridge::new(write);
        let packed = tree::pack(&from, &mut bridge);
        if packed.is_ok() {
            let _ = bridge.shutdown();
        }
        packed
    });
    let put = api.archive_put(to.id, &to.path, Box::pin(read)).await;
    let packed = packing.await.map_err(broken_task)?;
    // What went wrong here first is the reason; what the other side says about half an archive is not.
    match (packed, put) {
        (Ok(copied), Ok(())) => Ok(copied),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(_)) if !is_broken_pipe(&error) => Err(error),
        (_, Err(error)) => Err(error),
    }
}

async fn get_folder(api: &dyn Api, from: &Inside, to: PathBuf) -> Result<Copied> {
    let content = api.archive_get(from.id, &from.path).await?;
    let unpacking = tokio::task::spawn_blocking(move || {
        if let Err(source) = fs::create_dir(&to)
            && source.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(io_error(format!("{} cannot be made", to.display()), source));
        }
        tree::unpack(SyncIoBridge::new(content), &to)
    });
    unpacking.await.map_err(broken_task)?
}

/// Written beside the destination and moved over it, so that nobody sees half of it.
async fn get_file(content: BoxRead, to: PathBuf, mode: u32) -> Result<Copied> {
    let writing = tokio::task::spawn_blocking(move || {
        let failed = |source| io_error(format!("{} cannot be written", to.display()), source);
        // Devices and pipes, such as /dev/null, are written to and not replaced.
        let special = fs::metadata(&to).is_ok_and(|metadata| !metadata.is_file());
        let mut content = SyncIoBridge::new(content);
        if special {
            let mut file = fs::OpenOptions::new().write(true).open(&to).map_err(failed)?;
            let bytes = std::io::copy(&mut content, &mut file).map_err(failed)?;
            return Ok(Copied { entries: 1, bytes, left_out: Vec::new() });
        }
        // A link here is the user's own: what it leads to is replaced, as cp does it.
        let to = fs::canonicalize(&to).unwrap_or_else(|_| to.clone());
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(".sandboxer").tempfile_in(folder).map_err(failed)?;
        let bytes = std::io::copy(&mut content, &mut file).map_err(failed)?;
        file.flush().map_err(failed)?;
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).map_err(failed)?;
        file.persist(&to).map_err(|error| failed(error.error))?;
        Ok(Copied { entries: 1, bytes, left_out: Vec::new() })
    });
    writing.await.map_err(broken_task)?
}

/// What is at a path inside; nothing when nothing is.
async fn stat(api: &dyn Api, at: &Inside) -> Result<Option<FileInfo>> {
    match api.file_stat(at.id, &at.path).await {
        Ok(info) if info.kind == FileKind::Symlink => Ok(Some(follow(api, at, info).await)),
        Ok(info) => Ok(Some(info)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the source is; a link counts as what it leads to.
async fn source(api: &dyn Api, at: &Inside) -> Result<(FileKind, FileInfo)> {
    let info = stat(api, at).await?.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            format!("there is no `{}` in {}", sandboxer_core::suggest::printable(&at.path), at.id),
        )
    })?;
    Ok((info.kind, info))
}

/// A link to a folder answers below itself, a link to a file does not.
async fn follow(api: &dyn Api, at: &Inside, link: FileInfo) -> FileInfo {
    match api.file_stat(at.id, &format!("{}/.", at.path)).await {
        Ok(info) => info,
        Err(_) => FileInfo { kind: FileKind::File, mode: "0644".into(), ..link },
    }
}

/// Where a folder goes: inside one that exists, otherwise under the destination's own name.
fn folder_target(to: &Inside, target: Option<&FileInfo>, name: Option<&str>) -> Result<Inside> {
    match (target, name) {
        (Some(info), _) if info.kind != FileKind::Directory => Err(not_a_folder(&to.path)),
        (Some(_), Some(name)) => Ok(to.join(name)),
        _ => Ok(to.clone()),
    }
}

fn local_name(path: &Path) -> Option<String> {
    let canonical = || fs::canonicalize(path).ok().and_then(|path| path.file_name().map(ToOwned::to_owned));
    let name = path.file_name().map(ToOwned::to_owned).or_else(canonical)?;
    Some(name.to_string_lossy().into_owned())
}

/// `dir/.`: `Path` drops the dot, so the text decides.
fn local_means_contents(path: &Path) -> bool {
    let text = path.as_os_str().as_encoded_bytes();
    text.ends_with(b"/.") || text == b"."
}

fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

fn not_a_folder(path: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("`{}` is not a folder", sandboxer_core::suggest::printable(path)))
}

fn broke_off(from: &Inside) -> String {
    format!("reading `{}` broke off", sandboxer_core::suggest::printable(&from.path))
}

fn broken_task(source: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Internal, "a copy broke off").with_source(source)
}

fn is_broken_pipe(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::BrokenPipe)
}

/// A stream that counts what goes through it.
fn counting(inner: BoxRead) -> (BoxRead, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    (Box::pin(Counting { inner, count: count.clone() }), count)
}

struct Counting {
    inner: BoxRead,
    count: Arc<AtomicU64>,
}

impl AsyncRead for Counting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = self.inner.as_mut().poll_read(context, buffer);
        self.count.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}
