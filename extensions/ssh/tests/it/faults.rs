//! What goes wrong with hosts, and what is left then.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use sandboxer_core::exec::ExecSpec;
use sandboxer_core::extension::{Extension as _, ProvisionRequest};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{ErrorKind, ExecId, SandboxId};
use sandboxer_ext_ssh::{Settings, Ssh};
use sandboxer_testkit::real::sshd::{SshHost, SshHostOptions};
use sandboxer_testkit::real::{FixedHosts, require};

struct Fixture {
    host: SshHost,
    hosts: Arc<FixedHosts>,
    state: tempfile::TempDir,
    ssh: Ssh,
}

fn fixture(options: SshHostOptions) -> Option<Fixture> {
    require(SshHost::available())?;
    let host = SshHost::start_with("far", options);
    let state = tempfile::tempdir().unwrap();
    let hosts = Arc::new(FixedHosts::new([host.host()]));
    let ssh = Ssh::new(Settings::new(hosts.clone(), state.path()));
    Some(Fixture { host, hosts, state, ssh })
}

fn request(seconds: i64) -> ProvisionRequest {
    let sandbox_id = SandboxId::generate();
    let mut spec = SandboxSpec::default();
    spec.isolation.level = IsolationLevel::Network;
    ProvisionRequest {
        sandbox_id,
        tag: sandbox_id.to_string(),
        spec,
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
        env: [("WORD".to_owned(), "confided-4711".to_owned())].into(),
        user: None,
        timeout: None,
        tty: None,
        stdin: false,
    }
}

impl Fixture {
    /// A tar with one file of this size and whatever `more` adds.
    fn seed(&self, size: usize, more: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> PathBuf {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(size as u64);
        tar.append_data(&mut header, "file", std::io::repeat(7).take_exactly(size)).unwrap();
        more(&mut tar);
        let path = self.state.path().join("seed.tar");
        std::fs::write(&path, tar.into_inner().unwrap()).unwrap();
        path
    }

    fn folders(&self) -> Vec<String> {
        let list = self.host.exec_in(&["ls", "-A", "/root/.sandboxer/sandboxes"]);
        String::from_utf8_lossy(&list.stdout).split_whitespace().map(str::to_owned).collect()
    }

    fn runs(&self, word: &str) -> bool {
        self.host.processes().iter().any(|line| line.contains(word))
    }
}

trait TakeExactly: std::io::Read + Sized {
    fn take_exactly(self, size: usize) -> std::io::Take<Self> {
        self.take(size as u64)
    }
}
impl<R: std::io::Read> TakeExactly for R {}

#[tokio::test]
async fn at_its_deadline_a_sandbox_goes_with_everything_and_nobody_there() {
    let Some(it) = fixture(SshHostOptions::default()) else { return };
    let handle = it.ssh.provision(request(4)).await.unwrap();
    let session = it.ssh.exec(&handle, command("setsid sleep 5711 >/dev/null 2>&1 & echo up")).await.unwrap();
    session.control.wait().await.unwrap();
    drop(session);
    let Fixture { host, hosts, state, ssh } = it;
    drop((ssh, hosts, state));
    assert!(host.processes().iter().any(|line| line.contains("5711")));
    let begin = Instant::now();
    let root = host.home().join(".sandboxer/sandboxes");
    let left = || {
        std::fs::read_dir(&root).unwrap().count() > 0
            || host.processes().iter().any(|line| line.contains("5711") || line.contains(".guard"))
    };
    while left() {
        assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", host.processes());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_seed_that_reaches_out_is_refused_and_leaves_nothing() {
    let Some(it) = fixture(SshHostOptions::default()) else { return };
    for (target, kind) in [
        ("../../outside", tar::EntryType::Symlink),
        ("/etc/passwd", tar::EntryType::Symlink),
        ("file", tar::EntryType::Link),
    ] {
        let seed = it.seed(10, |tar| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(0o777);
            header.set_size(0);
            tar.append_link(&mut header, "link", target).unwrap();
        });
        let error = it.ssh.provision(ProvisionRequest { seed: Some(seed), ..request(60) }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
        assert_eq!(it.folders(), [""; 0]);
    }
    assert!(!it.runs(".guard"));
}

#[tokio::test]
async fn a_full_disk_is_told_and_leaves_nothing() {
    let Some(it) = fixture(SshHostOptions { home_mb: Some(4), ..SshHostOptions::default() }) else { return };
    let seed = it.seed(16 << 20, |_| ());
    let error = it.ssh.provision(ProvisionRequest { seed: Some(seed), ..request(60) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
    assert_eq!(it.folders(), [""; 0]);
    let seed = it.seed(1 << 20, |_| ());
    it.ssh.provision(ProvisionRequest { seed: Some(seed), ..request(60) }).await.unwrap();
}

#[tokio::test]
async fn a_transfer_that_breaks_off_publishes_nothing_and_can_be_repeated() {
    let Some(mut it) = fixture(SshHostOptions::default()) else { return };
    let seed = it.seed(64 << 20, |_| ());
    let first = ProvisionRequest { seed: Some(seed), ..request(60) };
    let again = first.clone();
    let tag = first.tag.clone();
    let ssh = Arc::new(it.ssh);
    let running = tokio::spawn({
        let ssh = ssh.clone();
        async move { ssh.provision(first).await }
    });
    let staged = |home: &std::path::Path| {
        let root = std::fs::read_dir(home.join(".sandboxer/sandboxes")).ok()?;
        root.flatten().find(|entry| entry.path().join("workspace/file").exists())
    };
    while staged(&it.host.home()).is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    it.host.restart();
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    let found = ssh.list("far", &tag).await.unwrap();
    assert!(found.iter().all(|found| !found.alive), "{found:?}");
    let handle = ssh.provision(again).await.unwrap();
    assert_eq!(ssh.file_stat(&handle, "file").await.unwrap().size, 64 << 20);
    let report = ssh.teardown("far", &tag, None).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(ssh.list("far", "sbx_").await.unwrap().is_empty());
}

#[tokio::test]
async fn hosts_that_are_down_changed_or_strange_are_told_apart() {
    let Some(mut it) = fixture(SshHostOptions::default()) else { return };
    assert_eq!(
        it.ssh
            .provision(ProvisionRequest { host: "nowhere".into(), ..request(60) })
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::HostNotFound
    );
    assert_eq!(
        it.ssh.provision(ProvisionRequest { host: "local".into(), ..request(60) }).await.unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    let handle = it.ssh.provision(request(60)).await.unwrap();
    it.host.rekey();
    let error = it.ssh.exec(&handle, command("true")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::HostKeyRefused, "{error:?}");
    let report = it.ssh.check("far").await.unwrap();
    assert!(!report.ok && report.items[0].detail.contains("SHA256:"), "{report:?}");
    it.hosts.set(it.host.host());
    // Its guard went with the restart; the sandbox is there until its deadline, and is guarded again.
    assert!(it.ssh.life(&handle).await.unwrap().is_alive());
    assert!(it.runs(".guard/script"));
    it.host.stop();
    let error = it.ssh.exec(&handle, command("true")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    assert!(!it.ssh.check("far").await.unwrap().ok);
    it.host.restart();
    let report = it.ssh.teardown("far", &handle.tag, Some(&handle)).await.unwrap();
    assert!(report.is_clean() && report.removed.len() == 1, "{report:?}");
    let error = it.ssh.exec(&handle, command("true")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::SandboxNotFound, "{error:?}");
}

#[tokio::test]
async fn variables_are_in_no_process_list_and_one_connection_is_enough() {
    let Some(it) = fixture(SshHostOptions::default()) else { return };
    let mut request = request(60);
    request.spec.variables.insert("OTHER".into(), "confided-4712".into());
    let handle = it.ssh.provision(request).await.unwrap();
    let session =
        it.ssh.exec(&handle, command("test \"${#WORD} ${#OTHER}\" = \"13 13\" && sleep 6711")).await.unwrap();
    while !it.runs("sleep 6711") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!it.runs("confided"), "{:?}", it.host.processes());
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains("confided-4712"));
    }
    assert_eq!(it.host.connections(), 1);
    let report = it.ssh.teardown("far", &handle.tag, None).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(!it.runs("6711"));
    drop(session);
}
