//! What a sandbox is allowed, read back from the engine and from inside.

use std::time::{Duration, Instant};

use sandboxer_core::ErrorKind;
use sandboxer_core::extension::Life;
use sandboxer_core::isolation::{IsolationLevel, Outcome};
use sandboxer_core::profile::Image;
use sandboxer_testkit::real::{self, dockerd::Dockerd};

use crate::common;
use crate::common::{after, engine, extension, request, run, sh, spec};

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_has_nothing_that_it_does_not_need() {
    let Some(engine) = engine() else { return };
    let docker = extension(engine);
    let mut wish = request(spec());
    wish.spec.resources.memory_mb = Some(128);
    wish.spec.resources.cpu = Some(0.5);
    wish.spec.resources.pids = Some(64);
    let hash = wish.spec.config_hash().unwrap();
    let tag = wish.tag.clone();
    let handle = docker.provision(wish).await.unwrap();

    let name = format!("sandboxer-{tag}");
    let inspected: serde_json::Value =
        serde_json::from_str(&engine.run(&["inspect", &name]).unwrap()).unwrap();
    let (host, config) = (&inspected[0]["HostConfig"], &inspected[0]["Config"]);
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
    assert!(host["CapAdd"].is_null());
    assert_eq!(host["SecurityOpt"], serde_json::json!(["no-new-privileges"]));
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["Privileged"], false);
    assert_eq!(host["Init"], true);
    assert_eq!(host["AutoRemove"], true);
    assert_eq!(host["Memory"], 128 << 20);
    assert_eq!(host["NanoCpus"], 500_000_000);
    assert_eq!(host["PidsLimit"], 64);
    assert_eq!(config["Labels"]["dev.sandboxer.tag"], tag);
    assert_eq!(config["Labels"]["dev.sandboxer.config-hash"], hash);
    assert!(config["Labels"]["dev.sandboxer.expires-at"].is_string());

    let inside = "id -u; grep -E '^(CapEff|CapBnd|CapPrm|NoNewPrivs|Seccomp):' /proc/self/status
        ls /sys/class/net; touch /etc/x 2>&1; touch /x 2>&1; echo y >/tmp/y && echo y >/workspace/y && echo writable
        kill -9 1 2>&1; kill -9 -- -1 2>/dev/null; true";
    let (seen, _) = run(&docker, &handle, sh(inside)).await;
    for expected in [
        "1000\n",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "\nlo\n",
        "touch: /etc/x: Read-only file system",
        "touch: /x: Read-only file system",
        "\nwritable",
    ] {
        assert!(seen.contains(expected), "{expected:?} is not in {seen}");
    }
    assert!(!seen.contains("eth0"), "{seen}");
    // The workload could not end the process that keeps the deadline.
    assert!(docker.life(&handle).await.unwrap().is_alive());
    let (owner, code) =
        run(&docker, &handle, sh("stat -c %u /workspace; echo 99999999999 >/run/sandboxer/deadline")).await;
    assert!(owner.starts_with("1000\n") && code != 0, "{owner}");

    for name in [
        "network",
        "capabilities",
        "no_new_privileges",
        "seccomp",
        "read_only_root",
        "memory_limit",
        "pids_limit",
        "cpu_limit",
        "namespaces",
    ] {
        let control = handle.controls.iter().find(|control| control.name == name).unwrap();
        assert_eq!(control.outcome, Outcome::Enforced, "{control:?}");
    }
    assert_eq!(handle.effective, IsolationLevel::Container);
    assert!(!handle.degraded);
    assert!(docker.teardown("local", &tag, None).await.unwrap().is_clean());
    assert_eq!(
        engine.run(&["volume", "ls", "-q", "--filter", &format!("label=dev.sandboxer.tag={tag}")]).unwrap(),
        ""
    );
}

/// gVisor gives a kernel of its own, and the same hardening. On an engine of its own: what ended is asked of its events, of
/// which it keeps the last, and other tests make many.
#[tokio::test(flavor = "multi_thread")]
async fn gvisor_is_reported_only_where_it_is() {
    let Some(engine) = real::require(Dockerd::start()) else { return };
    engine.import_busybox(common::IMAGE).unwrap();
    let docker = extension(&engine);
    let mut wish = request(spec());
    wish.spec.docker.runtime = Some("there-is-no-such-runtime".into());
    let refused = docker.provision(wish).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IsolationUnavailable);
    assert!(refused.hint().unwrap().contains("runc"), "{refused:?}");

    if !engine.run(&["info", "--format", "{{json .Runtimes}}"]).unwrap().contains("runsc") {
        real::require::<()>(Err("runsc is not installed".into()));
        return;
    }
    let mut wish = request(spec());
    wish.spec.docker.runtime = Some("runsc".into());
    let tag = wish.tag.clone();
    let handle = docker.provision(wish).await.unwrap();
    docker.wait_ready(&handle).await.unwrap();
    let gvisor = handle.controls.iter().find(|control| control.name == "gvisor").unwrap();
    assert_eq!(gvisor.outcome, Outcome::Enforced, "{gvisor:?}");
    assert_eq!(handle.effective, IsolationLevel::Container);
    let (seen, code) =
        run(&docker, &handle, sh("dmesg | head -1; id -u; echo kept >file; cat file; exit 5")).await;
    assert!(seen.contains("gVisor") && seen.ends_with("1000\nkept") && code == 5, "{seen} {code}");
    let mut slow = sh("(setsid sleep 100 &); sleep 100");
    slow.timeout = Some(sandboxer_core::Dur::from_millis(1_000));
    let (_, code) = run(&docker, &handle, slow).await;
    assert_eq!(code, 124);
    let (left, _) = run(&docker, &handle, sh("pidof sleep | wc -w")).await;
    // Only the nap of the process that keeps the deadline is left.
    assert_eq!(left, "1");
    let asked_at = jiff::Timestamp::now();
    docker.extend(&handle, after(Duration::from_secs(1))).await.unwrap();
    let end = Instant::now() + Duration::from_secs(15);
    while docker.life(&handle).await.unwrap().is_alive() {
        assert!(Instant::now() < end, "it outlives its deadline");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // The engine knows when, also after it was cleared away.
    let Life::Ended { at: Some(at) } = docker.life(&handle).await.unwrap() else { panic!("no end is told") };
    assert!((asked_at..=jiff::Timestamp::now()).contains(&at), "{at}");
    assert!(docker.teardown("local", &tag, None).await.unwrap().is_clean());
}

/// A fork bomb uses up its own limit and nothing else, and its time-out still holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_ends_at_its_time_out() {
    let Some(engine) = engine() else { return };
    let docker = extension(engine);
    let mut wish = request(spec());
    wish.spec.resources.pids = Some(50);
    let tag = wish.tag.clone();
    let handle = docker.provision(wish).await.unwrap();
    // The shell that forks ends when it cannot any more; what it made, and the command itself, go on.
    let mut bomb = sh("sleep 300 & (while :; do setsid sleep 300 & done) 2>/dev/null & wait; sleep 300");
    bomb.timeout = Some(sandboxer_core::Dur::from_secs(2));
    let start = Instant::now();
    let _ = docker.exec(&handle, bomb).await.map(common::finish).unwrap().await;
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    let (said, code) = run(&docker, &handle, sh("echo alive")).await;
    assert_eq!((said.as_str(), code), ("alive", 0));
    assert!(docker.teardown("local", &tag, None).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_file_system_is_imported_once() {
    let Some(engine) = engine() else { return };
    let docker = extension(engine);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("root.tar");
    std::fs::write(&path, sandboxer_testkit::real::dockerd::busybox_rootfs().unwrap()).unwrap();
    let mut images = Vec::new();
    for _ in 0..2 {
        let mut wish = request(spec());
        wish.spec.image = Image::RootfsTar(path.display().to_string());
        let tag = wish.tag.clone();
        let handle = docker.provision(wish).await.unwrap();
        assert_eq!(run(&docker, &handle, sh("echo from-tar")).await, ("from-tar".into(), 0));
        let running = engine.run(&["ps", "--format", "{{.Names}} {{.Image}}"]).unwrap();
        let image = running.lines().find(|line| line.contains(&tag)).unwrap().split(' ').nth(1).unwrap();
        let about = engine.run(&["inspect", "--format", "{{.Id}} {{.Created}}", image]).unwrap();
        images.push(about);
        assert!(docker.teardown("local", &tag, None).await.unwrap().is_clean());
    }
    assert_eq!(images[0], images[1]);
}

/// An image may name a user of its own, by name, and a check of its own, which does not run.
#[tokio::test(flavor = "multi_thread")]
async fn the_image_s_own_user_is_kept() {
    let Some(engine) = engine() else { return };
    let docker = extension(engine);
    engine.run(&["create", "--name", "with-user", common::IMAGE, "/bin/sh"]).unwrap();
    engine.run(&["commit", "--change", "USER sandbox", "with-user", "with-user:1"]).unwrap();
    engine.run(&["rm", "with-user"]).unwrap();
    let mut wish = request(spec());
    wish.spec.image = Image::Oci("with-user:1".into());
    let tag = wish.tag.clone();
    let handle = docker.provision(wish).await.unwrap();
    let (seen, code) =
        run(&docker, &handle, sh("id -un; touch /workspace/mine && stat -c %U /workspace")).await;
    assert_eq!((seen.as_str(), code), ("sandbox\nsandbox", 0));
    assert!(docker.teardown("local", &tag, None).await.unwrap().is_clean());
}
