//! `cp`: files, folders, streams, and the rules for destinations.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::support::{Home, noise};

fn both(test: impl Fn(Home)) {
    test(Home::new());
    test(Home::served());
}

#[test]
fn a_file_there_and_back_unchanged() {
    both(|home| {
        let id = home.create();
        let data = noise(10 << 20);
        let local = home.file("data.bin", &data);
        fs::set_permissions(&local, fs::Permissions::from_mode(0o750)).unwrap();
        home.run(["cp", "data.bin", &format!("{id}:/tmp/copy.bin")]).ok();
        assert_eq!(
            home.run(["exec", &id, "--", "stat", "-c", "%a %s", "/tmp/copy.bin"]).ok(),
            "750 10485760\n"
        );
        home.run(["cp", &format!("{id}:/tmp/copy.bin"), "back.bin"]).ok();
        let back = home.path().join("back.bin");
        assert!(fs::read(&back).unwrap() == data);
        assert_eq!(fs::metadata(&back).unwrap().permissions().mode() & 0o777, 0o750);
        assert!(home.run(["cp", &format!("{id}:/tmp/copy.bin"), "-"]).stdout == data);
    });
}

#[test]
fn destinations_follow_docker() {
    both(|home| {
        let id = home.create();
        let at = |path: &str| format!("{id}:{path}");
        let list = |path: &str| {
            home.run(["exec", &id, "--", "sh", "-c", &format!("cd {path} && find . | sort | tr '\\n' ' '")])
                .ok()
        };
        home.file("tree/a.txt", "a");
        home.file("tree/sub/b.txt", "b");
        symlink("a.txt", home.path().join("tree/link")).unwrap();

        home.run(["cp", "tree", &at("/tmp/new")]).ok();
        assert_eq!(list("/tmp/new"), ". ./a.txt ./link ./sub ./sub/b.txt ");
        home.run(["cp", "tree", &at("/tmp/new")]).ok();
        assert!(list("/tmp/new").contains("./tree/sub/b.txt"), "a folder that exists gets it inside");
        home.run(["cp", "tree/.", &at("/tmp/flat")]).ok();
        home.run(["cp", "tree/.", &at("/tmp/flat")]).ok();
        assert_eq!(list("/tmp/flat"), ". ./a.txt ./link ./sub ./sub/b.txt ");
        home.run(["cp", "tree/a.txt", &at("/tmp/flat")]).ok();
        home.run(["cp", "tree/a.txt", &at("/tmp/flat/renamed")]).ok();
        assert_eq!(home.run(["cp", &at("/tmp/flat/renamed"), "-"]).ok(), "a");
        home.run(["cp", "tree", &at("/tmp/flat/a.txt")]).exits(4).says("is not a folder");

        home.run(["cp", &at("/tmp/flat"), "out"]).ok();
        assert_eq!(fs::read_to_string(home.path().join("out/sub/b.txt")).unwrap(), "b");
        assert_eq!(fs::read_link(home.path().join("out/link")).unwrap().to_str(), Some("a.txt"));
        home.run(["cp", &at("/tmp/flat"), "out"]).ok();
        assert!(home.path().join("out/flat/a.txt").exists());
        home.run(["cp", &at("/tmp/flat/."), "out2"]).ok();
        home.run(["cp", &at("/tmp/flat/a.txt"), "out2"]).ok();
        assert_eq!(fs::read_to_string(home.path().join("out2/a.txt")).unwrap(), "a");
        home.run(["cp", &at("/tmp/flat"), "out/a.txt"]).exits(4);
    });
}

#[test]
fn streams_are_files_or_archives() {
    both(|home| {
        let id = home.create();
        assert_eq!(home.feed(["cp", "-", &format!("{id}:/tmp/from-stdin")], b"bytes\xff").code, Some(0));
        assert_eq!(home.run(["cp", &format!("{id}:/tmp/from-stdin"), "-"]).stdout, b"bytes\xff");
        home.run([
            "exec",
            &id,
            "--",
            "sh",
            "-c",
            "mkdir -p /tmp/d/e && echo x > /tmp/d/e/f && mkdir /tmp/d2",
        ])
        .ok();
        let tar = home.run(["cp", &format!("{id}:/tmp/d"), "-"]).exits(0).stdout;
        assert_eq!(home.feed(["cp", "-", &format!("{id}:/tmp/d2")], &tar).code, Some(0));
        assert_eq!(home.run(["exec", &id, "--", "cat", "/tmp/d2/e/f"]).ok(), "x\n");
    });
}

#[test]
fn between_sandboxes() {
    both(|home| {
        let (one, two) = (home.create(), home.create());
        home.run(["exec", &one, "--", "sh", "-c", "mkdir /tmp/d && echo x > /tmp/d/f && chmod 700 /tmp/d/f"])
            .ok();
        home.run(["cp", &format!("{one}:/tmp/d"), &format!("{two}:/tmp/copy")]).ok();
        home.run(["cp", &format!("{one}:/tmp/d/f"), &format!("{two}:/tmp/")]).ok();
        assert_eq!(
            home.run(["exec", &two, "--", "stat", "-c", "%a", "/tmp/copy/f", "/tmp/f"]).ok(),
            "700\n700\n"
        );
    });
}

#[test]
fn links_cannot_lead_out() {
    both(|home| {
        let id = home.create();
        let secret = home.file("secret", "mine");
        let script = format!(
            "mkdir /tmp/d && ln -s {} /tmp/d/leak && ln -s ../../x /tmp/d/up && echo ok > /tmp/d/fine",
            secret.display()
        );
        home.run(["exec", &id, "--", "sh", "-c", &script]).ok();
        home.run(["cp", &format!("{id}:/tmp/d"), "out"]).exits(1).says("left out leak");
        assert!(!home.path().join("out/leak").exists() && !home.path().join("out/up").is_symlink());
        assert_eq!(fs::read_to_string(home.path().join("out/fine")).unwrap(), "ok\n");
        // Inside, a link is resolved inside: never to a file of this machine.
        let leaked = home.run(["cp", &format!("{id}:/tmp/d/leak"), "-"]);
        assert!(leaked.code != Some(0) && leaked.stdout.is_empty(), "{leaked:?}");
    });
}

#[test]
fn mistakes_are_told_apart() {
    both(|home| {
        let id = home.create();
        home.file("here", "x");
        home.run(["cp", "here", "there"]).exits(2).says("ID:path");
        home.run(["cp", "missing", &format!("{id}:/tmp/x")]).exits(3);
        home.run(["cp", &format!("{id}:/no/such"), "x"]).exits(3);
        home.run(["cp", "here", "sbx_nonsense:/x"]).exits(3);
        home.run(["cp", "here", "sbx_00000000000000000000000000:/x"]).exits(3);
        home.run(["cp", &format!("{id}:/etc/passwd"), "no/such/folder/x"]).exits(3);
        let told = home.run(["cp", "--json", "here", &format!("{id}:/tmp/x")]).json();
        assert_eq!((&told["bytes"], &told["entries"]), (&1.into(), &1.into()));
    });
}
