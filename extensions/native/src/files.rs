//! Files: the runtime's readers and writers as plain streams whose errors are not lost.

use bytes::Bytes;
use jiff::Timestamp;
use sandboxer_core::exec::BoxRead;
use sandboxer_core::files::{FileInfo, FileKind};
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_runtime as runtime;
use tokio::io::AsyncReadExt;

use crate::errors::map;

const CHUNK: usize = 64 << 10;
const WORKSPACE: &str = "/workspace";

/// The content as a stream. What can be known before the first byte (no such file) is an error here and now;
/// what goes wrong later ends the stream with an error instead of a quiet end.
pub(crate) async fn to_stream(mut reader: runtime::FileReader) -> Result<BoxRead> {
    let mut first = vec![0; CHUNK];
    let count = reader.read(&mut first).await.map_err(broken)?;
    first.truncate(count);
    if count == 0 {
        reader.finish().await.map_err(map)?;
        return Ok(Box::pin(tokio::io::empty()));
    }
    let rest = futures::stream::try_unfold(Some(reader), |state| async move {
        let Some(mut reader) = state else { return Ok(None) };
        let mut chunk = vec![0; CHUNK];
        let count = reader.read(&mut chunk).await?;
        if count > 0 {
            chunk.truncate(count);
            return Ok(Some((Bytes::from(chunk), Some(reader))));
        }
        reader.finish().await.map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok::<_, std::io::Error>(None)
    });
    let rest = tokio_util::io::StreamReader::new(Box::pin(rest));
    Ok(Box::pin(AsyncReadExt::chain(std::io::Cursor::new(first), rest)))
}

/// Copies everything; a source that breaks off leaves the target as it was.
pub(crate) async fn copy_in(mut source: BoxRead, mut writer: runtime::FileWriter) -> Result<()> {
    use tokio::io::AsyncWriteExt;
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = source.read(&mut chunk).await.map_err(|error| {
            Error::new(ErrorKind::BackendFailed, "the data to write broke off").with_source(error)
        })?;
        // A writer that refuses more has a reason, and `finish` tells it.
        if count == 0 || writer.write_all(&chunk[..count]).await.is_err() {
            return writer.finish().await.map_err(map);
        }
    }
}

/// What the workspace starts with, in a sandbox that answers and that nobody else knows yet.
pub(crate) async fn unpack_seed(control: &runtime::Control, seed: &std::path::Path) -> Result<()> {
    let tar = tokio::fs::File::open(seed).await.map_err(|source| {
        Error::new(ErrorKind::BackendFailed, "the workspace's seed cannot be read").with_source(source)
    })?;
    let writer = control.files().tar_in(WORKSPACE).await.map_err(map)?;
    copy_in(Box::pin(tar), writer).await
}

fn broken(source: std::io::Error) -> Error {
    Error::new(ErrorKind::BackendFailed, "the sandbox broke off").with_source(source)
}

pub(crate) fn to_info(entry: runtime::FileEntry) -> FileInfo {
    let name = entry.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    FileInfo {
        name: if name.is_empty() { "/".into() } else { name.to_owned() },
        kind: match entry.kind {
            runtime::FileKind::File => FileKind::File,
            runtime::FileKind::Directory => FileKind::Directory,
            runtime::FileKind::Symlink => FileKind::Symlink,
            runtime::FileKind::Other => FileKind::Other,
        },
        size: entry.size,
        mode: format!("{:04o}", entry.mode & 0o7777),
        uid: entry.uid,
        gid: entry.gid,
        modified_at: Timestamp::from_millisecond(entry.modified_unix_ms).unwrap_or(Timestamp::UNIX_EPOCH),
        link_target: entry.link_target,
        path: entry.path,
    }
}
