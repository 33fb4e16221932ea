//! Hosts that have `sandboxer`: the sandbox is one of their own runtime, and never silently less.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use sandboxer_core::exec::ExecSpec;
use sandboxer_core::extension::{Extension as _, Handle, ProvisionRequest};
use sandboxer_core::isolation::{IsolationLevel, Outcome};
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{ErrorKind, ExecId, SandboxId};
use sandboxer_ext_ssh::{Settings, Ssh};
use sandboxer_testkit::conformance::{self, Subject};
use sandboxer_testkit::real::sshd::{SshHost, SshHostOptions};
use sandboxer_testkit::real::{FixedHosts, require};
use tokio::io::AsyncReadExt as _;

/// The program itself, as this workspace builds it.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().find(|folder| folder.ends_with("deps")).unwrap().parent().unwrap();
    let program = folder.join("sandboxer");
    if !program.exists() {
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--package", "sandboxer-cli", "--bin", "sandboxer"]);
        assert!(build.status().unwrap().success(), "`sandboxer` cannot be built");
    }
    assert!(program.exists(), "{} is not there", program.display());
    program
}

struct Fixture {
    host: SshHost,
    hosts: Arc<FixedHosts>,
    state: tempfile::TempDir,
    ssh: Ssh,
}

/// A host with `sandboxer` on its PATH.
fn fixture() -> Option<Fixture> {
    require(SshHost::available())?;
    let state = tempfile::tempdir().unwrap();
    let bin = state.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(program(), bin.join("sandboxer")).unwrap();
    let path = format!("SetEnv PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display());
    let host = SshHost::start_with("far", SshHostOptions { config: vec![path], ..SshHostOptions::default() });
    let hosts = Arc::new(FixedHosts::new([host.host()]));
    let ssh = Ssh::new(Settings::new(hosts.clone(), state.path()));
    Some(Fixture { host, hosts, state, ssh })
}

fn request(seconds: i64) -> ProvisionRequest {
    let sandbox_id = SandboxId::generate();
    ProvisionRequest {
        sandbox_id,
        tag: sandbox_id.to_string(),
        spec: SandboxSpec::default(),
        host: "far".into(),
        seed: None,
        from: None,
        progress: Default::default(),
        expires_at: Timestamp::now() + SignedDuration::from_secs(seconds),
        idle_reap: None,
    }
}

fn command(line: &str) -> ExecSpec {
    ExecSpec {
        exec_id: ExecId::generate(),
        argv: vec!["sh".into(), "-c".into(), line.into()],
        cwd: None,
        env: Default::default(),
        user: None,
        timeout: None,
        tty: None,
        stdin: false,
    }
}

impl Fixture {
    async fn run(&self, handle: &Handle, spec: ExecSpec) -> (String, i32) {
        let mut session = self.ssh.exec(handle, spec).await.unwrap();
        let mut text = String::new();
        session.stdout.read_to_string(&mut text).await.unwrap();
        (text.trim().to_owned(), session.control.wait().await.unwrap().exit_code)
    }
}

/// What is on the host of sandboxes: directories of ours and of its runtime, and processes of either.
fn remains(host: &SshHost) -> Vec<String> {
    let folders = [".sandboxer/sandboxes", ".sandboxer/native/sandboxes"];
    let names = folders.iter().flat_map(|folder| std::fs::read_dir(host.home().join(folder)));
    let mut all: Vec<String> =
        names.flat_map(|folder| folder.flatten()).map(|entry| entry.path().display().to_string()).collect();
    let ours = |line: &String| [".guard", "sandboxer", "7311"].iter().any(|word| line.contains(word));
    // The server's own line has the folder of its settings in it.
    all.extend(host.processes().into_iter().filter(ours).filter(|line| !line.contains("sshd")));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_passes_by_the_hosts_own_runtime() {
    let Some(it) = fixture() else { return };
    let (hosts, folder) = (it.hosts.clone(), it.state.path().to_owned());
    let make = move || Arc::new(Ssh::new(Settings::new(hosts.clone(), &folder))) as _;
    let mut subject = Subject::new(make, SandboxSpec::default()).on("far");
    if let Ok(only) = std::env::var("ONLY") {
        subject = subject.only(&only.split(',').collect::<Vec<_>>());
    }
    subject.crashes = 4;
    conformance::run(&subject).await.assert_passed();
    assert_eq!(remains(&it.host), [""; 0]);
}

#[tokio::test]
async fn isolation_is_what_the_host_reports_and_a_teardown_leaves_nothing() {
    let Some(it) = fixture() else { return };
    let mut asked = request(60);
    // A profile that asks for no more than the network gets what is there.
    asked.spec.isolation.level = IsolationLevel::Network;
    asked.spec.variables.insert("PATH".into(), "/nowhere:/usr/bin:/bin".into());
    let handle = it.ssh.provision(asked).await.unwrap();
    assert_eq!(handle.effective, IsolationLevel::Container);
    for name in ["user_namespace", "network_namespace", "seccomp", "root_filesystem"] {
        let control = handle.controls.iter().find(|control| control.name == name);
        assert_eq!(control.map(|control| control.outcome), Some(Outcome::Enforced), "{name}: {handle:?}");
    }
    assert!(handle.data["native"]["id"].as_str().unwrap().starts_with("sbx_"), "{:?}", handle.data);
    // The host's own files and processes are not there, and a variable means nothing on the way in.
    let line = "test ! -e /root/.sandboxer && readlink /proc/self/ns/net && echo $PATH";
    let (inside, code) = it.run(&handle, command(line)).await;
    assert_eq!(code, 0, "{inside}");
    let mine = std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    assert!(inside.ends_with("/nowhere:/usr/bin:/bin") && !inside.contains(&mine), "{inside}");
    let status = it.ssh.status(&handle).await.unwrap();
    assert!(status.alive && status.detail["remote"]["enforced"]["verified"] == true, "{:?}", status.detail);
    let items = it.ssh.check("far").await.unwrap().items;
    assert!(items.iter().any(|item| item.name == "sandboxer" && item.ok), "{items:?}");
    it.run(&handle, command("setsid sleep 7311 >/dev/null 2>&1 &")).await;

    let report = it.ssh.teardown("far", &handle.tag, None).await.unwrap();
    assert!(report.is_clean() && report.removed.len() == 2, "{report:?}");
    assert!(it.ssh.list("far", "sbx_").await.unwrap().is_empty());
    assert_eq!(remains(&it.host), [""; 0]);
    let error = it.ssh.exec(&handle, command("true")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::SandboxNotFound, "{error:?}");
}

#[tokio::test]
async fn at_its_deadline_it_goes_with_nobody_there() {
    let Some(it) = fixture() else { return };
    let handle = it.ssh.provision(request(6)).await.unwrap();
    it.run(&handle, command("setsid sleep 7311 >/dev/null 2>&1 & true")).await;
    let Fixture { host, hosts, state, ssh } = it;
    assert!(!remains(&host).is_empty());
    // The program stays on the host's PATH; everybody on this side is gone.
    drop((ssh, hosts));
    let begin = Instant::now();
    while !remains(&host).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", remains(&host));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(state);
}

#[tokio::test]
async fn without_sandboxer_more_than_the_network_is_refused_before_anything_is_made() {
    if require(SshHost::available()).is_none() {
        return;
    }
    let host = SshHost::start("far");
    let state = tempfile::tempdir().unwrap();
    let ssh = Ssh::new(Settings::new(Arc::new(FixedHosts::new([host.host()])), state.path()));
    let mut by_level = request(60);
    by_level.spec.isolation.level = IsolationLevel::Policy;
    let mut by_need = request(60);
    by_need.spec.isolation.level = IsolationLevel::Network;
    by_need.spec.requires.isolation = Some(IsolationLevel::Container);
    for asked in [by_level, by_need] {
        let error = ssh.provision(asked).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsolationUnavailable, "{error:?}");
        assert!(error.hint().unwrap().contains("profile.ssh-dev"), "{error:?}");
    }
    assert!(!host.home().join(".sandboxer/sandboxes").exists());
    let mut plain = request(60);
    plain.spec.isolation.level = IsolationLevel::Network;
    let handle = ssh.provision(plain).await.unwrap();
    assert_eq!(handle.effective, IsolationLevel::Network);
    assert!(ssh.teardown("far", &handle.tag, None).await.unwrap().is_clean());
}
