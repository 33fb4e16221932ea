//! File operations and archives, with the tricks that are played on them.

use sandboxer_runtime::{Control, ErrorKind, FileKind, Mount, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{Fixture, sh, sh_root};

async fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind
}

#[tokio::test]
async fn files_are_written_read_listed_and_removed() {
    let fixture = Fixture::new();
    let launched = fixture.launch("files").await;
    let files = launched.control.files();
    let data: Vec<u8> = (0..=255_u8).cycle().take(200_001).collect();
    files.write_all("/workspace/a/b/data.bin", &data, Some(0o600), true).await.unwrap();
    assert_eq!(files.read_all("/workspace/a/b/data.bin", 1 << 20).await.unwrap(), data);
    assert_eq!(kind(files.read_all("/workspace/a/b/data.bin", 1000).await).await, ErrorKind::TooLarge);
    let mut part = Vec::new();
    let mut reader = files.read("a/b/data.bin", 10, Some(5)).await.unwrap();
    reader.read_to_end(&mut part).await.unwrap();
    reader.finish().await.unwrap();
    assert_eq!(part, &data[10..15]);
    let entry = files.stat("/workspace/a/b/data.bin").await.unwrap();
    assert_eq!((entry.kind, entry.size, entry.mode, entry.uid), (FileKind::File, 200_001, 0o600, 1000));
    files.write_all("/workspace/a/empty", b"", None, false).await.unwrap();
    files.rename("/workspace/a/empty", "/workspace/a/moved").await.unwrap();
    files.mkdir("/workspace/a/dir", false).await.unwrap();
    let names: Vec<String> =
        files.list("/workspace", 3).await.unwrap().into_iter().map(|entry| entry.path).collect();
    let expected = [
        "/workspace/a",
        "/workspace/a/b",
        "/workspace/a/b/data.bin",
        "/workspace/a/dir",
        "/workspace/a/moved",
    ];
    assert_eq!(names, expected);
    assert_eq!(kind(files.delete("/workspace/a", false).await).await, ErrorKind::Exists);
    files.delete("/workspace/a", true).await.unwrap();
    assert_eq!(kind(files.stat("/workspace/a").await).await, ErrorKind::NotFound);
    assert_eq!(files.stat("/").await.unwrap().kind, FileKind::Directory);
    fixture.end(&launched).await;
}

#[tokio::test]
async fn errors_have_their_kinds() {
    let fixture = Fixture::new();
    let launched = fixture.launch("kinds").await;
    let files = launched.control.files();
    sh(&launched.control, "mkfifo pipe; mkdir dir; touch file; ln -s /proc/self/root magic; ln -s loop loop")
        .await;
    assert_eq!(kind(files.read_all("/nothing", 1).await).await, ErrorKind::NotFound);
    assert_eq!(kind(files.read_all("dir", 1).await).await, ErrorKind::IsADirectory);
    assert_eq!(kind(files.read_all("file/x", 1).await).await, ErrorKind::NotADirectory);
    assert_eq!(kind(files.read_all("pipe", 1).await).await, ErrorKind::Io);
    assert_eq!(kind(files.read_all("/proc/self/root/etc/passwd", 9).await).await, ErrorKind::UnsafePath);
    assert_eq!(kind(files.read_all("magic/etc/passwd", 9).await).await, ErrorKind::UnsafePath);
    assert_eq!(kind(files.read_all("loop", 9).await).await, ErrorKind::UnsafePath);
    assert_eq!(kind(files.write_all("/etc/x", b"", None, false).await).await, ErrorKind::Permission);
    assert_eq!(kind(files.write_all("dir", b"", None, false).await).await, ErrorKind::IsADirectory);
    assert_eq!(kind(files.write_all("no/x", b"", None, false).await).await, ErrorKind::NotFound);
    assert_eq!(kind(files.mkdir("dir", false).await).await, ErrorKind::Exists);
    assert_eq!(kind(files.delete("..", true).await).await, ErrorKind::UnsafePath);
    assert_eq!(kind(files.read_all("a\0b", 9).await).await, ErrorKind::InvalidSpec);
    // `..` above the root stays at the root, which is the sandbox's own.
    let passwd = files.read_all("../../../../../etc/passwd", 4096).await.unwrap();
    assert!(String::from_utf8(passwd).unwrap().contains("user:x:1000"));
    // Writing through a link replaces the link, not what it leads to.
    sh_root(&launched.control, "echo secret > /root/s; chmod 644 /root/s").await;
    sh(&launched.control, "ln -s /root/s trap").await;
    files.write_all("trap", b"mine", None, false).await.unwrap();
    assert_eq!(sh_root(&launched.control, "cat /root/s").await.stdout, "secret\n");
    let root = launched.control.files().as_user("root");
    root.write_all("/etc/x", b"root", None, false).await.unwrap();
    assert_eq!(root.read_all("/etc/x", 9).await.unwrap(), b"root");
    fixture.end(&launched).await;
}

#[tokio::test]
async fn an_unfinished_write_changes_nothing() {
    let fixture = Fixture::new();
    let launched = fixture.launch("unfinished").await;
    let files = launched.control.files();
    files.write_all("keep", b"old", None, false).await.unwrap();
    let mut writer = files.write("keep", None, false).await.unwrap();
    writer.write_all(b"new and half").await.unwrap();
    drop(writer);
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(files.read_all("keep", 100).await.unwrap(), b"old");
    fixture.end(&launched).await;
}

async fn unpack(control: &Control, path: &str, archive: &[u8]) -> Result<()> {
    let mut writer = control.files().tar_in(path).await?;
    let _ = writer.write_all(archive).await;
    writer.finish().await
}

fn archive(build: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    build(&mut builder);
    builder.into_inner().unwrap()
}

/// An entry whose name the library would refuse to write.
fn raw_entry(
    builder: &mut tar::Builder<Vec<u8>>,
    name: &[u8],
    kind: tar::EntryType,
    link: &[u8],
    data: &[u8],
) {
    let mut header = tar::Header::new_old();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
    header.set_entry_type(kind);
    header.set_size(data.len() as u64);
    header.set_mode(0o6755);
    header.set_cksum();
    builder.append(&header, data).unwrap();
}

#[tokio::test]
async fn an_archive_goes_out_and_in() {
    let fixture = Fixture::new();
    let launched = fixture.launch("tar").await;
    sh(
        &launched.control,
        "mkdir -p t/d/e; echo hello > t/d/f; chmod 755 t/d/f; ln -s d/f t/link; mkfifo t/pipe",
    )
    .await;
    let mut reader = launched.control.files().tar_out("t").await.unwrap();
    let mut tar = Vec::new();
    reader.read_to_end(&mut tar).await.unwrap();
    reader.finish().await.unwrap();
    unpack(&launched.control, "/workspace/u/deep", &tar).await.unwrap();
    let script = "cd u/deep && cat link && stat -c %a d/f && test -d d/e && test ! -e pipe && echo ok";
    assert_eq!(sh(&launched.control, script).await.stdout, "hello\n755\nok\n");
    fixture.end(&launched).await;
}

#[tokio::test]
async fn bad_archives_are_refused() {
    use tar::EntryType;
    let fixture = Fixture::new();
    let launched = fixture.launch("badtar").await;
    let control = &launched.control;
    let bad: [(&[u8], EntryType, &[u8]); 6] = [
        (b"../evil", EntryType::Regular, b""),
        (b"/tmp/evil", EntryType::Regular, b""),
        (b"a/../../evil", EntryType::Regular, b""),
        (b"evil", EntryType::Link, b"../../etc/passwd"),
        (b"evil", EntryType::Link, b"/etc/passwd"),
        (b"evil", EntryType::Char, b""),
    ];
    for (name, entry, link) in bad {
        let tar = archive(|builder| raw_entry(builder, name, entry, link, b""));
        assert_eq!(
            kind(unpack(control, "x", &tar).await).await,
            ErrorKind::UnsafePath,
            "{:?}",
            String::from_utf8_lossy(name)
        );
    }
    let through_link = archive(|builder| {
        raw_entry(builder, b"d", EntryType::Symlink, b"/tmp", b"");
        raw_entry(builder, b"d/evil", EntryType::Regular, b"", b"x");
    });
    let refused = kind(unpack(control, "y", &through_link).await).await;
    assert!(matches!(refused, ErrorKind::UnsafePath | ErrorKind::NotADirectory), "{refused:?}");
    let special = archive(|builder| raw_entry(builder, b"suid", EntryType::Regular, b"", b"x"));
    unpack(control, "z", &special).await.unwrap();
    assert_eq!(sh(control, "stat -c %a z/suid; ls /tmp").await.stdout, "755\n");
    assert_eq!(kind(unpack(control, "v", &[7; 2000]).await).await, ErrorKind::InvalidSpec);
    fixture.end(&launched).await;
}

#[tokio::test]
async fn mounts_show_a_host_directory_and_nothing_blocked() {
    let fixture = Fixture::new();
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("from-host"), "hi").unwrap();
    let mount = |source: &std::path::Path, target: &str, read_only| Mount {
        source: source.into(),
        target: target.into(),
        read_only,
    };
    let mut spec = fixture.spec("mounts");
    spec.mounts = vec![
        mount(shared.path(), "/workspace/rw", false),
        mount(shared.path(), "/data/ro", true),
        mount(&shared.path().join("from-host"), "/data/file", true),
    ];
    let launched = fixture.runtime.launch(spec).await.unwrap();
    let script = "cat rw/from-host /data/ro/from-host /data/file; echo new > rw/new && stat -c %u rw/new; touch /data/ro/x; touch /data/file";
    let ran = sh(&launched.control, script).await;
    assert_eq!(ran.stdout, "hihihi1000\n", "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("Read-only").count(), 2, "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(shared.path().join("new")).unwrap(), "new\n");
    assert!(shared.path().join("from-host").exists());
    fixture.end(&launched).await;
    assert!(shared.path().join("from-host").exists(), "teardown must not follow a mount");
    std::os::unix::fs::symlink("/etc", shared.path().join("sneaky")).unwrap();
    let state = fixture.runtime.dirs().root.clone();
    let blocked =
        ["/", "/etc", "/etc/ssl", "/proc", "/root", "/var/run", "/run/docker.sock", "relative", "/root/.ssh"];
    let sneaky = shared.path().join("sneaky/ssl");
    for source in blocked.iter().map(std::path::Path::new).chain([
        sneaky.as_path(),
        state.as_path(),
        state.parent().unwrap(),
    ]) {
        let mut spec = fixture.spec("blocked");
        spec.mounts = vec![mount(source, "/workspace/x", true)];
        let error = fixture.runtime.launch(spec).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused, "{}: {error}", source.display());
    }
    for target in ["/", "/proc/x", "/usr/lib", "relative", "/workspace/../etc", "/a//b"] {
        let mut spec = fixture.spec("blocked");
        spec.mounts = vec![mount(shared.path(), target, true)];
        assert_eq!(fixture.runtime.launch(spec).await.unwrap_err().kind, ErrorKind::Refused, "{target}");
    }
}
