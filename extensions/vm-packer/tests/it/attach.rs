//! A workspace on a machine that is already running: a real one that this test boots and registers as a host.

use std::sync::Arc;

use crate::common::*;
use jiff::Timestamp;
use sandboxer_core::ErrorKind;
use sandboxer_core::extension::Extension;
use sandboxer_core::host::{Host, HostAccess, SshAccess};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_ext_vm_packer::{Settings, VmPacker};
use sandboxer_testkit::real::FixedHosts;

#[tokio::test(flavor = "multi_thread")]
async fn a_running_machine_carries_several_workspaces() {
    let Some(()) = available() else { return };
    let state = shared_state();
    let ext = extension(&state);
    let wish = request(spec());
    let _cleanup = Cleanup { extension: ext.clone(), tag: wish.tag.clone() };
    let machine = ext.provision(wish).await.unwrap();
    // The machine as somebody would register it.
    let folder = state.join("vms").join(&machine.tag);
    let key = std::fs::read_to_string(folder.join("ssh_host_ed25519_key.pub")).unwrap();
    let host = Host {
        name: "build-vm".into(),
        access: HostAccess::Ssh(SshAccess {
            address: "127.0.0.1".into(),
            port: machine.data["port"].as_u64().unwrap().try_into().unwrap(),
            user: "root".into(),
            identity_file: Some(folder.join("id_ed25519").display().to_string()),
            host_keys: vec![key.trim().to_owned()],
        }),
        added_at: Timestamp::now(),
        ..Host::local()
    };
    let own = tempfile::tempdir().unwrap();
    let make = || -> Arc<dyn Extension> {
        let hosts = Arc::new(FixedHosts::new([host.clone()]));
        Arc::new(VmPacker::new(Settings::new(hosts, own.path())))
    };
    let on = |vm: &str| SandboxSpec {
        inputs: [("vm".to_owned(), vm.to_owned())].into(),
        ..SandboxSpec::default()
    };
    let ext = make();
    let error = ext.provision(request(on("nowhere"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostNotFound);

    let (one, two) = (request(on("build-vm")), request(on("build-vm")));
    let (first, second) = (ext.provision(one.clone()).await.unwrap(), ext.provision(two).await.unwrap());
    assert_eq!(
        first.effective,
        IsolationLevel::Microvm,
        "the guest says that it is one: {:?}",
        first.controls
    );
    assert!(first.controls.iter().any(|control| control.name == "own_machine"), "{:?}", first.controls);
    assert_eq!(ext.provision(one).await.unwrap(), first, "once per tag");
    ext.wait_ready(&first).await.unwrap();
    let (outcome, _) = sh(&ext, &first, "echo one > file; sleep 300 >/dev/null 2>&1 & echo started").await;
    assert_eq!(outcome.exit_code, 0);
    assert_eq!(sh(&ext, &second, "ls").await.1, "", "each has a folder of its own");
    let data = ext.file_read(&first, "file").await.unwrap();
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut { data }, &mut text).await.unwrap();
    assert_eq!(text, "one\n");
    assert_eq!(ext.pause(&first).await.unwrap_err().kind(), ErrorKind::Unsupported);

    // Whoever comes after a crash finds both, and only what is asked for goes.
    let ext = make();
    assert_eq!(ext.list("local", "sbx_").await.unwrap().len(), 2);
    let report = ext.teardown("local", &first.tag, None).await.unwrap();
    assert!(report.is_clean() && report.removed.len() == 1, "{report:?}");
    assert!(ext.teardown("local", &first.tag, None).await.unwrap().removed.is_empty());
    let found = ext.list("local", "sbx_").await.unwrap();
    assert_eq!(
        found.iter().map(|found| (found.tag.as_str(), found.alive)).collect::<Vec<_>>(),
        [(second.tag.as_str(), true)]
    );
    assert_eq!(sh(&ext, &second, "ls ..; busybox ps | grep -c '[s]leep 300'").await.1, "workspace\n0\n");
    let error = ext.exec(&first, spec_of("true")).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SandboxNotFound, "{error:?}");
    assert!(ext.teardown("local", &second.tag, None).await.unwrap().is_clean());
}
