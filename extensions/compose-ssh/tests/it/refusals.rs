//! What is refused is refused before the host has seen anything, and what is let through is shown.

use sandboxer_core::ErrorKind;
use sandboxer_core::isolation::{IsolationLevel, Outcome};
use sandboxer_core::profile::Danger;

use crate::support::{Bench, IMAGE, sh};

fn with(lines: &str) -> String {
    format!("services:\n  web:\n    image: {IMAGE}\n    command: [sleep, \"100000\"]\n{lines}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_file_leaves_nothing_and_names_its_line() {
    let Some(bench) = Bench::new() else { return };
    let extension = bench.extension();
    for (lines, kind, start) in [
        ("    privileged: true\n", ErrorKind::Refused, "compose.yaml:5: "),
        ("    volumes: [\"/var/run/docker.sock:/s\"]\n", ErrorKind::Refused, "compose.yaml:5: "),
        ("    volumes:\n      - /etc:/etc\n", ErrorKind::Refused, "compose.yaml:6: "),
        ("    network_mode: host\n", ErrorKind::Refused, "compose.yaml:5: "),
        ("    nonsense: 1\n", ErrorKind::InvalidInput, "compose.yaml:5: "),
        ("  - broken\n", ErrorKind::InvalidInput, "compose.yaml:5: "),
    ] {
        bench.file("compose.yaml", &with(lines));
        let request = bench.request("local");
        let tag = request.tag.clone();
        let error = extension.provision(request).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{lines}: {error}");
        assert!(error.to_string().starts_with(start), "{lines}: {error}");
        assert!(extension.list("local", &tag).await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_say_nothing_or_too_much_are_refused() {
    let Some(bench) = Bench::new() else { return };
    let extension = bench.extension();
    let inputs = |pairs: &[(&str, &str)]| {
        let mut request = bench.request("local");
        request.spec.inputs =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        extension.provision(request)
    };
    for pairs in [&[][..], &[("repo", "/a"), ("repo_ref", "/b")], &[("repo", "/there/is/nothing")]] {
        let error = inputs(pairs).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{pairs:?}: {error}");
        assert!(error.hint().is_some(), "{pairs:?}");
    }
    let repo = bench.repo().display().to_string();
    let error = inputs(&[("repo", &repo), ("service", "nothing")]).await.unwrap_err();
    assert_eq!(error.to_string(), "the compose file starts no service `nothing`");
}

#[tokio::test(flavor = "multi_thread")]
async fn break_glass_is_obeyed_and_shown() {
    let Some(bench) = Bench::new() else { return };
    let extension = bench.extension();
    let folder = bench.dir.path().join("outside");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("file"), "of the host\n").unwrap();
    bench.file(
        "compose.yaml",
        &with(&format!("    cap_add: [SYS_PTRACE]\n    volumes: [\"{}:/outside:ro\"]\n", folder.display())),
    );
    let mut request = bench.request("local");
    request.spec.dangerously_allow = vec![Danger::Privileged, Danger::HostPaths];
    let handle = extension.provision(request).await.unwrap();
    assert_eq!(handle.effective, IsolationLevel::Network);
    for name in ["dangerously_allow.privileged", "dangerously_allow.host_paths", "host_paths", "capabilities"]
    {
        let control = handle.controls.iter().find(|control| control.name == name).unwrap();
        assert_eq!(control.outcome, Outcome::Missing, "{control:?}");
    }
    assert_eq!(sh(&extension, &handle, "cat /outside/file").await.0, "of the host\n");
    assert!(extension.teardown("local", &handle.tag, None).await.unwrap().is_clean());
    assert!(folder.join("file").exists(), "a path of the host is not ours to remove");
}
