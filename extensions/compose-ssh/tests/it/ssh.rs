//! The same over SSH: a host with the engine's socket, one without docker, a line that is cut.

use std::path::PathBuf;
use std::time::Duration;

use sandboxer_core::{ErrorKind, SnapshotId};
use sandboxer_testkit::real::require;
use sandboxer_testkit::real::sshd::{SshHost, SshHostOptions};

use crate::support::{Bench, get, sh, with_engine};

/// A host whose folder for stacks is where the engine finds it too: the homes of these hosts are their own.
fn host_with_folder(name: &str, bench: &Bench) -> SshHost {
    let data = bench.dir.path().join(name);
    let config = vec![format!("SetEnv XDG_DATA_HOME={}", data.display())];
    SshHost::start_with(name, SshHostOptions { config, ..SshHostOptions::default() })
}

fn folder(name: &str, bench: &Bench) -> PathBuf {
    bench.dir.path().join(name).join("sandboxer/compose")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_on_another_host() {
    let Some(bench) = Bench::new() else { return };
    if require(SshHost::available()).is_none() {
        return;
    }
    let host = host_with_folder("far", &bench);
    bench.hosts.set(with_engine(host.host(), &bench.engine.docker_host()));
    let extension = bench.extension();
    let report = extension.check("far").await.unwrap();
    assert!(report.ok, "{report:?}");
    let facts = extension.host_facts("far").await.unwrap();
    assert!(
        facts["cpu"]["count"].as_u64() > Some(0) && facts["engines"]["compose"]["version"].is_string(),
        "{facts}"
    );

    let handle = extension.provision(bench.request("far")).await.unwrap();
    assert_eq!(handle.host, "far");
    assert_eq!(sh(&extension, &handle, "cat /etc/app.conf").await.0, "configured\n");
    assert!(get(&extension, &handle, 8080).await.ends_with("served\n"));
    let here = folder("far", &bench).join(&handle.tag);
    assert!(here.join("project/compose.yaml").exists() && !here.join("project/.env").exists());

    sh(&extension, &handle, "echo kept > /www/kept").await;
    let id = SnapshotId::generate();
    let taken = extension.snapshot(&handle, id).await.unwrap();
    let mut request = bench.request("far");
    request.from = Some(taken);
    let restored = extension.provision(request).await.unwrap();
    assert_eq!(sh(&extension, &restored, "cat /www/kept").await.0, "kept\n");

    for handle in [&handle, &restored] {
        let report = extension.teardown("far", &handle.tag, None).await.unwrap();
        assert!(report.is_clean() && !report.removed.is_empty(), "{report:?}");
    }
    assert!(extension.snapshot_delete("far", id, None).await.unwrap().is_clean());
    // Other tests have stacks on the same engine.
    for tag in [&handle.tag, &restored.tag, &id.to_string()] {
        assert_eq!(extension.list("far", tag).await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_docker_and_a_host_without_an_answer() {
    let Some(bench) = Bench::new() else { return };
    if require(SshHost::available()).is_none() {
        return;
    }
    let hide = "for f in /usr/bin/docker /usr/local/bin/docker /usr/bin/docker-compose; do [ ! -e $f ] || mount --bind /dev/null $f; done";
    let mut host = SshHost::start_with(
        "bare",
        SshHostOptions { prepare: vec![hide.into()], ..SshHostOptions::default() },
    );
    bench.hosts.set(host.host());
    let extension = bench.extension();
    let report = extension.check("bare").await.unwrap();
    assert!(!report.ok, "{report:?}");
    let request = bench.request("bare");
    let tag = request.tag.clone();
    let error = extension.provision(request).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::NoBackend, "bare has no docker"));
    assert!(error.hint().is_some());
    assert_eq!(extension.list("bare", &tag).await.unwrap(), []);
    assert!(extension.teardown("bare", &tag, None).await.unwrap().is_clean());

    host.stop();
    let fresh = bench.extension();
    assert_eq!(fresh.provision(bench.request("bare")).await.unwrap_err().kind(), ErrorKind::Unreachable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_cut_during_the_transfer_leaves_what_the_tag_finds() {
    let Some(bench) = Bench::new() else { return };
    if require(SshHost::available()).is_none() {
        return;
    }
    let mut host = host_with_folder("cut", &bench);
    bench.hosts.set(with_engine(host.host(), &bench.engine.docker_host()));
    // Enough for the transfer to be still under way when the line breaks.
    let noise: Vec<u8> =
        (0..400_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(bench.repo().join("large"), noise).unwrap();
    let request = bench.request("cut");
    let tag = request.tag.clone();
    let staging = folder("cut", &bench).join(format!(".staging-{tag}/project/large"));
    let extension = bench.extension();
    let provision = tokio::spawn(async move { extension.provision(request).await });
    for _ in 0..600 {
        if staging.exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(staging.exists(), "the transfer never started");
    host.stop();
    let error = tokio::time::timeout(Duration::from_secs(90), provision).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::BackendFailed), "{error:?}");

    host.restart();
    std::fs::remove_file(bench.repo().join("large")).unwrap();
    let extension = bench.extension();
    let found = extension.list("cut", &tag).await.unwrap();
    assert!(found.len() == 1 && !found[0].alive, "{found:?}");
    let mut again = bench.request("cut");
    again.tag = tag.clone();
    let handle = extension.provision(again).await.unwrap();
    assert_eq!(sh(&extension, &handle, "cat /etc/app.conf").await.0, "configured\n");
    assert!(extension.teardown("cut", &tag, None).await.unwrap().is_clean());
    assert_eq!(extension.list("cut", &tag).await.unwrap(), []);
}
