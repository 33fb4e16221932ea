//! Tar archives, in and out.

use std::io::Read as _;
use std::sync::Arc;

use super::Case;
use super::escape::Prey;
use crate::conformance::rig::{Outcome, Rig, ensure, fail};
use crate::conformance::sandbox::{Sandbox, all, noise, reader};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("archive.round_trip", "a tree goes in and comes out as it was", &["archive"], round_trip)
            .safe(),
        Case::new("archive.missing", "an archive of what is not there is an error", &["archive"], missing)
            .safe(),
        Case::new(
            "archive.hostile",
            "an archive cannot plant anything outside its folder",
            &["archive"],
            hostile,
        ),
    ]
}

fn header(kind: tar::EntryType, mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_mtime(1_700_000_000);
    header
}

/// A small tree: a script, binary data, an empty folder, a link, a name that hurts.
pub(super) fn tree() -> Outcome<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut file = |path: &str, mode: u32, data: &[u8]| {
        tar.append_data(&mut header(tar::EntryType::Regular, mode, data.len()), path, data)
    };
    file("run.sh", 0o755, b"#!/bin/sh\necho seeded\n")?;
    file("sub/binary", 0o644, &noise(300_000))?;
    file("sub/it's a \"name\"", 0o600, b"named")?;
    file(&format!("sub/{}", "long".repeat(40)), 0o644, b"long")?;
    tar.append_data(&mut header(tar::EntryType::Directory, 0o755, 0), "empty/", &[][..])?;
    tar.append_link(&mut header(tar::EntryType::Symlink, 0o777, 0), "link", "sub/binary")?;
    Ok(tar.into_inner()?)
}

/// Path, kind, link and data.
type Entry = (String, char, String, Vec<u8>);

/// Every entry, without the way to it, sorted.
fn entries(tar: &[u8], root: &str) -> Outcome<Vec<Entry>> {
    let mut out = Vec::new();
    for entry in tar::Archive::new(tar).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().trim_start_matches("./").trim_end_matches('/').to_owned();
        let path = path.strip_prefix(root).unwrap_or(&path).trim_start_matches('/').to_owned();
        let link = entry.link_name()?.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default();
        let kind = match entry.header().entry_type() {
            tar::EntryType::Directory => 'd',
            tar::EntryType::Symlink => 'l',
            tar::EntryType::Regular => 'f',
            _ => '?',
        };
        let mut data = Vec::new();
        entry.read_to_end(&mut data)?;
        out.push((path, kind, link, data));
    }
    out.retain(|(path, ..)| !path.is_empty() && path != "." && path != "sub");
    out.sort();
    Ok(out)
}

async fn round_trip(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let sent = tree()?;
    sandbox.extension.archive_put(&sandbox.handle, "archive/deep", reader(&sent)).await?;
    if rig.capability.exec {
        ensure(sandbox.sh("archive/deep/run.sh", &[]).await? == "seeded", || {
            "a script lost its mode".into()
        })?;
        let link = sandbox.sh("readlink archive/deep/link", &[]).await?;
        ensure(link == "sub/binary", || format!("a link leads to `{link}`"))?;
    }
    let got = all(sandbox.extension.archive_get(&sandbox.handle, "archive/deep").await?).await?;
    let (sent, got) = (entries(&sent, "")?, entries(&got, "deep")?);
    ensure(sent == got, || {
        let names = |list: &[Entry]| {
            let names =
                list.iter().map(|(path, kind, link, data)| format!("{kind} {path} {link} {}", data.len()));
            names.collect::<Vec<_>>().join(", ")
        };
        format!("sent {}; got {}", names(&sent), names(&got))
    })
}

async fn missing(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    match sandbox.extension.archive_get(&sandbox.handle, "archive-of-nothing").await {
        Err(_) => Ok(()),
        Ok(stream) => match all(stream).await {
            Err(_) => Ok(()),
            Ok(data) => fail(format!("it gives {} bytes", data.len())),
        },
    }
}

/// A header whose name the library would refuse to write.
fn raw(name: &str, kind: tar::EntryType, link: &str, data: &[u8]) -> Vec<u8> {
    let mut header = header(kind, 0o666, data.len());
    let put = |field: &mut [u8], text: &str| {
        field.fill(0);
        let length = text.len().min(field.len());
        field[..length].copy_from_slice(&text.as_bytes()[..length]);
    };
    put(&mut header.as_old_mut().name, name);
    put(&mut header.as_old_mut().linkname, link);
    if kind == tar::EntryType::Char {
        // Major 1, minor 3: the null device, where it matters least.
        let _ = header.set_device_major(1).and_then(|()| header.set_device_minor(3));
    }
    header.set_cksum();
    let mut out = header.as_bytes().to_vec();
    out.extend_from_slice(data);
    out.resize(out.len().div_ceil(512) * 512, 0);
    out
}

async fn hostile(rig: Arc<Rig>) -> Outcome {
    use tar::EntryType::{Char, Link, Regular, Symlink};
    let sandbox = rig.shared().await?;
    let prey = Prey::new()?;
    let outside = prey.path().display().to_string();
    let up = "../".repeat(12);
    let tars: [(&str, Vec<Vec<u8>>); 6] = [
        ("an absolute name", vec![raw(&format!("{outside}/planted"), Regular, "", b"x")]),
        ("a name with `..`", vec![raw(&format!("{up}{outside}/planted"), Regular, "", b"x")]),
        (
            "a link and a file through it",
            vec![raw("out", Symlink, &outside, b""), raw("out/planted", Regular, "", b"x")],
        ),
        (
            "a link and a file in its place",
            vec![raw("at", Symlink, &format!("{outside}/secret"), b""), raw("at", Regular, "", b"x")],
        ),
        (
            "a hard link to a file outside",
            vec![raw("hard", Link, &format!("{up}{outside}/secret"), b""), raw("hard", Regular, "", b"x")],
        ),
        ("a device", vec![raw("device", Char, "", b"")]),
    ];
    for (number, (what, parts)) in tars.into_iter().enumerate() {
        let mut tar = parts.concat();
        tar.resize(tar.len() + 1_024, 0);
        let folder = format!("hostile/{number}");
        // Refused or unpacked inside: the folder outside tells.
        let _ = sandbox.extension.archive_put(&sandbox.handle, &folder, reader(&tar)).await;
        prey.untouched().or_else(|stop| fail(format!("{what}: {stop:?}")))?;
        still_works(&sandbox, &rig, &folder).await?;
    }
    Ok(())
}

async fn still_works(sandbox: &Sandbox, rig: &Rig, folder: &str) -> Outcome {
    if rig.capability.exec {
        let device = sandbox.sh("if test -c \"$1/device\"; then echo device; fi", &[folder]).await?;
        ensure(device.is_empty(), || "a device was made".into())?;
    }
    ensure(sandbox.extension.life(&sandbox.handle).await?.is_alive(), || "the sandbox ended".into())
}
