//! A sandbox's whole way on a real engine: checkpoints, ports, a mirrored folder, and an engine that goes away.

use std::path::Path;

use sandboxer_testkit::real::{self, dockerd, dockerd::Dockerd};

use crate::support::{Home, Ran, eventually};

const IMAGE: &str = "sandboxer-test/busybox";
const PROFILE: &str = "id: profile.docker-test\nversion: \"1.0.0\"\nextends: profile.docker-dev\nimage: sandboxer-test/busybox\n";

fn engine() -> Option<&'static Dockerd> {
    let engine = real::require(dockerd::shared())?;
    engine.import_busybox(IMAGE).unwrap();
    Some(engine)
}

fn home(engine: &Dockerd) -> Home {
    let home = Home::new().with("DOCKER_HOST", engine.docker_host());
    home.profile("docker-test", PROFILE);
    home
}

fn create(home: &Home) -> String {
    home.run(["create", "--profile", "profile.docker-test", "--ttl", "10m"]).ok().trim().to_owned()
}

fn sh(home: &Home, id: &str, script: &str) -> Ran {
    home.run(["exec", id, "--", "sh", "-c", script])
}

fn state(home: &Home, id: &str) -> String {
    home.run(["get", id, "--json"]).json()["state"].as_str().unwrap().to_owned()
}

/// Everything of one tag that the engine still has.
fn left(engine: &Dockerd, tag: &str) -> Vec<String> {
    let lists: [&[&str]; 3] = [
        &["ps", "--all", "--format", "{{.Names}}"],
        &["volume", "ls", "--format", "{{.Name}}"],
        &["images", "--format", "{{.Repository}}:{{.Tag}}"],
    ];
    let found = lists.iter().map(|list| engine.run(list).unwrap());
    found
        .flat_map(|list| list.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|name| name.contains(tag))
        .collect()
}

fn both(engine: &Dockerd, story: impl Fn(&Home)) {
    story(&home(engine));
    story(&home(engine).serving());
}

#[test]
fn checkpoints() {
    let Some(engine) = engine() else { return };
    both(engine, |home| {
        let id = create(home);
        sh(home, &id, "echo before > /workspace/note").ok();
        home.run(["pause", &id]).ok();
        assert_eq!(state(home, &id), "paused");
        sh(home, &id, "true").exits(4).says("sandboxer resume");
        home.run(["resume", &id]).ok();
        let snapshot = home.run(["snapshot", &id, "--name", "seeded"]).ok().trim().to_owned();
        assert!(snapshot.starts_with("snp_"), "{snapshot}");
        sh(home, &id, "echo after > /workspace/note").ok();
        let restored = home.run(["restore", &snapshot]).ok().trim().to_owned();
        assert_eq!(sh(home, &restored, "cat /workspace/note").ok(), "before\n");
        let forks = home.run(["fork", &id, "--count", "2"]).ok();
        let forks: Vec<&str> = forks.lines().collect();
        assert_eq!(forks.len(), 2, "{forks:?}");
        for (number, fork) in forks.iter().enumerate() {
            assert_eq!(sh(home, fork, "cat /workspace/note").ok(), "after\n");
            sh(home, fork, &format!("echo {number} > /workspace/note")).ok();
        }
        assert_eq!(sh(home, forks[0], "cat /workspace/note").ok(), "0\n");
        // The engine needs a fork's own snapshot for as long as the forks live; it is shown until then.
        let listed = home.run(["snapshots", "list", "--json"]).json();
        let names = listed["items"].as_array().unwrap().iter().map(|one| one["name"].to_string());
        assert_eq!(names.filter(|name| name == "\"seeded\"").count(), 1, "{listed}");
        home.run(["snapshots", "delete", &snapshot]).exits(4).says("destroy them first");
        for id in [&id[..], &restored, forks[0], forks[1]] {
            home.run(["destroy", id]).ok();
            assert_eq!(left(engine, id), Vec::<String>::new());
        }
        assert_ne!(left(engine, &snapshot), Vec::<String>::new());
        // A fork's own snapshot goes after its forks, at the next look.
        home.run(["list"]).ok();
        let label = format!("label=dev.sandboxer.tag={snapshot}");
        let of_this = engine.run(&["images", "--all", "--quiet", "--filter", &label]).unwrap();
        assert_eq!(of_this.lines().count(), 1, "{of_this}");
        eventually("no unnamed image stays", || {
            home.run(["list"]).ok();
            engine
                .run(&[
                    "images",
                    "--quiet",
                    "--filter",
                    "dangling=true",
                    "--filter",
                    "label=dev.sandboxer.tag",
                ])
                .unwrap()
                .is_empty()
        });
        home.run(["snapshots", "delete", &snapshot]).ok();
        home.run(["snapshots", "get", &snapshot]).exits(3);
        // At the next look by hand, or when the server looks by itself.
        eventually("the fork's own snapshot is gone", || {
            home.run(["list"]).ok();
            home.run(["snapshots", "list", "--json"]).json()["items"].as_array().unwrap().is_empty()
        });
        assert_eq!(left(engine, &snapshot), Vec::<String>::new());
    });
}

#[test]
fn a_mirrored_folder() {
    let Some(engine) = engine() else { return };
    let home = home(engine);
    home.file("project/a.txt", "from here\n");
    let args = [
        "create",
        "--profile",
        "profile.docker-test",
        "--workspace",
        "project",
        "--workspace-mode",
        "mirror",
    ];
    let id = home.run(args).ok().trim().to_owned();
    assert_eq!(sh(&home, &id, "cat a.txt; echo from there > b.txt").ok(), "from here\n");
    let read = |name: &str| std::fs::read_to_string(home.path().join("project").join(name)).ok();
    assert_eq!(read("b.txt").as_deref(), Some("from there\n"));
    home.file("project/a.txt", "changed here\n");
    assert_eq!(sh(&home, &id, "cat a.txt").ok(), "changed here\n");
    home.run(["destroy", &id]).ok();
    let read_only =
        ["create", "--profile", "profile.docker-test", "--workspace", "project", "--access", "ro"];
    let id = home.run(read_only).ok().trim().to_owned();
    assert_eq!(sh(&home, &id, "cat a.txt; echo x > a.txt || echo refused").ok(), "changed here\nrefused\n");
    home.run(["destroy", &id]).ok();
}

#[test]
fn an_engine_that_goes_away() {
    let Some(engine) = real::require(Dockerd::start()) else { return };
    engine.import_busybox(IMAGE).unwrap();
    let home = home(&engine);
    let id = create(&home);
    engine.stop();
    sh(&home, &id, "true").exits(7).says("docker");
    home.run(["create", "--profile", "profile.docker-test"]).exits(7);
    // The cleanup failed and says so; nothing is forgotten.
    home.run(["destroy", &id]).exits(1);
    assert_eq!(state(&home, &id), "failed");
    engine.restart().unwrap();
    home.run(["destroy", &id]).ok();
    assert_eq!(left(&engine, &id), Vec::<String>::new());
    let again = create(&home);
    assert_eq!(sh(&home, &again, "echo works").ok(), "works\n");
    home.run(["destroy", &again]).ok();
}

#[test]
fn bad_images_and_runtimes() {
    let Some(engine) = engine() else { return };
    let home = home(engine);
    home.profile("none", &PROFILE.replace("docker-test", "none").replace(IMAGE, "sandboxer-test/absent"));
    home.run(["create", "--profile", "profile.none"]).exits(3).says("sandboxer-test/absent");
    let odd = format!("{}docker: {{ runtime: warp }}\n", PROFILE.replace("docker-test", "odd"));
    home.profile("odd", &odd);
    let ran = home.run(["create", "--profile", "profile.odd"]);
    assert_ne!(ran.code, Some(0));
    ran.says("warp").says("runc");
    let mounts =
        format!("{}mounts: [{{ source: /etc, target: /mnt/etc }}]\n", PROFILE.replace("docker-test", "etc"));
    home.profile("etc", &mounts);
    home.run(["create", "--profile", "profile.etc"]).exits(5).says("/etc");
    assert!(Path::new("/etc").is_dir());
    assert_eq!(home.run(["list", "--json"]).json()["items"].as_array().unwrap().len(), 0);
}

/// With nobody left but the engine, the end of the TTL is the end of the container.
#[test]
fn a_time_to_live_that_nobody_watches() {
    let Some(engine) = engine() else { return };
    let home = home(engine);
    let id = home.run(["create", "--profile", "profile.docker-test", "--ttl", "5s"]).ok().trim().to_owned();
    assert_ne!(left(engine, &id), Vec::<String>::new());
    eventually("the container is gone", || left(engine, &id).is_empty());
    assert_eq!(state(&home, &id), "destroyed");
}
