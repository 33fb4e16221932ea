//! A creator that is killed with -9 leaves nothing that a listing and a teardown by the tag do not find and remove.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use sandboxer_core::{Extension as _, Retry, SandboxId};

use crate::rig::{HOST, Rig, request, stub_in, until, wait};

const MARK: &str = "kill-child";
const ROUNDS: u64 = 10;

pub(crate) fn is_child() -> bool {
    std::env::args().nth(1).is_some_and(|word| word == MARK)
}

/// Provisions and removes under the tag that it is given, over and over, until somebody kills it.
pub(crate) fn child() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let stub = stub_in(&PathBuf::from(&words[0]), "");
    let mut request = request();
    request.sandbox_id = words[1].parse().unwrap();
    request.tag = words[1].clone();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        loop {
            stub.provision(request.clone()).await.unwrap();
            stub.teardown(HOST, &request.tag, None).await.unwrap();
            println!("round");
            std::io::stdout().flush().unwrap();
        }
    })
}

/// Ended with the test, also with one that fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ended {
    /// A child that has been through one round.
    fn start(folder: &Path, tag: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(MARK)
            .arg(folder)
            .arg(tag)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "round\n");
        Self(child)
    }

    /// Killed where it stands. The launcher that it had may go on for a moment with what it was told; its number.
    fn kill(mut self) -> Vec<PathBuf> {
        let id = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        children.split_whitespace().map(|id| PathBuf::from(format!("/proc/{id}"))).collect()
    }
}

pub(crate) async fn any_moment() {
    let rig = Rig::new("");
    let mut in_the_middle = 0;
    for round in 0..ROUNDS {
        let tag = SandboxId::generate().to_string();
        let child = Ended::start(&rig.folder, &tag);
        tokio::time::sleep(Duration::from_millis(round * 8)).await;
        let launchers = child.kill();
        in_the_middle += usize::from(rig.found(&tag).await.is_some());
        // What was told to the runtime behind before the kill may come up after it. It is found then, and removed.
        until(async || launchers.iter().all(|launcher| !launcher.exists())).await;
        until(async || quiet(&rig, &tag).await).await;
        rig.has_nothing(&tag).await;
    }
    assert!(in_the_middle > 0, "no kill came in the middle");
    assert!(rig.stub.list(HOST, "").await.unwrap().is_empty());
    let left: Vec<_> = std::fs::read_dir(rig.folder.join("native/sandboxes")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    // No sandbox that ended is billed twice.
    let export = rig.stub.usage_export().unwrap();
    let ids: Vec<&str> = export.lines().skip(1).filter_map(|line| line.split(',').nth(1)).collect();
    let unique: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
    assert!(ids.len() >= ROUNDS as usize && ids.len() == unique.len(), "billed twice:\n{export}");
}

/// Removes what there is until there has been nothing for a while.
async fn quiet(rig: &Rig, tag: &str) -> bool {
    for _ in 0..10 {
        if !remove(rig, tag).await {
            return false;
        }
        wait(20).await;
    }
    true
}

/// Whether there was nothing to remove.
async fn remove(rig: &Rig, tag: &str) -> bool {
    let before = rig.found(tag).await;
    match rig.stub.teardown(HOST, tag, None).await {
        Ok(report) => report.is_clean() && before.is_none(),
        Err(error) => {
            // The runtime is in the middle of something, which passes.
            assert_eq!(error.retry(), Retry::Temporary, "{error:?}");
            false
        }
    }
}
