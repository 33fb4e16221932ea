//! Packing and unpacking against folders and archives that mean harm.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sandboxer_core::ErrorKind;
use sandboxer_workspace::{Cache, Limits, Rules, Why, pack, pack_to, scan, unpack};
use tar::{Builder, EntryType, Header};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn packed_names(folder: &Path, rules: &Rules) -> (Vec<String>, Vec<Why>) {
    let mut bytes = Vec::new();
    let packed = pack_to(folder, rules, &mut bytes).unwrap();
    let mut archive = tar::Archive::new(&*bytes);
    let names = archive.entries().unwrap();
    let names = names.map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
    (names, packed.omitted.named.iter().map(|left| left.why).collect())
}

/// One entry as an attacker writes it: the name goes in as it is.
fn entry(builder: &mut Builder<Vec<u8>>, kind: EntryType, name: &str, link: &str, content: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o4755);
    header.set_size(content.len() as u64);
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    builder.append(&header, content).unwrap();
}

#[test]
fn packing_is_deterministic_and_leaves_out_what_is_no_content() {
    let from = folder();
    let at = |name: &str| from.path().join(name);
    fs::create_dir_all(at("src/deep")).unwrap();
    fs::write(at("src/deep/a.txt"), "a").unwrap();
    fs::write(at("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at("run.sh"), fs::Permissions::from_mode(0o775)).unwrap();
    fs::hard_link(at("run.sh"), at("same.sh")).unwrap();
    symlink("src/deep/a.txt", at("inside")).unwrap();
    symlink("/etc/passwd", at("outside")).unwrap();
    symlink("../other", at("above")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    let (names, why) = packed_names(from.path(), &Rules::bundle());
    assert_eq!(names, ["inside", "run.sh", "same.sh", "src", "src/deep", "src/deep/a.txt"]);
    assert_eq!(why, [Why::LeadsOut, Why::LeadsOut, Why::Special, Why::Special]);

    let (one, two) = (from.path().with_extension("1.tar"), from.path().with_extension("2.tar"));
    pack(from.path(), &Rules::bundle(), &one).unwrap();
    fs::write(at("run.sh"), "#!/bin/sh\n").unwrap();
    pack(from.path(), &Rules::bundle(), &two).unwrap();
    assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap());
    assert_eq!(fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_file(one).unwrap();
    fs::remove_file(two).unwrap();
}

#[test]
fn ignore_files_count_in_their_folders_and_ours_has_the_last_word() {
    let from = folder();
    let at = |name: &str| from.path().join(name);
    for name in
        ["keep", "build/x", "sub/a.log", "sub/keep.log", ".git/config", ".git/hooks/pre-commit", ".env"]
    {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::write(at(name), name).unwrap();
    }
    fs::write(at(".gitignore"), "build/\n").unwrap();
    fs::write(at("sub/.gitignore"), "*.log\n").unwrap();
    fs::write(at("sub/.sandboxerignore"), "!keep.log\n").unwrap();
    let (names, _) = packed_names(from.path(), &Rules::workspace());
    assert_eq!(
        names,
        [
            ".git",
            ".git/config",
            ".gitignore",
            "keep",
            "sub",
            "sub/.gitignore",
            "sub/.sandboxerignore",
            "sub/keep.log"
        ]
    );
    let (names, _) = packed_names(from.path(), &Rules::bundle());
    assert!(!names.iter().any(|name| name.starts_with(".git/")), "{names:?}");
}

#[test]
fn a_folder_beyond_its_bounds_is_refused() {
    let from = folder();
    for number in 0..20 {
        fs::write(from.path().join(number.to_string()), "12345").unwrap();
    }
    fs::create_dir_all(from.path().join("a/b/c/d")).unwrap();
    let limits = [
        Limits { entries: 10, ..Limits::default() },
        Limits { bytes: 50, ..Limits::default() },
        Limits { depth: 2, ..Limits::default() },
    ];
    for limits in limits {
        let error =
            pack_to(from.path(), &Rules { limits, ..Rules::workspace() }, std::io::sink()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }
}

/// While the folder is packed, a folder in it is swapped for a link to the outside, again and again.
#[test]
fn a_swapped_link_never_leads_the_walk_out() {
    let (from, outside) = (folder(), folder());
    fs::write(outside.path().join("secret"), "SECRET").unwrap();
    fs::write(outside.path().join("a"), "SECRET").unwrap();
    let (dir, link) = (from.path().join("dir"), from.path().join("link"));
    fs::create_dir(&dir).unwrap();
    for number in 0..50 {
        fs::write(dir.join(format!("f{number}")), "plain").unwrap();
    }
    symlink(outside.path(), &link).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, dir, link) = (stop.clone(), dir.clone(), link.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &dir,
                    rustix::fs::CWD,
                    &link,
                    rustix::fs::RenameFlags::EXCHANGE,
                );
            }
        })
    };
    for _ in 0..200 {
        let mut bytes = Vec::new();
        pack_to(from.path(), &Rules::workspace(), &mut bytes).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"SECRET"));
        let seen = scan(from.path(), &Rules::workspace(), &Cache::default()).unwrap();
        assert!(!seen.manifest.0.keys().any(|path| path.ends_with("secret")));
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
}

#[test]
fn names_that_lead_out_are_refused() {
    for name in ["/etc/owned", "../owned", "a/../../owned", "a/b/../../../owned"] {
        let (to, mut builder) = (folder(), Builder::new(Vec::new()));
        entry(&mut builder, EntryType::Regular, name, "", b"x");
        let bytes = builder.into_inner().unwrap();
        let error = unpack(&*bytes, to.path(), &Limits::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{name}");
        assert!(!to.path().parent().unwrap().join("owned").exists());
    }
}

#[test]
fn links_devices_and_pipes_are_left_out_and_files_lose_their_special_bits() {
    let (to, mut builder) = (folder(), Builder::new(Vec::new()));
    entry(&mut builder, EntryType::Symlink, "out", "/etc", b"");
    entry(&mut builder, EntryType::Symlink, "up", "../..", b"");
    entry(&mut builder, EntryType::Symlink, "ok", "file", b"");
    entry(&mut builder, EntryType::Link, "hard", "/etc/passwd", b"");
    entry(&mut builder, EntryType::Link, "hard2", "../x", b"");
    entry(&mut builder, EntryType::Char, "null", "", b"");
    entry(&mut builder, EntryType::Block, "disk", "", b"");
    entry(&mut builder, EntryType::Fifo, "pipe", "", b"");
    entry(&mut builder, EntryType::Regular, "file", "", b"content");
    entry(&mut builder, EntryType::Link, "copy", "file", b"");
    // Through a link that was refused there is nothing; a folder is made instead.
    entry(&mut builder, EntryType::Regular, "out/passwd", "", b"x");
    let bytes = builder.into_inner().unwrap();
    let done = unpack(&*bytes, to.path(), &Limits::default()).unwrap();
    assert_eq!(done.omitted.count, 7);
    let at = |name: &str| to.path().join(name);
    assert_eq!(fs::read_to_string(at("ok")).unwrap(), "content");
    assert_eq!(fs::read_to_string(at("copy")).unwrap(), "content");
    assert_eq!(fs::metadata(at("file")).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_to_string(at("out/passwd")).unwrap(), "x");
    for name in ["up", "hard", "hard2", "null", "disk", "pipe"] {
        assert!(fs::symlink_metadata(at(name)).is_err(), "{name}");
    }
}

#[test]
fn nothing_is_written_through_a_link_that_is_there() {
    let (to, outside) = (folder(), folder());
    symlink(outside.path(), to.path().join("dir")).unwrap();
    fs::write(outside.path().join("target"), "untouched").unwrap();
    symlink(outside.path().join("target"), to.path().join("file")).unwrap();
    let mut builder = Builder::new(Vec::new());
    entry(&mut builder, EntryType::Regular, "dir/x", "", b"x");
    entry(&mut builder, EntryType::Regular, "file", "", b"new");
    let bytes = builder.into_inner().unwrap();
    let done = unpack(&*bytes, to.path(), &Limits::default()).unwrap();
    assert_eq!(done.omitted.named.iter().map(|left| left.path.as_str()).collect::<Vec<_>>(), ["dir/x"]);
    assert!(!outside.path().join("x").exists());
    assert_eq!(fs::read_to_string(outside.path().join("target")).unwrap(), "untouched");
    assert_eq!(fs::read_to_string(to.path().join("file")).unwrap(), "new");
}

#[test]
fn an_archive_beyond_its_bounds_or_cut_off_is_refused_and_leaves_nothing_half() {
    let mut builder = Builder::new(Vec::new());
    for number in 0..20 {
        entry(&mut builder, EntryType::Regular, &format!("f{number}"), "", &[b'x'; 100]);
    }
    let bytes = builder.into_inner().unwrap();
    for limits in [Limits { entries: 5, ..Limits::default() }, Limits { bytes: 500, ..Limits::default() }] {
        let error = unpack(&*bytes, folder().path(), &limits).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }
    let to = folder();
    assert!(unpack(&bytes[..1_100], to.path(), &Limits::default()).is_err());
    for left in fs::read_dir(to.path()).unwrap() {
        assert_eq!(fs::metadata(left.unwrap().path()).unwrap().len(), 100, "a half file");
    }
}

#[test]
fn a_scan_reads_only_what_changed() {
    let from = folder();
    for number in 0..50 {
        fs::write(from.path().join(format!("f{number}")), "x").unwrap();
    }
    let rules = Rules::workspace();
    std::thread::sleep(std::time::Duration::from_millis(80));
    let first = scan(from.path(), &rules, &Cache::default()).unwrap();
    assert_eq!(first.read, 50);
    let second = scan(from.path(), &rules, &first.cache).unwrap();
    assert_eq!((second.read, &second.manifest), (0, &first.manifest));
    // The same size and, put back by hand, the same time: the change of status gives it away.
    let path = from.path().join("f7");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "y").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let third = scan(from.path(), &rules, &second.cache).unwrap();
    assert_eq!(third.read, 1);
    assert_ne!(third.manifest.get("f7"), first.manifest.get("f7"));
}
