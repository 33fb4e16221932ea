//! Images that are not there, services that fail, engines that stop.

use std::sync::Arc;

use sandboxer_core::{ErrorKind, Extension};
use sandboxer_ext_compose_ssh::ComposeSsh;
use sandboxer_testkit::real::{dockerd::Dockerd, require};

use crate::support::{Bench, IMAGE, settings, sh};

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_inside_is_told_and_leaves_nothing() {
    let Some(bench) = Bench::new() else { return };
    let extension = bench.extension();
    for (lines, kind, words) in [
        (
            format!("    image: {IMAGE}\n    command: [sh, -c, \"echo last words; exit 3\"]\n"),
            ErrorKind::BackendFailed,
            "last words",
        ),
        (
            format!(
                "    image: {IMAGE}\n    command: [sh, -c, \"echo sick; sleep 1000\"]\n    healthcheck: {{test: [CMD, \"false\"], interval: 1s, retries: 1}}\n"
            ),
            ErrorKind::BackendFailed,
            "sick",
        ),
        (
            "    image: 127.0.0.1:9/there-is/no-such-image:1\n".to_owned(),
            ErrorKind::ImageNotFound,
            "no-such-image",
        ),
        (
            format!("    image: {IMAGE}\n    command: [there-is-no-such-program]\n"),
            ErrorKind::BackendFailed,
            "there-is-no-such-program",
        ),
    ] {
        bench.file("compose.yaml", &format!("services:\n  web:\n{lines}"));
        let request = bench.request("local");
        let tag = request.tag.clone();
        let error = extension.provision(request).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{lines}: {error:?}");
        assert!(error.chain().join(" ").contains(words), "{lines}: {error:?}");
        assert_eq!(extension.list("local", &tag).await.unwrap(), [], "{lines}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_without_network_works_and_its_image_goes() {
    let Some(bench) = Bench::new() else { return };
    let extension = bench.extension();
    bench
        .file("compose.yaml", "services:\n  web:\n    build: ./image\n    image: sandboxer-test/busybox:1\n");
    bench.file(
        "image/Dockerfile",
        &format!("FROM {IMAGE}\nRUN echo built > /built\nCMD [\"sleep\", \"100000\"]\n"),
    );
    let handle = extension.provision(bench.request("local")).await.unwrap();
    assert_eq!(sh(&extension, &handle, "cat /built").await.0, "built\n");
    assert!(extension.teardown("local", &handle.tag, None).await.unwrap().is_clean());
    let images = bench.engine.run(&[
        "image",
        "ls",
        "-q",
        "--filter",
        &format!("label=dev.sandboxer.stack={}", handle.tag),
    ]);
    assert_eq!(images.unwrap(), "");
    assert!(
        bench.engine.run(&["run", "--rm", "--network", "none", IMAGE, "cat", "/built"]).is_err(),
        "the host's own image is as it was"
    );

    bench.file("image/Dockerfile", &format!("FROM {IMAGE}\nRUN echo the last step; exit 4\n"));
    let error = extension.provision(bench.request("local")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BuildFailed, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_stops_and_comes_back() {
    let Some(bench) = Bench::new() else { return };
    let Some(engine) = require(Dockerd::start()) else { return };
    engine.import_busybox(IMAGE).unwrap();
    bench.file(
        "compose.yaml",
        &format!(
            "services:\n  web:\n    image: {IMAGE}\n    command: [sleep, \"100000\"]\n    restart: always\n"
        ),
    );
    let settings = settings(bench.dir.path(), bench.hosts.clone(), Some(engine.docker_host()));
    let extension: Arc<dyn Extension> = Arc::new(ComposeSsh::new(settings));
    assert!(extension.check("local").await.unwrap().ok);
    let handle = extension.provision(bench.request("local")).await.unwrap();
    engine.stop();
    let report = extension.check("local").await.unwrap();
    assert!(!report.ok, "{report:?}");
    assert_eq!(extension.life(&handle).await.unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(
        extension.teardown("local", &handle.tag, None).await.unwrap_err().kind(),
        ErrorKind::Unreachable
    );
    assert_eq!(extension.provision(bench.request("local")).await.unwrap_err().kind(), ErrorKind::Unreachable);
    engine.restart().unwrap();
    let report = extension.teardown("local", &handle.tag, None).await.unwrap();
    assert!(report.is_clean() && !report.removed.is_empty(), "{report:?}");
    let handle = extension.provision(bench.request("local")).await.unwrap();
    assert!(extension.teardown("local", &handle.tag, None).await.unwrap().is_clean());
}
