//! Builds that fail, are shared, or are given up; machines that do not come up. With the real Packer and QEMU.

#![allow(clippy::unwrap_used, reason = "a test that fails shows where")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::*;
use sandboxer_core::ErrorKind;
use sandboxer_core::extension::Extension;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_ext_vm_packer::{Settings, VmPacker};

/// A template that runs one shell command; `marker` makes it findable among the processes of this machine.
fn template(folder: &Path, command: &str) -> SandboxSpec {
    let template = serde_json::json!({
        "builders": [{ "type": "null", "communicator": "none" }],
        "provisioners": [{ "type": "shell-local", "command": command }],
    });
    let path = folder.join("template.json");
    std::fs::write(&path, template.to_string()).unwrap();
    with_template(path.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_fails_says_why_and_leaves_nothing() {
    let Some(()) = available() else { return };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let ext = extension(&state);
    let marker = "8640017";
    let command = format!(
        "mkdir output; echo half > output/disk.raw; for n in $(seq 40); do echo line $n; done; setsid sleep {marker} >/dev/null 2>&1 & sleep 0.3; echo the disk is on fire >&2; exit 3"
    );
    let wish = request(template(folder.path(), &command));
    let error = ext.provision(wish.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BuildFailed, "{error:?}");
    let words = error.chain().join(": ");
    assert!(
        words.contains("the disk is on fire") && words.contains("line 40") && !words.contains("line 2\n"),
        "{words}"
    );
    let log = error.hint().unwrap().split_whitespace().last().unwrap();
    assert!(std::fs::read_to_string(log).unwrap().contains("line 2\n"), "the whole log is kept");
    all_gone(marker).await;
    assert!(ext.list("local", "sbx_").await.unwrap().is_empty());
    let left: Vec<_> =
        std::fs::read_dir(state.join("images")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_str().unwrap().ends_with(".build")), "{left:?}");
    assert!(left.iter().all(|name| name.to_str().unwrap().contains('.')), "no half image: {left:?}");

    // A build that succeeds but leaves no disk is a failed one, too.
    let error = ext.provision(request(template(folder.path(), "true"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BuildFailed, "{error:?}");
    assert!(error.hint().unwrap().contains("disk.qcow2"), "{error:?}");
    // And a disk that reads another file would show it to whoever is in the machine.
    let command = "mkdir output; qemu-img create -q -f qcow2 -F raw -b /etc/passwd output/disk.qcow2 1M";
    let error = ext.provision(request(template(folder.path(), command))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_is_shared_and_ends_with_the_last_who_waits_for_it() {
    let Some(()) = available() else { return };
    let folder = tempfile::tempdir().unwrap();
    let ext = extension(&folder.path().join("state"));
    let marker = "8640018";
    let spec = template(folder.path(), &format!("echo started; sleep {marker}"));
    let (first, second) = (Heard::default(), Heard::default());
    let start = |heard: &Heard| {
        let (ext, mut wish) = (ext.clone(), request(spec.clone()));
        wish.progress = heard.progress();
        tokio::spawn(async move { ext.provision(wish).await })
    };
    let one = start(&first);
    first.wait_for("started").await;
    let two = start(&second);
    second.wait_for("another create builds this image").await;
    one.abort();
    let _ = one.await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!processes(marker).is_empty(), "the one who still waits keeps the build");
    two.abort();
    let _ = two.await;
    all_gone(marker).await;

    // The next one finds half a build, whose maker is gone, and starts anew.
    let three = start(&Heard::default());
    // Packer takes its time to start on a busy machine.
    for _ in 0..2_400 {
        if !processes(marker).is_empty() || three.is_finished() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    if three.is_finished() {
        panic!("it gave up: {:?}", three.await);
    }
    assert!(!processes(marker).is_empty());
    three.abort();
    let _ = three.await;
    all_gone(marker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_does_not_come_up_shows_its_console() {
    let Some(()) = available() else { return };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    // Whatever kernel the image has, a disk that is no file system makes it give up.
    let kernel = "set -e; mkdir output; sh ./build.sh >/dev/null; truncate -s 0 output/disk.raw; truncate -s 8M output/disk.raw; echo 'console=ttyS0 panic=-1 rdinit=/nowhere root=/dev/nothing' > output/cmdline";
    let spec = template(folder.path(), kernel);
    for file in ["build.sh", "init", "rc"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/small").join(file);
        std::fs::copy(from, folder.path().join(file)).unwrap();
    }
    let mut spec = SandboxSpec { ..spec };
    spec.packer.files = vec!["build.sh".into(), "init".into(), "rc".into()];
    let ext = extension(&state);
    let wish = request(spec);
    let error = ext.provision(wish.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendFailed, "{error:?}");
    let words = error.chain().join(": ");
    assert!(words.contains("Kernel panic"), "{words}");
    assert!(ext.list("local", "sbx_").await.unwrap().is_empty(), "nothing is left of it");
    all_gone(&wish.tag).await;

    // The same image with a QEMU that ends at once.
    let qemu = folder.path().join("qemu");
    std::fs::write(&qemu, "#!/bin/sh\necho no machine today >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&qemu, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let ext: Arc<dyn Extension> = Arc::new(VmPacker::new(Settings { qemu: Some(qemu), ..settings(&state) }));
    let error = ext.provision(request(wish.spec.clone())).await.unwrap_err();
    assert!(error.chain().join(": ").contains("no machine today"), "{error:?}");

    // And one that is too large for this host.
    let mut large = wish.spec.clone();
    large.resources.memory_mb = Some(1 << 30);
    let error = ext.provision(request(large)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend, "{error:?}");
    assert!(ext.list("local", "sbx_").await.unwrap().is_empty());
}
