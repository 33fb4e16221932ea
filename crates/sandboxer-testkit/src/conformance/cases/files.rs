//! Files inside.

use std::sync::Arc;

use sandboxer_core::ErrorKind;
use sandboxer_core::files::FileKind;

use super::Case;
use crate::conformance::rig::{Outcome, Rig, ensure, fail};
use crate::conformance::sandbox::noise;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("files.content", "what is written is read, byte by byte", &["files"], content).safe(),
        Case::new("files.names", "awkward names are names", &["files"], names).safe(),
        Case::new("files.tree", "folders are made, listed, moved and removed", &["files"], tree).safe(),
        Case::new("files.missing", "what is not there is typed so", &["files"], missing).safe(),
        Case::new("files.and_commands", "commands and files see the same", &["files", "exec"], and_commands)
            .safe(),
        Case::new("files.replace", "a write replaces at once or not at all", &["files"], replace),
        Case::new(
            "files.broken_off",
            "a write whose data breaks off changes nothing",
            &["files"],
            broken_off,
        ),
    ]
}

async fn content(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    for (name, data) in [
        ("content/empty", Vec::new()),
        ("content/every", (0..=255u8).collect()),
        ("content/large", noise(5 << 20)),
    ] {
        sandbox.write(name, 0o640, &data).await?;
        ensure(sandbox.read(name).await? == data, || format!("{name} is not what was written"))?;
        let info = sandbox.extension.file_stat(&sandbox.handle, name).await?;
        let facts = (info.kind, info.size, info.mode.as_str());
        ensure(facts == (FileKind::File, data.len() as u64, "0640"), || format!("{name} is {info:?}"))?;
    }
    sandbox.write("content/every", 0o600, b"short").await?;
    ensure(sandbox.read("content/every").await? == b"short", || "a shorter write left the old end".into())
}

const NAMES: [&str; 8] =
    ["with space", "it's", "\"double\"", "two\nlines", "-leading", "$HOME", "back\\slash", "ünï 漢"];

async fn names(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    for name in NAMES {
        let path = format!("names/{name}");
        sandbox.write(&path, 0o644, name.as_bytes()).await?;
        ensure(sandbox.read(&path).await? == name.as_bytes(), || format!("{name:?} reads as another"))?;
        let info = sandbox.extension.file_stat(&sandbox.handle, &path).await?;
        ensure(info.name == name, || format!("{name:?} is called {:?}", info.name))?;
    }
    let mut listed: Vec<_> = sandbox
        .extension
        .file_list(&sandbox.handle, "names")
        .await?
        .into_iter()
        .map(|info| info.name)
        .collect();
    let mut expected: Vec<_> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    listed.sort();
    expected.sort();
    ensure(listed == expected, || format!("the folder lists {listed:?}"))?;
    for name in NAMES {
        sandbox.extension.file_delete(&sandbox.handle, &format!("names/{name}"), false).await?;
    }
    let left = sandbox.extension.file_list(&sandbox.handle, "names").await?;
    ensure(left.is_empty(), || format!("{left:?} stays"))
}

async fn tree(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let (extension, handle) = (&sandbox.extension, &sandbox.handle);
    extension.file_mkdir(handle, "tree/a/b").await?;
    let kind = extension.file_stat(handle, "tree/a/b").await?.kind;
    ensure(kind == FileKind::Directory, || format!("a folder is a {kind:?}"))?;
    sandbox.write("tree/a/b/deep/file", 0o644, b"deep").await?;
    extension.file_rename(handle, "tree/a", "tree/moved").await?;
    ensure(sandbox.read("tree/moved/b/deep/file").await? == b"deep", || "a moved folder lost a file".into())?;
    ensure(extension.file_stat(handle, "tree/a").await.is_err(), || "the old name is still there".into())?;
    sandbox.write("tree/other", 0o644, b"other").await?;
    extension.file_rename(handle, "tree/other", "tree/moved/b/deep/file").await?;
    ensure(sandbox.read("tree/moved/b/deep/file").await? == b"other", || "a move did not replace".into())?;
    ensure(extension.file_delete(handle, "tree/moved", false).await.is_err(), || {
        "a full folder is removed without `recursive`".into()
    })?;
    extension.file_delete(handle, "tree/moved", true).await?;
    let left = extension.file_list(handle, "tree").await?;
    ensure(left.is_empty(), || format!("{left:?} stays"))
}

async fn missing(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let (extension, handle) = (&sandbox.extension, &sandbox.handle);
    let path = "missing/nothing-here";
    for (what, kind) in [
        ("stat", extension.file_stat(handle, path).await.err().map(|error| error.kind())),
        ("list", extension.file_list(handle, path).await.err().map(|error| error.kind())),
        ("read", extension.file_read(handle, path).await.err().map(|error| error.kind())),
        ("delete", extension.file_delete(handle, path, true).await.err().map(|error| error.kind())),
        ("rename", extension.file_rename(handle, path, "missing/x").await.err().map(|error| error.kind())),
    ] {
        ensure(kind == Some(ErrorKind::NotFound), || format!("{what} of what is not there is {kind:?}"))?;
    }
    Ok(())
}

async fn and_commands(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    sandbox.write("both/written", 0o755, b"#!/bin/sh\necho ran\n").await?;
    ensure(sandbox.sh("./both/written", &[]).await? == "ran", || {
        "a command does not see what was written".into()
    })?;
    sandbox.sh("echo said > both/said && ln -s said both/link", &[]).await?;
    ensure(sandbox.read("both/said").await? == b"said\n", || "what a command wrote reads as another".into())?;
    let info = sandbox.extension.file_stat(&sandbox.handle, "both/link").await?;
    ensure(info.kind == FileKind::Symlink && info.link_target.as_deref() == Some("said"), || {
        format!("a link is {info:?}")
    })
}

async fn replace(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let (ones, twos) = (vec![b'1'; 1 << 20], vec![b'2'; 1 << 20]);
    sandbox.write("replace/file", 0o644, &ones).await?;
    let write = async {
        for round in 0..6 {
            sandbox.write("replace/file", 0o644, if round % 2 == 0 { &twos } else { &ones }).await?;
        }
        Outcome::Ok(())
    };
    let read = async {
        for _ in 0..12 {
            let data = sandbox.read("replace/file").await?;
            ensure(data == ones || data == twos, || format!("{} bytes of a half-written file", data.len()))?;
        }
        Outcome::Ok(())
    };
    let (written, read) = tokio::join!(write, read);
    written.and(read)?;
    let listed = sandbox.extension.file_list(&sandbox.handle, "replace").await?;
    ensure(listed.len() == 1, || format!("writing leaves {listed:?}"))
}

async fn broken_off(rig: Arc<Rig>) -> Outcome {
    use tokio::io::AsyncReadExt as _;
    let sandbox = rig.shared().await?;
    sandbox.write("broken/file", 0o644, b"old").await?;
    let data = Box::pin(std::io::Cursor::new(vec![b'n'; 200_000]).chain(Broken));
    if sandbox.extension.file_write(&sandbox.handle, "broken/file", 0o644, data).await.is_ok() {
        return fail("a write of broken data succeeds");
    }
    ensure(sandbox.read("broken/file").await? == b"old", || "the old content is gone".into())?;
    let listed = sandbox.extension.file_list(&sandbox.handle, "broken").await?;
    ensure(listed.len() == 1, || format!("a broken write leaves {listed:?}"))
}

/// A stream that breaks.
struct Broken;

impl tokio::io::AsyncRead for Broken {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Err(std::io::Error::other("the data broke off")))
    }
}
