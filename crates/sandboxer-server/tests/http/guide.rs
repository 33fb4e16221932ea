//! The examples of `docs/api.md`, run as they stand there.

use std::process::Command;

use crate::support::Server;

const GUIDE: &str = include_str!("../../../../docs/api.md");

/// Every block of shell, one after the other, with this server instead of the usual one.
fn script(server: &Server) -> String {
    let blocks = GUIDE.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let script: String = blocks.collect();
    assert!(script.matches("curl ").count() > 40);
    script
        .replace("http://127.0.0.1:8377", &server.url(""))
        .replace("curl ", "curl --noproxy '*' --fail-with-body ")
        .replace("profile.agent-dev", "profile.test")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_works() {
    for tool in ["bash", "curl", "jq"] {
        if Command::new(tool).arg("--version").output().is_err() {
            eprintln!("skipped: there is no {tool}");
            return;
        }
    }
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let script = format!("set -euo pipefail\nset -x\n{}", script(&server));
    let at = folder.path().to_owned();
    let ran = tokio::task::spawn_blocking(move || {
        Command::new("bash").arg("-c").arg(script).current_dir(at).output().unwrap()
    });
    let output = ran.await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.ends_with("destroyed\n"), "{out}");
    assert!(out.contains("\"stdout\":\"from stdin\\nhello\\n\""), "{out}");
    assert!(server.fake.living().is_empty());
}
