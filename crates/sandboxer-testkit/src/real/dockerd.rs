//! A real Docker engine on a private socket: own files, own network namespace, nothing of the machine's touched.
//!
//! A small keeper process holds the namespaces. It hangs on a pipe of the test process and ends daemon, containers,
//! mounts and directories when that pipe closes, so that even a test process that is killed leaves nothing behind.

use std::io::{BufRead, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const KEEPER: &str = include_str!("keeper.sh");
const START_LIMIT: Duration = Duration::from_secs(40);
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A running engine. Dropping it removes everything that it made.
pub struct Dockerd {
    directory: PathBuf,
    cgroup: String,
    keeper: Mutex<Child>,
    daemon: Mutex<Option<Child>>,
}

/// The engine that all tests of one process share. The keeper stops it when the process ends.
pub fn shared() -> Result<&'static Dockerd, String> {
    static SHARED: OnceLock<Result<Dockerd, String>> = OnceLock::new();
    SHARED.get_or_init(Dockerd::start).as_ref().map_err(Clone::clone)
}

impl Dockerd {
    /// Starts an engine in a network namespace of its own: bridge networks work, published ports are on that
    /// namespace's loopback, and nothing leads out of it.
    pub fn start() -> Result<Self, String> {
        for program in ["dockerd", "docker", "containerd", "unshare", "nsenter", "ip"] {
            find(program).ok_or_else(|| format!("`{program}` is not installed"))?;
        }
        if !rustix::process::geteuid().is_root() {
            return Err("only root can start a docker engine".into());
        }
        let directory = tempfile::Builder::new().prefix("sbxd").tempdir().map_err(say)?.keep();
        let cgroup = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let keeper = start_keeper(&directory, &cgroup)?;
        let engine = Self { directory, cgroup, keeper: Mutex::new(keeper), daemon: Mutex::new(None) };
        std::fs::write(engine.directory.join("daemon.json"), configuration()).map_err(say)?;
        engine.launch()?;
        Ok(engine)
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("docker.sock")
    }

    /// `unix:///…/docker.sock`.
    pub fn docker_host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// What a docker client needs in its environment.
    pub fn env(&self) -> Vec<(String, String)> {
        vec![("DOCKER_HOST".into(), self.docker_host())]
    }

    /// The docker command line, talking to this engine.
    pub fn docker(&self, args: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.args(args).envs(self.env()).stdin(Stdio::null());
        command
    }

    /// Runs the docker command line to its end and gives its output, without the last line break.
    pub fn run(&self, args: &[&str]) -> Result<String, String> {
        let output = self.docker(args).output().map_err(say)?;
        if !output.status.success() {
            return Err(format!("docker {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// The network namespace in which published ports are found, for `nsenter --net=…`.
    pub fn netns(&self) -> PathBuf {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).id();
        PathBuf::from(format!("/proc/{keeper}/ns/net"))
    }

    /// A program that runs in the engine's network namespace.
    pub fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.netns().display())).args(["--", program]).envs(self.env());
        command
    }

    /// Moves the calling thread, and threads that it starts from now on, into the engine's network namespace.
    /// With a runtime on the current thread, connections to `127.0.0.1` then reach published ports.
    pub fn enter_network(&self) -> Result<(), String> {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        let namespace = std::fs::File::open(self.netns()).map_err(say)?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).map_err(say)
    }

    /// Makes a tiny image: a static busybox with all its applets, `root` and the user `sandbox` (1000).
    pub fn import_busybox(&self, name: &str) -> Result<(), String> {
        let tar = busybox_rootfs()?;
        let mut import = self
            .docker(&["import", "--change", "CMD [\"/bin/sh\"]", "--change", "ENV PATH=/bin", "-", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(say)?;
        // The pipe closes at the end of the statement, which ends the import's input.
        import.stdin.take().ok_or("no pipe")?.write_all(&tar).map_err(say)?;
        let output = import.wait_with_output().map_err(say)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Stops the daemon, and with it its containers; its data stays.
    pub fn stop(&self) {
        // The daemon would wait ten seconds for each program that ignores its polite signal.
        let running = if self.is_running() { self.run(&["ps", "--quiet"]) } else { Err(String::new()) };
        if let Ok(running) = running
            && !running.is_empty()
        {
            let _ = self.docker(&["kill"]).args(running.lines()).output();
        }
        self.end(Signal::TERM);
    }

    /// Ends the daemon as a crash would. Containers go on until the next start.
    pub fn crash(&self) {
        self.end(Signal::KILL);
    }

    /// Stops the daemon if it runs, and starts it again on the same data and socket.
    pub fn restart(&self) -> Result<(), String> {
        self.stop();
        self.launch()
    }

    /// What the daemon wrote, for the message of a failed test.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn launch(&self) -> Result<(), String> {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).id();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("log"))
            .map_err(say)?;
        let child = Command::new("nsenter")
            .arg(format!("--net=/proc/{keeper}/ns/net"))
            .arg(format!("--mount=/proc/{keeper}/ns/mnt"))
            .args(["--", "dockerd", "--host", &self.docker_host()])
            .args(["--iptables=false", "--ip6tables=false", "--shutdown-timeout=2"])
            .args(["--cgroup-parent", &format!("/{}", self.cgroup)])
            .args(self.path_flag("--config-file", "daemon.json"))
            .args(self.path_flag("--data-root", "data"))
            .args(self.path_flag("--exec-root", "exec"))
            .args(self.path_flag("--pidfile", "pid"))
            // Not the proxies and settings of whoever runs the tests.
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("TMPDIR", &self.directory)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(say)?;
        *self.daemon.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        let end = Instant::now() + START_LIMIT;
        while Instant::now() < end && self.is_running() {
            if self.run(&["version", "--format", "{{.Server.Version}}"]).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let said = self.log();
        self.end(Signal::KILL);
        Err(format!("dockerd did not start: {}", said.lines().last().unwrap_or("it said nothing")))
    }

    fn path_flag(&self, flag: &str, name: &str) -> [String; 2] {
        [flag.to_owned(), self.directory.join(name).display().to_string()]
    }

    fn is_running(&self) -> bool {
        let mut daemon = self.daemon.lock().unwrap_or_else(PoisonError::into_inner);
        daemon.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    fn end(&self, signal: Signal) {
        let child = self.daemon.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut child) = child else { return };
        if let Ok(pid) = i32::try_from(child.id())
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = kill_process(pid, signal);
        }
        if !wait(&mut child, STOP_LIMIT) {
            let _ = child.kill();
        }
        let _ = child.wait();
    }
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        self.stop();
        let keeper = self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(keeper.stdin.take());
        if !wait(keeper, STOP_LIMIT) {
            let _ = keeper.kill();
        }
        let _ = keeper.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn start_keeper(directory: &Path, cgroup: &str) -> Result<Child, String> {
    let mut keeper = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private", "--", "sh", "-c", KEEPER, "keeper"])
        .arg(directory)
        .arg(cgroup)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(say)?;
    let mut line = String::new();
    if let Some(stdout) = keeper.stdout.take() {
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    if line.trim() != "ready" {
        let _ = keeper.kill();
        let _ = keeper.wait();
        let _ = std::fs::remove_dir_all(directory);
        return Err("no namespaces for a docker engine: `unshare --net --mount` failed".into());
    }
    Ok(keeper)
}

/// gVisor is offered where it is installed. Its own network stack wants interfaces that a container without a network
/// does not have.
fn configuration() -> String {
    match find("runsc") {
        Some(runsc) => serde_json::json!({
            "runtimes": { "runsc": { "path": runsc, "runtimeArgs": ["--network=none"] } }
        })
        .to_string(),
        None => "{}".into(),
    }
}

/// The tar of a root file system with a static busybox.
pub fn busybox_rootfs() -> Result<Vec<u8>, String> {
    let busybox = find("busybox").ok_or("`busybox` is not installed")?;
    let applets = Command::new(&busybox).arg("--list").output().map_err(say)?.stdout;
    let program = std::fs::read(&busybox).map_err(say)?;
    let mut tar = tar::Builder::new(Vec::new());
    for directory in ["bin/", "etc/", "home/", "proc/", "sys/", "dev/", "root/", "run/", "var/"] {
        append(&mut tar, tar::EntryType::Directory, directory, 0o755, 0, &[])?;
    }
    append(&mut tar, tar::EntryType::Directory, "tmp/", 0o1777, 0, &[])?;
    append(&mut tar, tar::EntryType::Directory, "var/tmp/", 0o1777, 0, &[])?;
    append(&mut tar, tar::EntryType::Directory, "home/sandbox/", 0o755, 1000, &[])?;
    let passwd = b"root:x:0:0:root:/root:/bin/sh\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n";
    append(&mut tar, tar::EntryType::Regular, "etc/passwd", 0o644, 0, passwd)?;
    append(&mut tar, tar::EntryType::Regular, "etc/group", 0o644, 0, b"root:x:0:\nsandbox:x:1000:\n")?;
    append(&mut tar, tar::EntryType::Regular, "bin/busybox", 0o755, 0, &program)?;
    for applet in String::from_utf8_lossy(&applets).lines().filter(|applet| *applet != "busybox") {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        tar.append_link(&mut header, format!("bin/{applet}"), "busybox").map_err(say)?;
    }
    tar.into_inner().map_err(say)
}

fn append(
    tar: &mut tar::Builder<Vec<u8>>,
    kind: tar::EntryType,
    path: &str,
    mode: u32,
    owner: u64,
    data: &[u8],
) -> Result<(), String> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(owner);
    header.set_gid(owner);
    header.set_size(data.len() as u64);
    tar.append_data(&mut header, path, data).map_err(say)
}

fn wait(child: &mut Child, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

fn say(error: impl std::fmt::Display) -> String {
    error.to_string()
}
