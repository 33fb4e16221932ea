//! Files on a real host over SSH, on this machine, and with nothing but busybox.

use std::os::unix::fs::PermissionsExt as _;

use sandboxer_core::ErrorKind;
use sandboxer_core::exec::BoxRead;
use sandboxer_core::files::FileKind;
use sandboxer_remote::{Command, Files, Remote};
use sandboxer_testkit::real::{
    require,
    sshd::{SshHost, SshHostOptions},
};
use tokio::io::AsyncReadExt as _;

fn data(bytes: impl Into<Vec<u8>>) -> BoxRead {
    Box::pin(std::io::Cursor::new(bytes.into()))
}

async fn all(mut stream: BoxRead) -> Vec<u8> {
    let mut out = Vec::new();
    stream.read_to_end(&mut out).await.unwrap();
    out
}

/// A home of which every tool is busybox's.
fn busybox() -> SshHostOptions {
    let tools = "mkdir -p /root/bin; for t in $(busybox --list); do ln -sf /bin/busybox /root/bin/$t 2>/dev/null || :; done";
    SshHostOptions {
        config: vec!["SetEnv PATH=/root/bin".into()],
        prepare: vec![tools.replace("/bin/busybox /root", "/usr/bin/busybox /root")],
        ..SshHostOptions::default()
    }
}

#[tokio::test]
async fn the_same_on_every_kind_of_host() {
    if require(SshHost::available()).is_none() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let (coreutils, busybox) = (SshHost::start("coreutils"), SshHost::start_with("busybox", busybox()));
    let small = Remote::open(&busybox.host(), state.path()).unwrap();
    let which = small.output(Command::script("command -v stat; command -v cat", [""; 0]), 100).await.unwrap();
    assert_eq!(which.text(), "/root/bin/stat\n/root/bin/cat");
    let here = tempfile::tempdir().unwrap();
    let far = Remote::open(&coreutils.host(), state.path()).unwrap();
    for (remote, root) in [
        (Remote::local(), here.path().join("root").display().to_string()),
        (far, "~/root".into()),
        (small, "~/root".into()),
    ] {
        remote
            .check(
                "making",
                Command::script(
                    "cd \"$HOME\"; case $1 in \\~/*) mkdir -p \"${1#\\~/}\";; *) mkdir \"$1\";; esac",
                    [&root],
                ),
            )
            .await
            .unwrap();
        behave(&remote.files(root)).await;
        escape(&remote).await;
    }
}

async fn behave(files: &Files) {
    let kind = |error: sandboxer_core::Error| error.kind();
    let odd = "two\nlines 'and' \"more\" $HOME ü -n *";
    for (path, size) in [("a/b/empty", 0), (odd, 10), ("-dash", 3), ("a/large", 3 << 20)] {
        let bytes: Vec<u8> = (0..=255).cycle().take(size).collect();
        files.write(path, 0o640, data(bytes.clone())).await.unwrap();
        assert!(all(files.read(path).await.unwrap()).await == bytes, "{path}");
        let info = files.stat(path).await.unwrap();
        assert_eq!(
            (info.size, info.mode.as_str(), info.kind),
            (size as u64, "0640", FileKind::File),
            "{path}"
        );
    }
    let names = |list: Vec<sandboxer_core::files::FileInfo>| {
        let mut names: Vec<_> = list.into_iter().map(|info| info.path).collect();
        names.sort();
        names
    };
    assert_eq!(names(files.list(".").await.unwrap()), ["-dash", "a", odd]);
    assert_eq!(names(files.list("/a").await.unwrap()), ["/a/b", "/a/large"]);
    assert_eq!(files.stat("a/nope").await.map_err(kind).unwrap_err(), ErrorKind::NotFound);
    assert_eq!(files.read("nope/x").await.err().map(kind), Some(ErrorKind::NotFound));
    assert_eq!(files.read("a").await.err().map(kind), Some(ErrorKind::InvalidInput));
    assert_eq!(files.delete("a", false).await.map_err(kind).unwrap_err(), ErrorKind::Conflict);
    files.rename("a", "moved/here").await.unwrap();
    files.mkdir("moved/other/deep").await.unwrap();
    assert_eq!(files.rename("-dash", "moved/here").await.map_err(kind).unwrap_err(), ErrorKind::Conflict);
    files.rename("-dash", "moved/here/large").await.unwrap();
    assert_eq!(all(files.read("moved/here/large").await.unwrap()).await, [0, 1, 2]);

    let tar = all(files.tar_out("moved").await.unwrap()).await;
    files.tar_in("copied/to", data(tar)).await.unwrap();
    assert_eq!(all(files.read("copied/to/here/large").await.unwrap()).await, [0, 1, 2]);
    assert_eq!(files.tar_out("nothing").await.err().map(kind), Some(ErrorKind::NotFound));
    assert_eq!(
        files.tar_in("x", data("no tar at all")).await.map_err(kind).unwrap_err(),
        ErrorKind::InvalidInput
    );
    for path in ["moved", "copied", odd, "x"] {
        files.delete(path, true).await.unwrap();
    }
    assert!(files.list("").await.is_err() && files.list(".").await.unwrap().is_empty());
}

/// Nothing below a root leads out of it.
async fn escape(remote: &Remote) {
    let setup = "mkdir -p ~/jail ~/prey && echo secret >~/prey/file && chmod 0777 ~/prey && ln -sfn ~/prey ~/jail/absolute && ln -sfn ../prey ~/jail/relative && ln -sfn ../prey/file ~/jail/link";
    // On this machine the home is ours; a test leaves it as it was.
    if remote.is_local() {
        return;
    }
    remote.check("setting up", Command::script(setup, [""; 0])).await.unwrap();
    let files = remote.files("~/jail");
    assert_eq!(files.stat("link").await.unwrap().link_target.as_deref(), Some("../prey/file"));
    assert_eq!(files.read("link").await.err().map(|error| error.kind()), Some(ErrorKind::Denied));
    for way in ["absolute", "relative", "..", "../prey", "./x/../../prey"] {
        let file = format!("{way}/file");
        assert!(files.read(&file).await.is_err(), "{way}");
        assert!(files.list(way).await.is_err(), "{way}");
        assert!(files.write(&format!("{way}/planted"), 0o644, data("x")).await.is_err(), "{way}");
        assert!(files.mkdir(&format!("{way}/planted")).await.is_err(), "{way}");
        assert!(files.delete(&file, true).await.is_err(), "{way}");
        assert!(files.rename(&file, "mine").await.is_err(), "{way}");
        assert!(files.tar_out(&format!("{way}/.")).await.is_err(), "{way}");
        assert!(files.tar_in(way, data(vec![0; 1024])).await.is_err(), "{way}");
    }
    // A write over a link replaces the link.
    files.write("link", 0o600, data("mine")).await.unwrap();
    let out = remote.output(Command::script("cat ~/prey/file; ls ~/prey", [""; 0]), 1000).await.unwrap();
    assert_eq!(out.text(), "secret\nfile");
}

#[tokio::test]
async fn a_full_disk_is_told_as_such() {
    if require(SshHost::available()).is_none() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let host = SshHost::start_with("small", SshHostOptions { home_mb: Some(4), ..SshHostOptions::default() });
    let remote = Remote::open(&host.host(), state.path()).unwrap();
    let files = remote.files("~");
    for size in [8 << 20, 900 << 10] {
        while let Ok(()) = files.write(&format!("filler-{size}"), 0o600, data(vec![1; size])).await {
            files.rename(&format!("filler-{size}"), &format!("kept-{size}-{}", rand())).await.unwrap();
        }
        let error = files.write("more", 0o600, data(vec![1; size])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
    }
    let left = files.list(".").await.unwrap();
    assert!(left.iter().all(|info| info.name.starts_with("kept")), "{left:?}");
}

fn rand() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
}

#[tokio::test]
async fn a_transfer_that_is_cut_publishes_nothing_and_can_be_repeated() {
    if require(SshHost::available()).is_none() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut host = SshHost::start("cut");
    let remote = Remote::open(&host.host(), state.path()).unwrap();
    let files = remote.files("~");
    files.write("target", 0o600, data("old")).await.unwrap();
    let (feed, source) = tokio::io::duplex(64 << 10);
    let write = tokio::spawn({
        let files = files.clone();
        async move { files.write("target", 0o600, Box::pin(source)).await }
    });
    let mut feed = feed;
    tokio::io::AsyncWriteExt::write_all(&mut feed, &vec![7; 2 << 20]).await.unwrap();
    host.restart();
    drop(feed);
    let error = write.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    assert_eq!(std::fs::read(host.home().join("target")).unwrap(), b"old");
    files.write("target", 0o600, data(vec![7; 2 << 20])).await.unwrap();
    assert_eq!(std::fs::metadata(host.home().join("target")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(files.stat("target").await.unwrap().size, 2 << 20);
}
