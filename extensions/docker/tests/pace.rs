//! How long a create to the first command takes next to the docker command line with the same hardening.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Instant;

use common::{engine, extension, request, run, sh, spec};

/// The same container and command by the engine's own tool.
fn by_hand(engine: &sandboxer_testkit::real::dockerd::Dockerd, name: &str) {
    let hardened = "run -d --rm --init --network none --cap-drop ALL --security-opt no-new-privileges --read-only \
        --tmpfs /tmp --tmpfs /var/tmp --tmpfs /run --memory 2g --memory-swap 2g --cpus 2 --pids-limit 512 --user 0:0 \
        --ulimit core=0 --cgroupns private --ipc private -v /workspace --name";
    let mut args: Vec<&str> = hardened.split_whitespace().collect();
    args.extend([name, common::IMAGE, "sleep", "100"]);
    engine.run(&args).unwrap();
    engine.run(&["exec", "--user", "1000:1000", "--workdir", "/workspace", name, "true"]).unwrap();
}

/// Measured by `make bench`; here only that nobody makes it many times slower.
#[tokio::test(flavor = "multi_thread")]
async fn a_create_and_a_first_command_keep_pace_with_the_command_line() {
    let Some(engine) = engine() else { return };
    let docker = extension(engine);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..4 {
        let name = format!("by-hand-{round}");
        let start = Instant::now();
        by_hand(engine, &name);
        theirs.push(start.elapsed());
        engine.run(&["rm", "--force", "--volumes", &name]).unwrap();

        let wish = request(spec());
        let tag = wish.tag.clone();
        let start = Instant::now();
        let handle = docker.provision(wish).await.unwrap();
        docker.wait_ready(&handle).await.unwrap();
        assert_eq!(run(&docker, &handle, sh("true")).await.1, 0);
        ours.push(start.elapsed());
        assert!(docker.teardown("local", &tag, None).await.unwrap().is_clean());
    }
    ours.sort();
    theirs.sort();
    #[allow(clippy::print_stderr, reason = "the figures are what somebody runs this for")]
    {
        eprintln!("ours {ours:?}, the command line {theirs:?}");
    }
    assert!(ours[0] < theirs[0] * 2, "ours {ours:?}, the command line {theirs:?}");
}
