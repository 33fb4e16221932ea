//! The pages of `docs/integrations`, run as they stand against a real server with real backends.

use std::process::Command;

use sandboxer_testkit::real::{self, dockerd::Dockerd};

use crate::support::Home;

/// Runs every block of shell of a page, one after the other, and gives what they printed.
fn run_page(page: &str, home: &Home) -> String {
    let file = format!("{}/../../docs/integrations/{page}.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).unwrap();
    let blocks: String =
        text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.contains("curl "), "{file} has no example");
    let script = blocks
        .replace("http://127.0.0.1:8377", home.server_url())
        .replace("curl ", "curl --noproxy '*' --fail-with-body ");
    let mut shell = Command::new("bash");
    shell.args(["-euxo", "pipefail", "-c", &script]).current_dir(home.path());
    let output = shell.output().expect("bash");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let kept = std::fs::read_to_string(home.path().join("stack.json")).unwrap_or_default();
    assert!(output.status.success(), "{page}: {out}\n{err}\n{kept}");
    out.into_owned()
}

#[test]
fn glas_harness() {
    let home = Home::served();
    let out = run_page("glas-harness", &home);
    assert!(out.starts_with("ready\ncontainer\n"), "{out}");
    assert!(out.contains("dev.sandboxer.sandbox.ready"), "{out}");
    assert!(out.ends_with("destroyed\ndestroyed\n"), "{out}");
    assert_eq!(home.run(["list", "--json"]).json()["items"].as_array().unwrap().len(), 0);
}

#[test]
fn snuggle_inventor() {
    let home = Home::served();
    let out = run_page("snuggle-inventor", &home);
    assert!(
        out.contains("code 7") && out.contains("int main(void)") && out.ends_with("destroyed\n"),
        "{out}"
    );
}

#[test]
fn wise_validator() {
    let Some(engine) = real::require(Dockerd::start()) else { return };
    engine.import_busybox("sandboxer-test/busybox").unwrap();
    let home = Home::new().with("DOCKER_HOST", engine.docker_host()).serving();
    let out = run_page("wise-validator", &home);
    assert!(out.contains("open for business") && out.contains("\"extension\": \"ext.compose-ssh\""), "{out}");
    assert_eq!(engine.run(&["ps", "--all", "--quiet"]).unwrap(), "");
    assert_eq!(engine.run(&["volume", "ls", "--quiet"]).unwrap(), "");
}
