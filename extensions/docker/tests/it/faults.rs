//! What goes wrong with an engine, and what is left of it.

use std::time::{Duration, Instant};

use crate::common::{after, extension, request, run, sh, spec};
use sandboxer_core::ErrorKind;
use sandboxer_core::profile::{Image, WorkspaceAccess};
use sandboxer_testkit::real::{self, dockerd::Dockerd};

use crate::common;

/// An engine that is stopped, and one that comes back.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_stops_is_unreachable_and_comes_back() {
    let Some(engine) = real::require(Dockerd::start()) else { return };
    engine.import_busybox(common::IMAGE).unwrap();
    let docker = extension(&engine);
    let wish = request(spec());
    let tag = wish.tag.clone();
    let handle = docker.provision(wish.clone()).await.unwrap();
    // What runs in the middle breaks off with an error, and does not hang.
    let running = docker.exec(&handle, sh("sleep 100")).await.unwrap();

    engine.stop();
    let ended = tokio::time::timeout(Duration::from_secs(20), running.control.wait()).await.unwrap();
    assert!(ended.is_err() || ended.unwrap().exit_code != 0);
    for kind in [
        docker.provision(request(spec())).await.unwrap_err().kind(),
        docker.exec(&handle, sh("true")).await.err().unwrap().kind(),
        docker.life(&handle).await.unwrap_err().kind(),
        docker.list("local", "sbx_").await.unwrap_err().kind(),
        docker.teardown("local", &tag, None).await.unwrap_err().kind(),
        extension(&engine).provision(request(spec())).await.unwrap_err().kind(),
    ] {
        assert_eq!(kind, ErrorKind::Unreachable);
    }
    let report = extension(&engine).check("local").await.unwrap();
    assert!(!report.ok && report.items[0].hint.is_some(), "{report:?}");

    engine.restart().unwrap();
    // The container went with the engine; the same request makes a new one under its tag.
    assert!(!docker.life(&handle).await.unwrap().is_alive());
    let again = docker.provision(wish).await.unwrap();
    assert_eq!(run(&docker, &again, sh("echo back")).await, ("back".into(), 0));
    assert!(docker.teardown("local", &tag, None).await.unwrap().is_clean());
    assert!(docker.list("local", "").await.unwrap().is_empty());
    assert_eq!(engine.run(&["volume", "ls", "-q"]).unwrap(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_cannot_be_used_are_typed_and_leave_nothing() {
    let Some(engine) = common::engine() else { return };
    let docker = extension(engine);
    let mut wish = request(spec());
    wish.spec.image = Image::Oci("localhost:1/there-is-no-such-image:1".into());
    let missing = docker.provision(wish.clone()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::ImageNotFound, "{missing:?}");
    assert!(missing.hint().unwrap().contains("docker pull"), "{missing:?}");

    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    header.set_mode(0o644);
    tar.append_data(&mut header, "file", &b"x\n"[..]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.tar");
    std::fs::write(&path, tar.into_inner().unwrap()).unwrap();
    let mut shell_less = request(spec());
    shell_less.spec.image = Image::RootfsTar(path.display().to_string());
    let refused = docker.provision(shell_less.clone()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused:?}");
    assert!(refused.hint().unwrap().contains("/bin/sh"), "{refused:?}");

    wish.spec.image = Image::RootfsTar("/there/is/no/such.tar".into());
    assert_eq!(docker.provision(wish.clone()).await.unwrap_err().kind(), ErrorKind::ImageNotFound);
    for tag in [&wish.tag, &shell_less.tag] {
        assert!(docker.list("local", tag).await.unwrap().is_empty());
    }
}

/// A read-only workspace is filled by a helper first; a crash in between leaves one that is found.
#[tokio::test(flavor = "multi_thread")]
async fn helpers_are_found_and_removed() {
    let Some(engine) = common::engine() else { return };
    let docker = extension(engine);
    let folder = tempfile::tempdir().unwrap();
    let seed = folder.path().join("seed.tar");
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o644);
    tar.append_data(&mut header, "deep/file", &b"seed"[..]).unwrap();
    std::fs::write(&seed, tar.into_inner().unwrap()).unwrap();
    let mut wish = request(spec());
    wish.seed = Some(seed);
    wish.spec.workspace.access = WorkspaceAccess::Ro;
    let tag = wish.tag.clone();
    let helper = format!("sandboxer-{tag}-seed");
    let label = format!("dev.sandboxer.tag={tag}");
    engine.run(&["create", "--name", &helper, "--label", &label, "-v", "/workspace", common::IMAGE]).unwrap();
    let found = docker.list("local", &tag).await.unwrap();
    assert_eq!(found.len(), 1);
    assert!(!found[0].alive && found[0].parts == [format!("container {helper}")], "{found:?}");

    let handle = docker.provision(wish).await.unwrap();
    assert_eq!(run(&docker, &handle, sh("cat deep/file; touch x 2>/dev/null || echo no")).await.0, "seedno");
    let found = docker.list("local", &tag).await.unwrap();
    assert!(found[0].alive && !found[0].parts.iter().any(|part| part.contains("-seed")), "{found:?}");
    assert!(docker.teardown("local", &tag, None).await.unwrap().is_clean());
    assert!(docker.list("local", &tag).await.unwrap().is_empty());
}

/// A paused sandbox ends on time like any other, and the engine removes its volume.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_sandbox_still_ends() {
    let Some(engine) = common::engine() else { return };
    let docker = extension(engine);
    let mut wish = request(spec());
    wish.expires_at = after(Duration::from_secs(8));
    let tag = wish.tag.clone();
    let handle = docker.provision(wish).await.unwrap();
    let _running = docker.exec(&handle, sh("while :; do sleep 1; done")).await.unwrap();
    docker.pause(&handle).await.unwrap();
    let end = Instant::now() + Duration::from_secs(25);
    while !docker.list("local", &tag).await.unwrap().is_empty() {
        assert!(Instant::now() < end, "it is still there");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_command_is_ended_at_its_time_out() {
    let Some(engine) = common::engine() else { return };
    let docker = extension(engine);
    let wish = request(spec());
    let tag = wish.tag.clone();
    let handle = docker.provision(wish).await.unwrap();
    let mut slow = sh("echo begun; (setsid sleep 200 &); sleep 200");
    slow.timeout = Some(sandboxer_core::Dur::from_secs(1));
    let id = slow.exec_id;
    docker.exec_background(&handle, slow).await.unwrap();
    let end = Instant::now() + Duration::from_secs(15);
    loop {
        let info =
            docker.exec_list(&handle).await.unwrap().into_iter().find(|info| info.exec_id == id).unwrap();
        if let Some(outcome) = info.outcome {
            assert!(outcome.timed_out && outcome.exit_code == 124 && info.ended_at.is_some(), "{info:?}");
            break;
        }
        assert!(Instant::now() < end, "{info:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Only the nap of the process that keeps the deadline is left.
    assert_eq!(run(&docker, &handle, sh("pidof sleep | wc -w")).await.0, "1");
    assert!(docker.teardown("local", &tag, None).await.unwrap().is_clean());
}
