//! A home with money in which every sandbox costs something, and the command in it, which can be told where to die.

use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;

use serde_json::Value;

/// How many homes are worked in at a time; most of a case is waiting.
const AT_A_TIME: usize = 4;
pub(crate) const PAID_IN: &str = "1000";

/// What has a price here, in cents for each second of a processor; a tenth of it while it is paused.
const PRICES: &[(&str, u32)] = &[("ext.native", 1), ("ext.saas-stub", 2), ("ext.docker", 1)];

/// A state folder that is nobody else's, with its sandboxes destroyed when it goes.
pub(crate) struct Home {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Home {
    pub(crate) fn new() -> Self {
        // Sockets have short names: the system's own temporary folder, whatever the test run's is.
        let folder = tempfile::Builder::new().prefix("sbx").tempdir_in("/tmp").unwrap();
        let home = Self { folder, variables: Vec::new() };
        home.share_skeleton();
        for (extension, cents) in PRICES {
            home.price(extension, *cents);
        }
        home.ok(&["credits", "add", PAID_IN]);
        home
    }

    /// The skeleton of a sandbox's files is the same in every home, and making it takes longer than a whole case.
    fn share_skeleton(&self) {
        let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join("base");
        std::fs::create_dir_all(&shared).unwrap();
        for root in [self.state(), self.state().join("saas-stub/native")] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&root).unwrap();
            std::os::unix::fs::symlink(&shared, root.join("base")).unwrap();
        }
    }

    pub(crate) fn with(mut self, name: &'static str, value: String) -> Self {
        self.variables.push((name, value));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn price(&self, extension: &str, cents: u32) {
        let text = format!(
            "extension: {extension}\ncurrency: USD\nas_of: 2026-01-01\nsource: the test\nbasis: metered\n\
             bundled: [memory]\nrates:\n  \
             - {{ meter: vcpu, amount: 0.0{cents}, per: second, unit: vcpu }}\n  \
             - {{ meter: vcpu, amount: 0.00{cents}, per: second, unit: vcpu, states: [paused] }}\n"
        );
        self.write(&format!("prices/{extension}.yaml"), &text);
    }

    /// A profile that is known in this home; `text` is all but its name.
    pub(crate) fn profile(&self, name: &str, text: &str) {
        let head = format!("id: profile.{name}\nversion: \"1.0.0\"\n");
        self.write(&format!(".sandboxer/profiles/{name}.yaml"), &format!("{head}{text}"));
    }

    /// The command with nothing of the surroundings, which dies at `fault`.
    pub(crate) fn command(&self, fault: Option<&str>, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandboxer"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("SANDBOXER_HOME", self.state())
            .env("SANDBOXER_PRICES", self.path().join("prices"))
            .envs(fault.map(|point| ("SANDBOXER_FAULT", point)))
            .envs(self.variables.iter().map(|(name, value)| (*name, value)))
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, fault: Option<&str>, arguments: &[&str]) -> Output {
        self.command(fault, arguments).output().unwrap()
    }

    /// stdout of a command that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(None, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// The command reaches the point, and the point ends it.
    #[track_caller]
    pub(crate) fn dies(&self, point: &str, arguments: &[&str]) {
        let output = self.run(Some(point), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(9), "{arguments:?} passed {point} by: {output:?}\n{said}");
    }

    /// Every sandbox that ever was; whoever asks settles what others left.
    pub(crate) fn rows(&self) -> Vec<Value> {
        self.json(&["list", "--all"])["items"].as_array().unwrap().clone()
    }

    /// Those that are not destroyed.
    pub(crate) fn living(&self) -> Vec<Value> {
        self.rows().into_iter().filter(|row| row["state"] != "destroyed").collect()
    }

    /// A server that does the same dies of it, and another one looks at what is left.
    #[track_caller]
    pub(crate) fn server_dies(&self, point: &str, arguments: &[&str]) {
        let (mut server, url) = self.serve(Some(point));
        let output = self.run(None, &[arguments, &["--server", &url]].concat());
        assert!(!output.status.success(), "{arguments:?} passed {point} by: {output:?}");
        server.dies(point);
        let (_next, url) = self.serve(None);
        self.ok(&["list", "--server", &url]);
    }

    /// A server that dies at `fault`, and its address.
    pub(crate) fn serve(&self, fault: Option<&str>) -> (Server, String) {
        use std::io::BufRead as _;
        let mut command = self.command(fault, &["serve", "--json", "--listen", "127.0.0.1:0"]);
        let log = std::fs::File::create(self.path().join("server.log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        (Server(child), told["url"].as_str().unwrap().to_owned())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Only where a test failed is anything there.
        if std::thread::panicking() {
            let _ = self.run(None, &["-q", "destroy", "--all", "--yes"]);
        }
    }
}

pub(crate) struct Server(Child);

impl Server {
    /// Waits for its death.
    pub(crate) fn dies(&mut self, point: &str) {
        super::left::eventually(&format!("the server passed {point} by"), || {
            self.0.try_wait().unwrap().is_some()
        });
        assert_eq!(self.0.wait().unwrap().signal(), Some(9), "{point}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does it for each, several at a time, and fails where one of them does.
pub(crate) fn each<T: Send>(of: Vec<T>, work: impl Fn(T) + Sync) {
    assert!(!of.is_empty());
    let queue = Mutex::new(of.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let Some(next) = queue.lock().unwrap().next() else { return };
                    work(next);
                }
            });
        }
    });
}

/// The points of the engine in these groups.
pub(crate) fn of_engine(groups: &[&str]) -> Vec<&'static str> {
    let points = sandboxer_engine::fault::POINTS.iter().copied();
    points.filter(|point| groups.contains(&group(point))).collect()
}

/// `pause` of `engine.pause.after_intent`.
pub(crate) fn group(point: &str) -> &str {
    point.split('.').nth(1).unwrap()
}
