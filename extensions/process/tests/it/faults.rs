//! A process that crashes, talks nonsense, hangs, lies or floods: a typed error, nothing hangs, the next call works.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sandboxer_core::exec::{BoxRead, ExecSpec};
use sandboxer_core::extension::{Credential, Handle, Progress, ProvisionRequest};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::{Error, ErrorKind, ExecId, Extension, SandboxId};
use sandboxer_ext_process::{Manifest, ProcessExtension};
use tokio::io::AsyncReadExt as _;

use crate::common;

struct Rogue {
    folder: tempfile::TempDir,
    extension: Option<ProcessExtension>,
}

impl Rogue {
    fn new(mode: &str) -> Self {
        Self::starting(mode, "20s")
    }

    fn starting(mode: &str, within: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/common/rogue.py");
        let starts = folder.path().join("starts").display().to_string();
        let capability = "isolation: network, exec: true, files: true, self_hosted: true, host_local: true";
        let text = format!(
            "kind: extension\nid: ext.rogue\nsummary: rogue\ncapability: {{ {capability} }}\nenv: [CARGO_PKG_NAME]\n\
             command: [python3, '{script}', {mode}, '{starts}']\n\
             timeouts: {{ default: 3s, provision: 5s, start: {within} }}\nmax_message_bytes: 100000\n"
        );
        let mut manifest = Manifest::parse(&text, &folder.path().join("rogue.yaml")).unwrap();
        manifest.command.push(serde_json::to_string(&manifest.capability).unwrap());
        Self { folder, extension: Some(ProcessExtension::new(manifest)) }
    }

    fn get(&self) -> &ProcessExtension {
        self.extension.as_ref().unwrap()
    }

    /// The process ids of every start.
    fn starts(&self) -> Vec<i32> {
        let text = std::fs::read_to_string(self.folder.path().join("starts")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    async fn fails(&self) -> Error {
        let start = Instant::now();
        let error = self.get().status(&handle()).await.unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(error.to_string().contains("ext.rogue"), "{error}");
        error
    }

    async fn works(&self) -> serde_json::Value {
        self.get().status(&handle()).await.unwrap().detail
    }
}

fn handle() -> Handle {
    serde_json::from_value(serde_json::json!({
        "tag": "sbx_x", "host": "local", "effective": "network", "controls": [], "degraded": false, "data": null,
    }))
    .unwrap()
}

fn spec() -> ExecSpec {
    ExecSpec {
        exec_id: ExecId::generate(),
        argv: vec!["true".into()],
        cwd: None,
        env: Default::default(),
        user: None,
        timeout: None,
        tty: None,
        stdin: false,
    }
}

fn request(progress: Progress) -> ProvisionRequest {
    let sandbox_id = SandboxId::generate();
    ProvisionRequest {
        sandbox_id,
        tag: sandbox_id.to_string(),
        spec: Default::default(),
        host: "local".into(),
        seed: None,
        from: None,
        progress,
        expires_at: jiff::Timestamp::MAX,
        idle_reap: None,
    }
}

fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z")
}

#[tokio::test]
async fn a_breach_is_a_typed_error_and_the_next_call_works() {
    for (mode, words) in [
        ("crash", "ended: exit status: 3; its last words: something is very wrong"),
        ("garbage", "is not JSON"),
        ("list", "is not an object"),
        ("oversize", "a line of more than 100000 bytes"),
        ("stranger", "which nobody made"),
    ] {
        let rogue = Rogue::new(mode);
        let error = rogue.fails().await;
        assert_eq!(error.kind(), ErrorKind::BackendFailed, "{mode}: {error:?}");
        assert!(error.to_string().contains(words), "{mode}: {error:?}");
        assert!(!error.to_string().contains('\x1b'), "{mode}: {error:?}");
        assert_eq!(rogue.works().await["first"], false, "{mode}");
        assert_eq!(rogue.starts().len(), 2, "{mode}");
        let first = rogue.starts()[0];
        common::eventually("the broken process is gone", || !lives(first)).await;
    }
}

/// A workspace's own key goes with each request, and nowhere where another process could read it.
#[tokio::test]
async fn a_key_goes_through_the_pipe_alone() {
    let rogue = Rogue::new("fine");
    let keyed = rogue.get().with_key(&Credential::new("hush-hush")).unwrap();
    assert_eq!(rogue.works().await["credential"], serde_json::Value::Null);
    assert_eq!(keyed.status(&handle()).await.unwrap().detail["credential"], "hush-hush");
    assert_eq!(keyed.teardown("local", "sbx_x", None).await.unwrap().removed, ["hush-hush"]);
    assert!(rogue.get().teardown("local", "sbx_x", None).await.unwrap().removed.is_empty());
    // One process serves all of them.
    let [process] = rogue.starts().try_into().unwrap();
    for file in ["cmdline", "environ"] {
        let text = std::fs::read(format!("/proc/{process}/{file}")).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("hush"));
    }
}

#[tokio::test]
async fn a_process_that_hangs_is_ended() {
    let rogue = Rogue::new("hang");
    let error = rogue.fails().await;
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("did not answer `status` within 3s"), "{error}");
    rogue.works().await;
    let first = rogue.starts()[0];
    common::eventually("the hanging process is gone", || !lives(first)).await;
}

#[tokio::test]
async fn one_slow_answer_does_not_end_the_process() {
    let rogue = Rogue::new("fine");
    assert_eq!(rogue.get().life(&handle()).await.unwrap_err().kind(), ErrorKind::Timeout);
    rogue.works().await;
    assert_eq!(rogue.starts().len(), 1);
}

#[tokio::test]
async fn a_process_that_never_says_hello_or_never_reads_is_a_time_out() {
    let rogue = Rogue::new("deaf");
    let data: BoxRead = Box::pin(tokio::io::repeat(b'x').take(10 << 20));
    let start = Instant::now();
    let error = rogue.get().file_write(&handle(), "x", 0o644, data).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(20));
    let report = Rogue::starting("mute", "500ms").get().check("local").await.unwrap();
    assert!(!report.ok && report.items[0].detail.contains("did not answer `describe`"), "{report:?}");
}

#[tokio::test]
async fn lies_about_types_and_identity_are_named() {
    let error = Rogue::new("untyped").fails().await;
    assert!(error.to_string().contains("answered `status` against the contract"), "{error}");
    for (mode, words) in [("swaps", "another tag"), ("claims", "more isolation than")] {
        let rogue = Rogue::new(mode);
        let error = rogue.get().provision(request(Progress::default())).await.unwrap_err();
        assert!(error.to_string().contains(words), "{mode}: {error}");
    }
    for (mode, words) in [("boasts", "capability.pause"), ("newer", "version 2 of the protocol")] {
        let error = Rogue::new(mode).fails().await;
        assert!(error.to_string().contains(words), "{mode}: {error}");
        assert_eq!(error.kind(), ErrorKind::BackendFailed);
    }
    // Whatever is listed may be removed later.
    let error = Rogue::new("fine").get().list("local", "sbx_").await.unwrap_err();
    assert!(error.to_string().contains("`production` does not start with `sbx_`"), "{error}");
}

#[tokio::test]
async fn its_own_errors_keep_their_kind_and_lose_control_characters() {
    let error = Rogue::new("refuses").fails().await;
    assert_eq!((error.kind(), error.hint()), (ErrorKind::NoSpace, Some("make room")));
    assert_eq!(error.to_string(), "ext.rogue: the disk  is full");
    assert_eq!(Rogue::new("odd_code").fails().await.kind(), ErrorKind::BackendFailed);
}

#[tokio::test]
async fn a_process_that_dies_ends_its_commands_and_a_greedy_one_is_stopped() {
    for (mode, words) in [("dies", "signal: 9"), ("greedy", "more to `stdout` of request")] {
        let rogue = Rogue::new(mode);
        let mut session = rogue.get().exec(&handle(), spec()).await.unwrap();
        if mode == "dies" {
            let mut begun = [0; 6];
            session.stdout.read_exact(&mut begun).await.unwrap();
            assert_eq!(&begun, b"begun\n");
            assert!(session.stdout.read(&mut begun).await.is_err(), "the stream ends as if all were well");
        }
        let error =
            tokio::time::timeout(Duration::from_secs(15), session.control.wait()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendFailed);
        assert!(error.to_string().contains(words), "{mode}: {error}");
        rogue.works().await;
    }
}

#[tokio::test]
async fn progress_is_heard() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let tell = heard.clone();
    let progress = Progress::new(move |line| tell.lock().unwrap().push(line.to_owned()));
    let handle = Rogue::new("fine").get().provision(request(progress)).await.unwrap();
    assert_eq!(handle.effective, IsolationLevel::Network);
    assert_eq!(*heard.lock().unwrap(), ["half way"]);
}

#[tokio::test]
async fn the_environment_is_what_the_manifest_names() {
    let env = Rogue::new("fine").works().await["env"].clone();
    assert_eq!(env["CARGO_PKG_NAME"], env!("CARGO_PKG_NAME"));
    // Variables that this test has and that nobody named.
    for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_VERSION"] {
        assert!(std::env::var_os(name).is_some() && env.get(name).is_none(), "{name}");
    }
}

#[tokio::test]
async fn twenty_megabytes_on_stderr_hold_nothing_up() {
    Rogue::new("flood").works().await;
}

#[tokio::test]
async fn a_command_that_is_not_there_is_said_so() {
    let text =
        "kind: extension\nid: ext.gone\nsummary: gone\ncapability: {}\ncommand: [./there-is-nothing]\n";
    let extension =
        ProcessExtension::new(Manifest::parse(text, &PathBuf::from("/nowhere/gone.yaml")).unwrap());
    let error = extension.status(&handle()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendFailed);
    assert!(error.to_string().contains("ext.gone cannot be started"), "{error}");
    assert!(error.hint().unwrap().contains("/nowhere/gone.yaml"));
    assert!(!extension.check("local").await.unwrap().ok);
}

#[tokio::test]
async fn the_process_ends_with_its_extension_even_a_stubborn_one() {
    for mode in ["fine", "stubborn"] {
        let mut rogue = Rogue::new(mode);
        rogue.works().await;
        let pid = rogue.starts()[0];
        assert!(lives(pid));
        rogue.extension = None;
        common::eventually("the process ends", || !lives(pid)).await;
    }
}

#[tokio::test]
async fn requests_at_the_same_time_find_their_answers() {
    let rogue = Rogue::new("fine");
    let calls = (0..50).map(|_| async { rogue.get().status(&handle()).await.unwrap().alive });
    assert!(futures::future::join_all(calls).await.into_iter().all(|alive| alive));
    assert_eq!(rogue.starts().len(), 1);
}
