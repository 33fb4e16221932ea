//! A home, the command in it, and what becomes of its sandboxes at the end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A state folder that is nobody else's, with its sandboxes destroyed when it goes.
pub(crate) struct Home {
    dir: TempDir,
    server: Option<Server>,
    /// What its commands and its server find in their environment beside the usual.
    variables: Vec<(String, String)>,
}

pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Home {
    pub(crate) fn new() -> Self {
        // Sockets have short names: the system's own temporary folder, whatever the test run's is.
        Self {
            dir: tempfile::Builder::new().prefix("sbx").tempdir_in("/tmp").unwrap(),
            server: None,
            variables: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// A home whose commands go through a server on it.
    pub(crate) fn served() -> Self {
        Self::new().serving()
    }

    pub(crate) fn serving(mut self) -> Self {
        self.server = Some(self.serve());
        self
    }

    pub(crate) fn server_url(&self) -> &str {
        &self.server.as_ref().expect("a home with a server").url
    }

    /// Ends the server with -9; commands go to the store from then on.
    pub(crate) fn kill_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.child.kill().unwrap();
            server.child.wait().unwrap();
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Starts a server on a free port and waits until it listens.
    pub(crate) fn serve(&self) -> Server {
        use std::io::BufRead as _;
        let mut command = self.bare();
        command.args(["serve", "--json", "--listen", "127.0.0.1:0"]);
        let log = std::fs::File::create(self.dir.path().join("server.log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let log = std::fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default();
        let told: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("no server: {log}"));
        Server { child, url: told["url"].as_str().unwrap().to_owned() }
    }

    /// The command without arguments and with nothing of the surroundings.
    pub(crate) fn bare(&self) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("sandboxer"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.dir.path())
            .env("SANDBOXER_HOME", self.state())
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.dir.path());
        command
    }

    pub(crate) fn command<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = self.bare();
        if let Some(server) = &self.server {
            command.env("SANDBOXER_SERVER", &server.url);
        }
        command.args(args).stdin(Stdio::null());
        command
    }

    pub(crate) fn run<const N: usize>(&self, args: [&str; N]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    /// Runs with bytes for stdin.
    pub(crate) fn feed<const N: usize>(&self, args: [&str; N], input: &[u8]) -> Ran {
        use std::io::Write as _;
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeder = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        Ran::of(output)
    }

    /// A new sandbox's id.
    pub(crate) fn create(&self) -> String {
        self.run(["create", "--ttl", "5m"]).ok().trim().to_owned()
    }

    /// A profile file of the project in the working directory.
    pub(crate) fn profile(&self, name: &str, text: &str) {
        let folder = self.dir.path().join(".sandboxer/profiles");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.server = None;
        let _ = self.command(["-q", "destroy", "--all", "--yes"]).output();
    }
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { code: output.status.code(), stdout: output.stdout, stderr }
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        let shown = String::from_utf8_lossy(&self.stdout[..self.stdout.len().min(2_000)]);
        assert_eq!(self.code, Some(code), "stdout: {shown}\nstderr: {}", self.stderr);
        self
    }

    /// stdout of a command that must have succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        let ran = self.exits(0);
        String::from_utf8(ran.stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn says(self, what: &str) -> Self {
        assert!(self.stderr.contains(what), "{what:?} is not in: {}", self.stderr);
        self
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(40);
    while !check() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes of every value, not compressible and the same each time.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length);
    out
}
