//! Workspaces with a source: seeded, mirrored, read-only, refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use crate::support::{Home, Ran};

/// A home with a small project in it.
struct Project {
    home: Home,
    folder: PathBuf,
}

impl Project {
    fn new(home: Home) -> Self {
        let folder = home.path().join("project");
        home.file("project/README", "hello\n");
        home.file("project/src/main.sh", "#!/bin/sh\necho main\n");
        fs::set_permissions(folder.join("src/main.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        Self { home, folder }
    }

    fn write(&self, name: &str, text: &str) {
        self.home.file(&format!("project/{name}"), text);
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(name)).ok()
    }

    fn create<const N: usize>(&self, args: [&str; N]) -> Ran {
        let mut command = self.home.command([
            "create",
            "--profile",
            "profile.agent-dev",
            "--ttl",
            "5m",
            "--workspace",
            "project",
        ]);
        Ran::of(command.args(args).output().unwrap())
    }

    fn mirror(&self) -> String {
        self.create(["--workspace-mode", "mirror"]).ok().trim().to_owned()
    }

    fn sh(&self, id: &str, script: &str) -> Ran {
        self.home.run(["exec", id, "--", "sh", "-c", script])
    }
}

/// Every story is told twice: on the local store, and through a server.
fn both(story: impl Fn(Project)) {
    story(Project::new(Home::new()));
    story(Project::new(Home::served()));
}

#[test]
fn a_source_is_seeded_once_and_brought_out_on_demand() {
    both(|project| {
        project.write(".gitignore", "target/\n");
        project.write("target/big", "not needed");
        project.write(".env", "TOKEN=secret");
        symlink("/etc/passwd", project.folder.join("outside")).unwrap();
        symlink("README", project.folder.join("inside")).unwrap();
        let id = project.create(["--workspace-mode", "remote-canonical"]).ok().trim().to_owned();
        let seen = project.sh(&id, "find . | sort; cat inside; ./src/main.sh; id -u; stat -c %u README").ok();
        let uid = seen.lines().rev().nth(1).unwrap().to_owned();
        assert_eq!(
            seen,
            format!(".\n./.gitignore\n./README\n./inside\n./src\n./src/main.sh\nhello\nmain\n{uid}\n{uid}\n")
        );
        // The original is inside now: nothing comes back by itself.
        project.sh(&id, "echo new > result; rm README; ln -s /etc/passwd evil; mkfifo pipe").ok();
        assert!(project.read("result").is_none() && project.read("README").is_some());
        project.home.run(["sync", &id]).exits(4).says("is not a mirror");
        project.home.run(["sync", &id, "--down", "out"]).ok();
        let out = project.home.path().join("out");
        assert_eq!(fs::read_to_string(out.join("result")).unwrap(), "new\n");
        assert!(out.join("src/main.sh").metadata().unwrap().permissions().mode() & 0o100 != 0);
        assert!(fs::symlink_metadata(out.join("evil")).is_err() && !out.join("pipe").exists());
        assert!(!project.home.state().join("staging").join(format!("{id}.tar")).exists());
    });
}

#[test]
fn a_mirror_follows_both_sides_around_each_command() {
    both(|project| {
        project.write(".gitignore", "target/\n");
        let id = project.mirror();
        project.write("src/new here.txt", "from outside\n");
        fs::remove_file(project.folder.join("README")).unwrap();
        let seen = project.sh(&id, "cat 'src/new here.txt'; ls; echo made > inside.txt; chmod +x inside.txt; mkdir empty target; echo big > target/big; ln -s src/main.sh link");
        assert_eq!(seen.ok(), "from outside\nsrc\n");
        assert_eq!(project.read("inside.txt").as_deref(), Some("made\n"));
        assert!(project.folder.join("inside.txt").metadata().unwrap().permissions().mode() & 0o100 != 0);
        assert!(project.folder.join("empty").is_dir());
        assert_eq!(fs::read_link(project.folder.join("link")).unwrap(), PathBuf::from("src/main.sh"));
        assert!(!project.folder.join("target").exists());
        project.sh(&id, "cat target/big; rm -r src link; echo more >> inside.txt").ok();
        assert!(!project.folder.join("src").exists() && !project.folder.join("link").exists());
        assert_eq!(project.read("inside.txt").as_deref(), Some("made\nmore\n"));
        let report = project.home.run(["sync", &id, "--json"]).exits(0).json();
        for part in ["uploaded", "downloaded", "deleted_local", "deleted_in_sandbox"] {
            assert_eq!(report[part]["count"], 0, "{report}");
        }
    });
}

#[test]
fn a_conflict_is_told_and_touches_neither_side() {
    both(|project| {
        let id = project.mirror();
        // A background command changes the file while nobody syncs; then somebody outside does, too.
        project.sh(&id, "true").ok();
        project.home.run(["exec", &id, "--background", "--", "sh", "-c", "echo inside > README"]).ok();
        crate::support::eventually("the change inside", || {
            project.home.run(["cp", &format!("{id}:README"), "-"]).ok() == "inside\n"
        });
        project.write("README", "outside\n");
        let dry = project.home.run(["sync", &id, "--dry-run", "--json"]).exits(4).json();
        assert_eq!(dry["conflicts"][0]["path"], "README");
        let report = project.home.run(["sync", &id, "--json"]).exits(4).json();
        assert_eq!(report["conflicts"][0]["local"], "modified");
        assert_eq!(report["conflicts"][0]["sandbox"], "modified");
        let kept = report["conflicts"][0]["kept"].as_str().unwrap();
        assert_eq!(fs::read_to_string(kept).unwrap(), "inside\n");
        // Commands go on; the conflict stays until somebody decides.
        assert_eq!(project.sh(&id, "cat README").ok(), "inside\n");
        assert_eq!(project.read("README").as_deref(), Some("outside\n"));
        let events = project.home.run(["events", &id, "--json"]).ok();
        assert_eq!(events.matches("dev.sandboxer.sandbox.workspace_conflict").count(), 1, "{events}");
        project.home.run(["sync", &id, "--prefer", "local"]).ok();
        assert_eq!(project.sh(&id, "cat README").ok(), "outside\n");
        project.home.run(["sync", &id]).exits(0);
    });
}

#[test]
fn a_conflict_can_be_decided_for_the_sandbox() {
    let project = Project::new(Home::new());
    let id = project.mirror();
    project.home.run(["exec", &id, "--background", "--", "sh", "-c", "rm README"]).ok();
    crate::support::eventually("the change inside", || {
        project.home.run(["cp", &format!("{id}:README"), "-"]).code == Some(3)
    });
    project.write("README", "outside\n");
    project.home.run(["sync", &id]).exits(4).says("modified here and deleted in the sandbox");
    project.home.run(["sync", &id, "--prefer", "sandbox"]).ok();
    assert_eq!(project.read("README"), None);
}

#[test]
fn what_git_would_run_and_what_leads_out_is_not_brought_down() {
    both(|project| {
        project.write(".git/config", "[core]\n");
        project.write(".git/HEAD", "ref: refs/heads/main\n");
        project.write(".git/hooks/post-commit", "#!/bin/sh\n");
        let id = project.mirror();
        let harm = "ls .git; echo '[core] fsmonitor = evil' > .git/config; mkdir -p .git/hooks sub/.git/hooks; \
            echo evil > .git/hooks/pre-commit; echo evil > sub/.git/hooks/pre-commit; echo evil > sub/.git/config; \
            echo changed > .git/HEAD; mkdir other; echo gitdir: ../evil > other/.git; ln -s /etc/passwd escape; ln -s ../../up up; mkfifo pipe; echo x > 'new\nline'";
        assert_eq!(project.sh(&id, harm).ok(), "HEAD\nconfig\n");
        assert_eq!(project.read(".git/config").as_deref(), Some("[core]\n"));
        assert_eq!(project.read(".git/HEAD").as_deref(), Some("changed\n"));
        assert_eq!(project.read(".git/hooks/post-commit").as_deref(), Some("#!/bin/sh\n"));
        for name in [
            ".git/hooks/pre-commit",
            "sub/.git/hooks/pre-commit",
            "sub/.git/config",
            "other/.git",
            "escape",
            "up",
            "pipe",
        ] {
            assert!(fs::symlink_metadata(project.folder.join(name)).is_err(), "{name} came down");
        }
        let report = project.home.run(["sync", &id, "--json"]).exits(0).json();
        assert_eq!(report["left_out"].as_array().unwrap().len(), 2, "{report}");
    });
}

#[test]
fn nobody_writes_a_read_only_workspace() {
    both(|project| {
        let id = project.create(["--access", "ro"]).ok().trim().to_owned();
        let shown = project.home.run(["get", &id, "--json"]).exits(0).json();
        assert_eq!(shown["workspace"]["access"], "ro");
        assert_eq!(project.sh(&id, "cat README; ./src/main.sh").ok(), "hello\nmain\n");
        // A sandbox that an ordinary user made has no root inside.
        let users = if rustix::process::geteuid().is_root() { &["user", "root"][..] } else { &["user"] };
        for user in users {
            let tries = "touch x; echo x > README; rm -f README; mkdir d; mv src s; chmod 777 .; mount -o remount,rw /workspace; \
                umount /workspace; cat README; ls -A";
            let ran = project.home.run(["exec", &id, "--user", user, "--", "sh", "-c", tries]);
            assert_eq!(ran.ok(), "hello\nREADME\nsrc\n", "as {user}");
        }
        let put = project.home.file("x", "x");
        let put = project.home.run(["cp", put.to_str().unwrap(), &format!("{id}:/workspace/x")]);
        assert_ne!(put.code, Some(0));
        // Elsewhere it can write as ever.
        project.sh(&id, "touch /tmp/x ~/y").ok();
    });
}

#[test]
fn a_source_that_may_not_be_one_is_refused_before_anything_is_made() {
    both(|project| {
        project.create(["--access", "none"]).exits(2).says("`access: none` gives no workspace");
        let source = |folder: &str| project.home.run(["create", "--workspace", folder]);
        source("/etc").exits(5).says("is the system's");
        source("/").exits(5);
        source("state").exits(5).says("our own state");
        source(".").exits(5);
        source("missing").exits(3).says("no such folder");
        source("project/README").exits(2).says("not a folder");
        fs::create_dir(project.home.path().join(".ssh")).unwrap();
        symlink(project.home.path().join(".ssh"), project.home.path().join("innocent")).unwrap();
        source("innocent").exits(5).says("credentials");
        assert_eq!(
            project.home.run(["list", "--all", "--json"]).json()["items"].as_array().unwrap().len(),
            0
        );
    });
}

#[test]
fn only_an_operators_key_may_name_a_folder_of_the_server() {
    let project = Project::new(Home::served());
    for (actor, code) in [("agt", 5), ("atm", 5), ("adm", 0)] {
        // On the server's machine, without the server.
        let mut keys = project.home.bare();
        keys.args(["keys", "create", "--name", actor, "--actor", actor, "--json"]);
        let key = Ran::of(keys.output().unwrap()).exits(0).json();
        let mut command = project.home.command(["create", "--workspace", "project"]);
        command.env("SANDBOXER_API_KEY", key["secret"].as_str().unwrap());
        let ran = Ran::of(command.output().unwrap()).exits(code);
        if code != 0 {
            ran.says("only an operator");
        }
    }
}

#[test]
fn a_destroy_brings_the_last_changes_down() {
    both(|project| {
        let id = project.mirror();
        project
            .home
            .run(["exec", &id, "--background", "--", "sh", "-c", "sleep 0.2; echo late > late.txt"])
            .ok();
        crate::support::eventually("the change inside", || {
            project.home.run(["cp", &format!("{id}:late.txt"), "-"]).code == Some(0)
        });
        project.home.run(["destroy", &id]).ok();
        assert_eq!(project.read("late.txt").as_deref(), Some("late\n"));
        assert!(!project.home.state().join("mirrors").join(&id).exists());
    });
}

#[test]
fn what_cannot_be_brought_down_at_the_end_is_kept() {
    let project = Project::new(Home::new());
    let id = project.mirror();
    project.home.run(["exec", &id, "--background", "--", "sh", "-c", "echo work > work.txt"]).ok();
    crate::support::eventually("the change inside", || {
        project.home.run(["cp", &format!("{id}:work.txt"), "-"]).code == Some(0)
    });
    fs::remove_dir_all(&project.folder).unwrap();
    project.home.run(["exec", &id, "--", "true"]).exits(3).says("could not be brought up to date");
    project.home.run(["destroy", &id]).ok();
    let kept = project.home.state().join("mirrors").join(&id).join("workspace.tar");
    let mut archive = tar::Archive::new(fs::File::open(kept).unwrap());
    let names: Vec<_> =
        archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
    assert!(names.iter().any(|name| name.ends_with("work.txt")), "{names:?}");
    let events = project.home.run(["events", &id, "--json"]).ok();
    assert!(events.contains("sandbox.workspace_not_synced"), "{events}");
}

/// kill -9 in the middle of a sync: both sides hold whole files, and the next sync finishes what was begun.
#[test]
fn a_killed_sync_leaves_whole_files_and_the_next_one_finishes() {
    let project = Project::new(Home::new());
    let id = project.mirror();
    project.sh(&id, "true").ok();
    let (old, new) = ("old".repeat(20_000), "new".repeat(20_000));
    for round in 0..6_u64 {
        let text = if round % 2 == 0 { &new } else { &old };
        for number in 0..40 {
            project.write(&format!("up/{number}"), text);
        }
        let down = format!(
            "mkdir -p down; for n in $(seq 40); do yes {} | head -c 60000 > down/$n; done",
            &text[..3]
        );
        project
            .home
            .run(["exec", &id, "--background", "--", "sh", "-c", &format!("{down}; touch /tmp/done{round}")])
            .ok();
        crate::support::eventually("the change inside", || {
            project.home.run(["cp", &format!("{id}:/tmp/done{round}"), "-"]).code == Some(0)
        });
        let mut sync = project.home.command(["sync", &id]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(15 + 25 * round));
        let _ = sync.kill();
        sync.wait().unwrap();
        for entry in fs::read_dir(project.folder.join("down")).into_iter().flatten().flatten() {
            let is_ours = entry.file_name().to_string_lossy().starts_with(".sandboxer-tmp-");
            assert!(is_ours || entry.metadata().unwrap().len() == 60_000, "{entry:?} is half");
        }
        project.home.run(["sync", &id]).exits(0);
        let check =
            "for f in up/* down/*; do stat -c %s $f; done | sort | uniq -c; ls -A | grep -c sandboxer";
        let seen = project.sh(&id, check).exits(1);
        assert_eq!(String::from_utf8_lossy(&seen.stdout).trim(), "80 60000\n0");
        assert_eq!(project.read("up/7").as_deref(), Some(text.as_str()));
        let inside = project.sh(&id, "cat up/7").ok();
        assert_eq!(&inside, text);
        let names = fs::read_dir(project.folder.join("down")).unwrap();
        assert_eq!(names.count(), 40, "something of ours is left");
    }
}
