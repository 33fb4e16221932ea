//! The whole life of a stack on this machine.

use std::time::Duration;

use sandboxer_core::isolation::Outcome;
use sandboxer_core::{ErrorKind, SnapshotId};
use tokio::io::AsyncReadExt as _;

use crate::support::{Bench, get, sh};

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_starts_serves_and_goes() {
    let Some(bench) = Bench::new() else { return };
    let extension = bench.extension();
    let mut request = bench.request("local");
    let said = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let ear = said.clone();
    request.progress =
        sandboxer_core::extension::Progress::new(move |line| ear.lock().unwrap().push(line.to_owned()));
    let handle = extension.provision(request.clone()).await.unwrap();
    let said = said.lock().unwrap().join("\n");
    assert!(said.contains("credentials: .env"), "{said}");

    let reach = extension.wait_ready(&handle).await.unwrap();
    assert_eq!(reach.method, "compose");
    assert_eq!((reach.ports[0].service.as_deref(), reach.ports[0].port), (Some("web"), 8080));
    let served = bench
        .engine
        .inside("busybox")
        .args(["wget", "-q", "-O", "-", &format!("http://{}/", reach.ports[0].address)])
        .output();
    assert_eq!(served.unwrap().stdout, b"served\n", "the address is good on the host");
    assert!(get(&extension, &handle, 8080).await.ends_with("served\n"));

    let (seen, _) =
        sh(&extension, &handle, "pwd; ls -A; cat /etc/app.conf; echo $GREETING; env | grep -c SBX_E_").await;
    assert_eq!(seen, "/workspace\n.gitignore\ncompose.yaml\nconf\nconfigured\nof the profile\n0\n");
    let (seen, _) = sh(&extension, &handle, "mv conf gone; rm -rf conf; ls conf").await;
    assert!(seen.ends_with("app.conf\n"), "a source of a mount cannot be moved away: {seen}");

    let control = |name: &str| handle.controls.iter().find(|control| control.name == name).unwrap().outcome;
    for name in [
        "namespaces",
        "unprivileged",
        "no_new_privileges",
        "host_paths",
        "memory_limit",
        "cpu_limit",
        "pids_limit",
    ] {
        assert_eq!(control(name), Outcome::Enforced, "{name}");
    }
    assert_eq!(control("capabilities"), Outcome::Degraded);
    let network =
        bench.engine.run(&["network", "inspect", "-f", "{{.Internal}}", &format!("{}_default", handle.tag)]);
    assert_eq!(network.unwrap(), "true");

    let mut logs = String::new();
    extension.backend_logs(&handle, false).await.unwrap().read_to_string(&mut logs).await.unwrap();
    assert!(logs.contains("from the seed service"), "{logs}");

    let status = extension.status(&handle).await.unwrap();
    assert!(status.alive && status.usage.is_some_and(|usage| usage.pids > Some(0)));

    let report = extension.teardown("local", &handle.tag, None).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    for kind in ["container ", "network ", "volume ", "directory "] {
        assert!(report.removed.iter().any(|what| what.starts_with(kind)), "{kind}: {report:?}");
    }
    for what in [&["ps", "-aq"][..], &["volume", "ls", "-q"]] {
        let filter = format!("label=com.docker.compose.project={}", handle.tag);
        let mut args = what.to_vec();
        args.extend(["--filter", &filter]);
        assert_eq!(bench.engine.run(&args).unwrap(), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_of_one_file_do_not_collide() {
    let Some(bench) = Bench::new() else { return };
    let extension = bench.extension();
    let (one, two) = (bench.request("local"), bench.request("local"));
    let (one, two) = tokio::join!(extension.provision(one), extension.provision(two));
    let (one, two) = (one.unwrap(), two.unwrap());
    sh(&extension, &one, "echo one > /www/index.html").await;
    assert!(get(&extension, &one, 8080).await.ends_with("one\n"));
    assert!(get(&extension, &two, 8080).await.ends_with("served\n"));
    for handle in [&one, &two] {
        assert!(extension.teardown("local", &handle.tag, Some(handle)).await.unwrap().is_clean());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_keeps_workspace_and_volumes() {
    let Some(bench) = Bench::new() else { return };
    let extension = bench.extension();
    let handle = extension.provision(bench.request("local")).await.unwrap();
    sh(&extension, &handle, "echo kept > /www/kept; chown 1000:1000 /www/kept; echo noted > note").await;
    let id = SnapshotId::generate();
    let taken = extension.snapshot(&handle, id).await.unwrap();
    assert!(taken.size_bytes > Some(0));
    sh(&extension, &handle, "echo lost > /www/kept; rm note").await;
    assert!(extension.teardown("local", &handle.tag, None).await.unwrap().is_clean());

    let mut request = bench.request("local");
    request.spec.inputs.clear();
    request.from = Some(taken.clone());
    let restored = extension.provision(request).await.unwrap();
    let (seen, _) =
        sh(&extension, &restored, "cat /www/kept note; stat -c %u /www/kept; cat /etc/app.conf").await;
    assert_eq!(seen, "kept\nnoted\n1000\nconfigured\n");
    assert!(get(&extension, &restored, 8080).await.ends_with("served\n"));
    assert!(extension.teardown("local", &restored.tag, None).await.unwrap().is_clean());

    let report = extension.snapshot_delete("local", id, None).await.unwrap();
    assert!(report.is_clean() && !report.removed.is_empty(), "{report:?}");
    let mut request = bench.request("local");
    request.from = Some(taken);
    assert_eq!(extension.provision(request).await.unwrap_err().kind(), ErrorKind::SnapshotNotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_ends_with_nobody_left() {
    let Some(bench) = Bench::new() else { return };
    let mut request = bench.request("local");
    request.expires_at = jiff::Timestamp::now() + Duration::from_secs(9);
    let tag = request.tag.clone();
    {
        let extension = bench.extension();
        let handle = extension.provision(request).await.unwrap();
        assert!(extension.life(&handle).await.unwrap().is_alive());
    }
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        if bench.extension().list("local", &tag).await.unwrap().is_empty() {
            return;
        }
    }
    panic!("{:?}", bench.extension().list("local", &tag).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_network_publishes_on_the_loopback() {
    let Some(bench) = Bench::new() else { return };
    let extension = bench.extension();
    let mut request = bench.request("local");
    request.spec.dangerously_allow = vec![sandboxer_core::profile::Danger::OpenNetwork];
    let handle = extension.provision(request).await.unwrap();
    let egress = handle.controls.iter().find(|control| control.name == "network_egress").unwrap();
    assert_eq!(egress.outcome, Outcome::Missing, "{egress:?}");
    let reach = extension.wait_ready(&handle).await.unwrap();
    let address = &reach.ports[0].address;
    assert!(address.starts_with("127.0.0.1:") && address != "127.0.0.1:80", "{address}");
    let served = bench
        .engine
        .inside("busybox")
        .args(["wget", "-q", "-O", "-", &format!("http://{address}/")])
        .output();
    assert_eq!(served.unwrap().stdout, b"served\n");
    assert!(extension.teardown("local", &handle.tag, None).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_and_a_tar_are_as_good_as_a_folder() {
    let Some(bench) = Bench::new() else { return };
    let extension = bench.extension();
    std::fs::remove_dir_all(bench.repo().join(".git")).unwrap();
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git")
            .arg("-C")
            .arg(bench.repo())
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "-q"]);
    git(&["add", "compose.yaml", "conf", ".gitignore"]);
    git(&["commit", "-q", "-m", "one"]);
    git(&["tag", "v1"]);
    bench.file("compose.yaml", "services: broken\n");
    git(&["commit", "-q", "-a", "-m", "two"]);

    let mut request = bench.request("local");
    request.spec.inputs = [("repo_ref".to_owned(), format!("{}#v1", bench.repo().display()))].into();
    let handle = extension.provision(request).await.unwrap();
    assert_eq!(sh(&extension, &handle, "ls -A").await.0, ".gitignore\ncompose.yaml\nconf\n");
    assert!(extension.teardown("local", &handle.tag, None).await.unwrap().is_clean());

    let mut request = bench.request("local");
    request.spec.inputs =
        [("repo_ref".to_owned(), format!("file://{}#nothing", bench.repo().display()))].into();
    let error = extension.provision(request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");

    bench.file("compose.yaml", crate::support::WEB);
    let tar = bench.dir.path().join("bundle.tar");
    assert!(
        std::process::Command::new("tar")
            .args(["-C"])
            .arg(bench.repo())
            .arg("-cf")
            .arg(&tar)
            .arg(".")
            .status()
            .unwrap()
            .success()
    );
    let mut request = bench.request("local");
    request.spec.inputs = [("compose_bundle_ref".to_owned(), tar.display().to_string())].into();
    let handle = extension.provision(request).await.unwrap();
    let (seen, _) = sh(&extension, &handle, "ls -A").await;
    assert!(!seen.contains(".env") && !seen.contains(".git\n") && seen.contains("compose.yaml"), "{seen}");
    assert!(extension.teardown("local", &handle.tag, None).await.unwrap().is_clean());
}
