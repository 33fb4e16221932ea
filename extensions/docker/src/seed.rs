//! What the workspace starts with: everything belongs to the user of the sandbox, and nothing but files, folders and
//! links goes in.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sandboxer_core::{Error, ErrorKind, Result};
use tar::EntryType;
use tokio::sync::mpsc;

use crate::client::Connected;
use crate::errors::map;
use crate::exec::WORKSPACE;

/// Pieces that wait for the engine.
const PIECES: usize = 8;
const PIECE: usize = 128 * 1024;

/// Who owns the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u64,
    pub(crate) gid: u64,
}

/// Fills the workspace of a container that was not started yet.
pub(crate) async fn fill(
    connected: &Connected,
    container: &str,
    seed: Option<PathBuf>,
    owner: Owner,
) -> Result<()> {
    let (send, mut receive) = mpsc::channel::<io::Result<Bytes>>(PIECES);
    let write = tokio::task::spawn_blocking(move || write_tar(seed.as_deref(), owner, send));
    let stream = futures::stream::poll_fn(move |context| receive.poll_recv(context));
    let options =
        bollard::query_parameters::UploadToContainerOptionsBuilder::default().path(WORKSPACE).build();
    let uploaded =
        connected.api.upload_to_container(container, Some(options), bollard::body_try_stream(stream)).await;
    // The tar's own mistake explains the upload's.
    let written = write
        .await
        .map_err(|source| Error::new(ErrorKind::Internal, "the seed's task broke off").with_source(source))?;
    match (written, uploaded) {
        (Err(error), Err(_)) => Err(error),
        (_, uploaded) => uploaded.map_err(|error| map(error, "fill the workspace")),
    }
}

fn write_tar(seed: Option<&Path>, owner: Owner, send: mpsc::Sender<io::Result<Bytes>>) -> Result<()> {
    let mut sink = Sink { send, piece: Vec::with_capacity(PIECE) };
    let done = rewrite(seed, owner, &mut sink);
    match done {
        Ok(()) => Ok(()),
        Err(error) => {
            // Without this the engine would take the broken tar for a whole one.
            let _ = sink.send.blocking_send(Err(io::Error::other("the seed cannot be read")));
            Err(error)
        }
    }
}

fn rewrite(seed: Option<&Path>, owner: Owner, sink: &mut Sink) -> Result<()> {
    let mut out = tar::Builder::new(&mut *sink);
    append_root(&mut out, owner).map_err(broken)?;
    if let Some(path) = seed {
        let file = std::fs::File::open(path).map_err(broken)?;
        let mut archive = tar::Archive::new(io::BufReader::new(file));
        let mut folders = BTreeSet::new();
        for entry in archive.entries().map_err(broken)? {
            append_entry(&mut out, entry.map_err(broken)?, owner, &mut folders)?;
        }
    }
    out.finish().map_err(broken)?;
    drop(out);
    sink.flush_piece().map_err(broken)
}

/// The folder itself. Its name is `/`: the engine skips `.` and keeps the owner that the volume was made with.
fn append_root(out: &mut tar::Builder<&mut Sink>, owner: Owner) -> io::Result<()> {
    let mut header = folder(owner);
    header.as_old_mut().name[0] = b'/';
    header.set_cksum();
    out.append(&header, io::empty())
}

/// Folders that the tar does not name would belong to the engine's user.
fn append_parents(
    out: &mut tar::Builder<&mut Sink>,
    path: &Path,
    owner: Owner,
    folders: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    let mut parents: Vec<&Path> = path.ancestors().skip(1).filter(|parent| !is_root(parent)).collect();
    parents.reverse();
    for parent in parents {
        if folders.insert(parent.to_owned()) {
            let mut header = folder(owner);
            out.append_data(&mut header, parent, io::empty())?;
        }
    }
    Ok(())
}

fn folder(owner: Owner) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::Directory);
    header.set_mode(0o755);
    header.set_uid(owner.uid);
    header.set_gid(owner.gid);
    header.set_mtime(u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default());
    header.set_size(0);
    header
}

fn append_entry<R: io::Read>(
    out: &mut tar::Builder<&mut Sink>,
    mut entry: tar::Entry<'_, R>,
    owner: Owner,
    folders: &mut BTreeSet<PathBuf>,
) -> Result<()> {
    let path = entry.path().map_err(broken)?.into_owned();
    append_parents(out, &path, owner, folders).map_err(broken)?;
    if entry.header().entry_type().is_dir() {
        folders.insert(path.clone());
    }
    let mut header = entry.header().clone();
    header.set_uid(owner.uid);
    header.set_gid(owner.gid);
    let kind = header.entry_type();
    match kind {
        EntryType::Regular | EntryType::Continuous | EntryType::Directory => {
            if is_root(&path) {
                return Ok(());
            }
            out.append_data(&mut header, &path, &mut entry).map_err(broken)
        }
        EntryType::Symlink | EntryType::Link => {
            let Some(target) = entry.link_name().map_err(broken)?.map(std::borrow::Cow::into_owned) else {
                return Err(refused(&path, "a link without a target"));
            };
            out.append_link(&mut header, &path, &target).map_err(broken)
        }
        _ => Err(refused(&path, "neither a file nor a folder nor a link")),
    }
}

fn is_root(path: &Path) -> bool {
    path.components().all(|part| matches!(part, std::path::Component::CurDir))
}

fn refused(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("`{}` in the seed is {why}", path.display()))
}

fn broken(source: io::Error) -> Error {
    Error::new(ErrorKind::InvalidInput, "the seed of the workspace cannot be read").with_source(source)
}

/// Gathers pieces for the request's body.
struct Sink {
    send: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Sink {
    fn flush_piece(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.send
            .blocking_send(Ok(piece.into()))
            .map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the engine takes no more"))
    }
}

impl io::Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(data);
        if self.piece.len() >= PIECE {
            self.flush_piece()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
