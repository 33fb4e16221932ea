//! The programs that run in a sandbox, run here: by this machine's own tools, and by busybox, which most small images have.

#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::apply::{CHANGE, FETCH};
use super::listing::{HASH, LINKS, LIST};

struct Tools {
    name: &'static str,
    /// Of busybox, the folder with its links.
    path: Option<tempfile::TempDir>,
    shell: PathBuf,
}

fn tools() -> Vec<Tools> {
    let mut all = vec![Tools { name: "system", path: None, shell: "/bin/sh".into() }];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let installed = Command::new("busybox").args(["--install", "-s"]).arg(folder.path()).status();
    if installed.is_ok_and(|status| status.success()) {
        let shell = folder.path().join("sh");
        all.push(Tools { name: "busybox", path: Some(folder), shell });
    } else {
        assert!(std::env::var_os("CI").is_none(), "busybox is missing");
        eprintln!("skipped: there is no busybox on this machine");
    }
    all
}

impl Tools {
    fn run(&self, script: &str, argument: &str, at: &Path, input: &str) -> Vec<u8> {
        let mut command = Command::new(&self.shell);
        command.args(["-c", script, "sandboxer-sync", argument]).current_dir(at).env("LC_ALL", "C");
        if let Some(path) = &self.path {
            command.env("PATH", path.path());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the shell");
        child.stdin.take().expect("stdin").write_all(input.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}: {script}: {:?}", self.name, output.status);
        output.stdout
    }

    fn text(&self, script: &str, at: &Path, input: &str) -> String {
        String::from_utf8_lossy(&self.run(script, "", at, input)).into_owned()
    }
}

#[test]
fn a_workspace_is_listed_read_and_fetched_by_any_tools() {
    for tools in tools() {
        let at = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| at.path().join(name);
        fs::create_dir(path("sub dir")).expect("a folder");
        fs::write(path("sub dir/-n a"), "abc").expect("a file");
        fs::set_permissions(path("sub dir/-n a"), fs::Permissions::from_mode(0o755)).expect("a mode");
        symlink("sub dir/-n a", path("link ")).expect("a link");
        fs::write(path("bad\nname"), "x").expect("a file");
        let listed = tools.text(LIST, at.path(), "");
        let mut lines: Vec<&str> = listed.lines().collect();
        assert!(lines.remove(0).parse::<u64>().is_ok(), "{}: {listed}", tools.name);
        let names: Vec<&str> = lines.iter().filter_map(|line| line.splitn(6, ' ').nth(5)).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [".", "./link ", "./sub dir", "./sub dir/-n a"], "{}", tools.name);
        let file = lines.iter().find(|line| line.ends_with("-n a")).expect("the file");
        assert!(file.starts_with("81ed 3 "), "{}: {file}", tools.name);
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(tools.text(HASH, at.path(), "./sub dir/-n a\0"), format!("{hash}  ./sub dir/-n a\n"));
        assert_eq!(tools.text(LINKS, at.path(), "./link \n"), "./link \nsub dir/-n a\n");
        let tar = tools.run(FETCH, "", at.path(), "./sub dir/-n a\0./link \0");
        let mut archive = tar::Archive::new(&*tar);
        let fetched: Vec<String> = archive
            .entries()
            .expect("an archive")
            .map(|entry| entry.expect("an entry").path().expect("a name").display().to_string())
            .collect();
        assert_eq!(fetched, ["./sub dir/-n a", "./link "], "{}", tools.name);
    }
}

#[test]
fn a_workspace_is_changed_by_any_tools_and_only_where_it_is_as_it_was() {
    for tools in tools() {
        let at = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| at.path().join(name);
        let stage = ".sandboxer-tmp-1";
        for name in [
            ".sandboxer-tmp-1/new/a b ",
            ".sandboxer-tmp-1/same",
            ".sandboxer-tmp-1/changed",
            "gone/x",
            "same",
            "changed",
            "kept",
        ] {
            fs::create_dir_all(path(name).parent().expect("a folder")).expect("a folder");
            fs::write(path(name), name).expect("a file");
        }
        let stamp = |name: &str| {
            let out =
                Command::new("stat").args(["-c", "%s:%Y:%Z:%i"]).arg(path(name)).output().expect("stat");
            String::from_utf8_lossy(&out.stdout).trim().to_owned()
        };
        let orders = format!(
            "D/{}/gone/x\nR/-/gone\nD/1:1:1:1/kept\nM/-/empty/deep\nU/-/new/a b \nU/{}/same\nU/1:1:1:1/changed\n",
            stamp("gone/x"),
            stamp("same"),
        );
        let told = tools.run(CHANGE, stage, at.path(), &orders);
        assert_eq!(String::from_utf8_lossy(&told), "kept\nchanged\n", "{}", tools.name);
        assert!(!path("gone").exists() && path("empty/deep").is_dir() && !path(stage).exists());
        let read = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
        assert_eq!(read("new/a b "), ".sandboxer-tmp-1/new/a b ", "{}", tools.name);
        assert_eq!(read("same"), ".sandboxer-tmp-1/same", "{}", tools.name);
        assert_eq!((read("changed"), read("kept")), ("changed".into(), "kept".into()), "{}", tools.name);
    }
}
