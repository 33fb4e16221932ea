//! Packing and unpacking, with archives that no honest tool would make.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use tar::{Builder, EntryType, Header};

use super::{pack, unpack};

fn archive(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        header.set_size(if is_link { 0 } else { content.len() as u64 });
        // Written by hand: the library refuses to make what these tests are about.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        if is_link {
            header.as_mut_bytes()[157..157 + content.len()].copy_from_slice(content.as_bytes());
        }
        header.set_cksum();
        builder.append(&header, if is_link { &b""[..] } else { content.as_bytes() }).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn there_and_back() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir_all(from.path().join("a/locked")).unwrap();
    fs::write(from.path().join("a/script"), b"#!/bin/sh\n\xff\0").unwrap();
    fs::set_permissions(from.path().join("a/script"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::write(from.path().join("a/locked/file"), b"x").unwrap();
    fs::set_permissions(from.path().join("a/locked"), fs::Permissions::from_mode(0o555)).unwrap();
    symlink("script", from.path().join("a/link")).unwrap();

    let mut tar = Vec::new();
    pack(from.path(), &mut tar).unwrap();
    let copied = unpack(&tar[..], to.path()).unwrap();

    assert!(copied.left_out.is_empty(), "{copied:?}");
    let copy = to.path().join("a/script");
    assert_eq!(fs::read(&copy).unwrap(), b"#!/bin/sh\n\xff\0");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(fs::read_link(to.path().join("a/link")).unwrap(), Path::new("script"));
    assert_eq!(fs::metadata(to.path().join("a/locked")).unwrap().permissions().mode() & 0o777, 0o555);
    for dir in [from.path(), to.path()] {
        fs::set_permissions(dir.join("a/locked"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn names_that_lead_out_are_refused() {
    for name in ["../escaped", "a/../../escaped", "/tmp/sandboxer-escaped"] {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir(&root).unwrap();
        let error = unpack(&archive(&[(name, EntryType::Regular, "x")])[..], &root).unwrap_err();
        assert_eq!(error.kind(), sandboxer_core::ErrorKind::Denied, "{name}");
        assert!(!outer.path().join("escaped").exists());
        assert!(!Path::new("/tmp/sandboxer-escaped").exists());
    }
}

#[test]
fn links_that_lead_out_are_left_out_and_never_followed() {
    let outer = tempfile::tempdir().unwrap();
    let (root, victim) = (outer.path().join("root"), outer.path().join("victim"));
    fs::create_dir(&root).unwrap();
    fs::write(&victim, b"mine").unwrap();
    let tar = archive(&[
        ("up", EntryType::Symlink, "../victim"),
        ("up", EntryType::Regular, "theirs"),
        ("absolute", EntryType::Symlink, "/etc/passwd"),
        ("hard", EntryType::Link, "../victim"),
        ("device", EntryType::Char, ""),
        ("fine", EntryType::Symlink, "up"),
    ]);
    let copied = unpack(&tar[..], &root).unwrap();
    assert_eq!(copied.left_out.len(), 4, "{copied:?}");
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
    assert_eq!(fs::read(root.join("fine")).unwrap(), b"theirs");
    assert!(!root.join("absolute").exists());
}

#[test]
fn a_link_that_was_there_before_is_not_written_through() {
    let outer = tempfile::tempdir().unwrap();
    let (root, victim) = (outer.path().join("root"), outer.path().join("victim"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), b"mine").unwrap();
    symlink(&victim, root.join("dir")).unwrap();
    symlink(victim.join("file"), root.join("file")).unwrap();
    assert!(unpack(&archive(&[("dir/file", EntryType::Regular, "theirs")])[..], &root).is_err());
    unpack(&archive(&[("file", EntryType::Regular, "theirs")])[..], &root).unwrap();
    assert_eq!(fs::read(victim.join("file")).unwrap(), b"mine");
    assert_eq!(fs::read(root.join("file")).unwrap(), b"theirs");
}

#[test]
fn half_an_archive_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let mut tar = archive(&[("file", EntryType::Regular, &"x".repeat(2_000))]);
    tar.truncate(1_024);
    assert!(unpack(&tar[..], root.path()).is_err());
}

#[test]
fn set_user_bits_do_not_come_along() {
    let root = tempfile::tempdir().unwrap();
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_mode(0o4755);
    header.set_size(1);
    builder.append_data(&mut header, "tool", &b"x"[..]).unwrap();
    unpack(&builder.into_inner().unwrap()[..], root.path()).unwrap();
    assert_eq!(fs::metadata(root.path().join("tool")).unwrap().permissions().mode() & 0o7777, 0o755);
}
