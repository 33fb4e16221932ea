//! A machine from a template to its end, with the real Packer and the real QEMU.

use std::sync::Arc;

use crate::common::*;
use sandboxer_core::ErrorKind;
use sandboxer_core::extension::Extension;
use sandboxer_core::isolation::{IsolationLevel, Outcome};
use sandboxer_ext_vm_packer::{Settings, VmPacker};

/// Cold: its own folder, so that Packer runs. Then everything that the image is kept for.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_becomes_a_machine_and_its_image_outlives_it() {
    let Some(()) = available() else { return };
    let state = tempfile::tempdir().unwrap();
    let ext = extension(state.path());
    let heard = Heard::default();
    let mut wish = request(spec());
    wish.progress = heard.progress();
    let _cleanup = Cleanup { extension: ext.clone(), tag: wish.tag.clone() };
    let handle = ext.provision(wish.clone()).await.unwrap();
    assert!(heard.has("small: the root file system"), "Packer's words are passed on: {:?}", heard.lines());
    let reach = ext.wait_ready(&handle).await.unwrap();
    assert_eq!(reach.method, "ssh");

    assert_eq!(handle.effective, IsolationLevel::Microvm);
    let control = |name: &str| handle.controls.iter().find(|control| control.name == name).unwrap();
    assert_eq!(control("network").outcome, Outcome::Enforced, "{:?}", handle.controls);
    assert_eq!(control("qemu_seccomp").outcome, Outcome::Enforced, "{:?}", handle.controls);
    assert!(["tcg", "kvm"].iter().any(|name| control("accelerator").detail.starts_with(name)));
    if is_root() {
        assert_eq!(control("qemu_user").outcome, Outcome::Enforced, "{:?}", handle.controls);
        assert_eq!(control("qemu_privileges").outcome, Outcome::Enforced, "{:?}", handle.controls);
    }

    let (outcome, said) = sh(&ext, &handle, "uname -r; grep -c hypervisor /proc/cpuinfo; pwd").await;
    assert_eq!(outcome.exit_code, 0);
    let here = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(!said.starts_with(here.trim()), "it has a kernel of its own: {said}");
    assert!(said.ends_with("/workspace\n"), "{said}");
    // QEMU's own address for the host, where sshd of this machine or anything else could be listening.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (outcome, _) = sh(&ext, &handle, &format!("busybox nc -w 2 10.0.2.2 {port} </dev/null")).await;
    assert_ne!(outcome.exit_code, 0, "the host is reached from inside");
    let reached = tokio::time::timeout(std::time::Duration::from_millis(200), listener.accept()).await;
    assert!(reached.is_err(), "the host is reached from inside");

    // Stopped, the guest does not even greet; afterwards it goes on.
    let address =
        handle.data["port"].as_u64().unwrap().try_into().map(|port: u16| ("127.0.0.1", port)).unwrap();
    ext.pause(&handle).await.unwrap();
    assert_eq!(ext.status(&handle).await.unwrap().detail["state"], "paused");
    assert!(!greets(address).await, "a paused machine answers");
    ext.resume(&handle).await.unwrap();
    assert!(greets(address).await && sh(&ext, &handle, "echo on").await.1 == "on\n");

    let images = state.path().join("images");
    let image = images.join(status_image(&ext, &handle).await);
    let report = ext.teardown("local", &handle.tag, Some(&handle)).await.unwrap();
    assert!(report.is_clean() && !report.removed.is_empty(), "{report:?}");
    assert!(!state.path().join("vms").join(&handle.tag).exists(), "the overlay disk is gone");
    assert!(image.join("disk.raw").exists(), "the image stays");
    assert!(processes(&handle.tag).is_empty(), "{:?}", processes(&handle.tag));

    // A second create of the same recipe needs no Packer at all.
    let without = Settings { packer: Some("/nonexistent/packer".into()), ..settings(state.path()) };
    let ext: Arc<dyn Extension> = Arc::new(VmPacker::new(without));
    let again = request(spec());
    let _cleanup = Cleanup { extension: ext.clone(), tag: again.tag.clone() };
    let second = ext.provision(again).await.unwrap();
    assert_eq!(sh(&ext, &second, "echo booted").await.1, "booted\n");
    let listed = ext.list("local", "sbx_").await.unwrap();
    assert_eq!(
        listed.iter().map(|found| (found.tag.as_str(), found.alive)).collect::<Vec<_>>(),
        [(second.tag.as_str(), true)]
    );
    let changed = {
        let mut spec = spec();
        spec.packer.variables.insert("disk_mb".into(), "300".into());
        spec
    };
    let error = ext.provision(request(changed)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend, "another recipe has to be built: {error:?}");
    assert!(error.hint().unwrap().contains("packer"));
}

async fn status_image(ext: &Arc<dyn Extension>, handle: &sandboxer_core::extension::Handle) -> String {
    let status = ext.status(handle).await.unwrap();
    assert!(status.alive && status.usage.unwrap().memory_bytes.unwrap() > 0);
    status.detail["image"].as_str().unwrap().to_owned()
}

/// Whether an SSH server says its name within some seconds.
async fn greets(address: (&str, u16)) -> bool {
    let words = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
        let mut start = [0; 4];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut start).await.ok()
    };
    matches!(tokio::time::timeout(std::time::Duration::from_secs(4), words).await, Ok(Some(_)))
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0\t"))
}
