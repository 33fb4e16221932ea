//! Real SSH hosts in namespaces of their own: network, mounts and processes, so that several of them on one machine
//! have different addresses, home directories and process lists, and nothing outlives its test.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sandboxer_core::host::{Host, HostAccess, SshAccess};

/// The server insists on an absolute path, since it executes itself again for each connection.
const SSHD: &str = "/usr/sbin/sshd";
/// /30 networks of 10.213.0.0/16.
const NETWORKS: u32 = 16_384;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// How a host differs from a plain one.
#[derive(Clone, Debug, Default)]
pub struct SshHostOptions {
    /// The home is a file system of its own with no more room than this.
    pub home_mb: Option<u32>,
    /// Further lines of the server's configuration.
    pub config: Vec<String>,
    /// Shell lines that the host runs before its server starts: mounts, variables.
    pub prepare: Vec<String>,
}

/// One SSH server that a test can reach. Dropping it removes everything.
pub struct SshHost {
    name: String,
    netns: String,
    veth: String,
    address: String,
    options: SshHostOptions,
    dir: tempfile::TempDir,
    /// `unshare`; its only child is the server, the first process of the namespace.
    process: Option<Child>,
}

impl SshHost {
    /// Whether a host can be started here, or why not. For [`super::require`].
    pub fn available() -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("SSH hosts for tests need root, for their namespaces".into());
        }
        if !Path::new(SSHD).exists() {
            return Err(format!("{SSHD} is not there; install openssh-server"));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = |tool: &&str| std::env::split_paths(&path).any(|dir| dir.join(tool).exists());
        match ["ip", "unshare", "nsenter", "ssh", "ssh-keygen"].iter().find(|tool| !is_there(tool)) {
            Some(tool) => Err(format!("`{tool}` is not there")),
            None => Ok(()),
        }
    }

    /// A host that answers.
    pub fn start(name: &str) -> Self {
        Self::start_with(name, SshHostOptions::default())
    }

    pub fn start_with(name: &str, options: SshHostOptions) -> Self {
        sweep();
        let dir = tempfile::Builder::new().prefix("sbx-host-").tempdir().expect("a folder for the host");
        fs::create_dir(dir.path().join("home")).expect("a home for the host");
        let (netns, veth, address) = make_network();
        let mut host = Self { name: name.to_owned(), netns, veth, address, options, dir, process: None };
        host.make_key("host_key");
        host.make_key("client_key");
        host.restart();
        host
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn port(&self) -> u16 {
        22
    }

    pub fn user(&self) -> &str {
        "root"
    }

    /// The private key that is let in.
    pub fn identity_file(&self) -> PathBuf {
        self.dir.path().join("client_key")
    }

    /// The server's public key, `ssh-ed25519 AAAA…`.
    pub fn host_key(&self) -> String {
        let text = fs::read_to_string(self.dir.path().join("host_key.pub")).expect("the host's public key");
        text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    /// What `~` of the host is on this machine; empty behind a small file system of its own.
    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// The network namespace, for whatever else shall run in it: `ip netns exec NAME …`.
    pub fn netns(&self) -> &str {
        &self.netns
    }

    pub fn access(&self) -> SshAccess {
        SshAccess {
            address: self.address.clone(),
            port: self.port(),
            user: self.user().to_owned(),
            identity_file: Some(self.identity_file().display().to_string()),
            host_keys: vec![self.host_key()],
        }
    }

    /// The registered form of it.
    pub fn host(&self) -> Host {
        Host { name: self.name.clone(), access: HostAccess::Ssh(self.access()), ..Host::local() }
    }

    /// The same machine with another key, as after an attack or a new installation.
    pub fn rekey(&mut self) {
        self.stop();
        for file in ["host_key", "host_key.pub"] {
            fs::remove_file(self.dir.path().join(file)).expect("the old key goes");
        }
        self.make_key("host_key");
        self.restart();
    }

    /// Ends the server and every process of the host; the address stays, and refuses.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts the server again, with the keys and the home that it had.
    pub fn restart(&mut self) {
        self.stop();
        self.process = Some(self.launch());
        self.wait_until_it_answers();
    }

    /// Nothing gets through any more, and nobody is told.
    pub fn cut(&self) {
        run("ip", &["-n", &self.netns, "link", "set", "eth0", "down"]);
    }

    pub fn heal(&self) {
        run("ip", &["-n", &self.netns, "link", "set", "eth0", "up"]);
    }

    /// Runs a command on the host, past its SSH server.
    pub fn exec_in(&self, argv: &[&str]) -> Output {
        let init = self.init().to_string();
        Command::new("nsenter")
            .args(["-t", &init, "-m", "-n", "-p", "--"])
            .args(argv)
            .output()
            .expect("nsenter runs")
    }

    /// How many SSH connections are open to it.
    pub fn connections(&self) -> usize {
        let table = self.exec_in(&["cat", "/proc/net/tcp"]);
        // Local port 22 is 0016, the state of an open connection 01.
        String::from_utf8_lossy(&table.stdout)
            .lines()
            .filter(|line| {
                let mut fields = line.split_whitespace().skip(1);
                fields.next().is_some_and(|local| local.ends_with(":0016")) && fields.nth(1) == Some("01")
            })
            .count()
    }

    /// The command lines of every process of the host.
    pub fn processes(&self) -> Vec<String> {
        let listing =
            self.exec_in(&["sh", "-c", "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done"]);
        String::from_utf8_lossy(&listing.stdout)
            .lines()
            .map(str::to_owned)
            .filter(|line| !line.is_empty())
            .collect()
    }

    fn make_key(&self, file: &str) {
        let path = self.dir.path().join(file).display().to_string();
        run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", &path]);
        if file == "client_key" {
            let public = fs::read(self.dir.path().join("client_key.pub")).expect("the client's public key");
            fs::write(self.dir.path().join("authorized_keys"), public).expect("the client is let in");
        }
    }

    fn configuration(&self) -> String {
        let dir = self.dir.path().display();
        let mut lines = vec![
            format!("ListenAddress {}", self.address),
            "Port 22".into(),
            format!("HostKey {dir}/host_key"),
            "PidFile none".into(),
            format!("AuthorizedKeysFile {dir}/authorized_keys"),
            // The folders above belong to the test, not to the user.
            "StrictModes no".into(),
            "UsePAM no".into(),
            "PasswordAuthentication no".into(),
            "KbdInteractiveAuthentication no".into(),
            "PermitRootLogin prohibit-password".into(),
            "UseDNS no".into(),
            "PrintMotd no".into(),
            "LogLevel VERBOSE".into(),
        ];
        lines.extend(self.options.config.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn launch(&self) -> Child {
        let dir = self.dir.path().display().to_string();
        let config = self.dir.path().join("sshd_config");
        fs::write(&config, self.configuration()).expect("a configuration for the server");
        let home = match self.options.home_mb {
            Some(mb) => format!("mount -t tmpfs -o size={mb}m,mode=0700 home /root"),
            None => format!("mount --bind '{dir}/home' /root"),
        };
        // The host ends when its test does, even if that was killed: its end of the pipe on stdin closes then.
        let script = format!(
            "set -e\n{home}\nmkdir -p /run/sshd\n{}\ncd /root\nexport HOME=/root\nexec 5<&0\n(exec <&5 5<&-; cat >/dev/null; kill 1) &\nexec 5<&-\nexec {SSHD} -D -e -f '{dir}/sshd_config' </dev/null 2>>'{dir}/log'",
            self.options.prepare.join("\n"),
        );
        let script_path = self.dir.path().join("start");
        fs::File::create(&script_path)
            .and_then(|mut file| file.write_all(script.as_bytes()))
            .expect("a start script");
        fs::set_permissions(&script_path, fs::Permissions::from_mode(0o700)).expect("a start script");
        Command::new("ip")
            .args([
                "netns",
                "exec",
                &self.netns,
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["sh", "-c", "exec sh \"$0\"", &script_path.display().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .env_remove("SSH_AUTH_SOCK")
            .spawn()
            .expect("the host starts")
    }

    /// The first process of the host, as this machine numbers it.
    fn init(&self) -> u32 {
        let outer = self.process.as_ref().expect("the host runs").id();
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap_or_default();
        children
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok())
            .expect("the host has a first process")
    }

    fn wait_until_it_answers(&mut self) {
        let address: SocketAddr = format!("{}:{}", self.address, self.port()).parse().expect("an address");
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                let mut greeting = [0; 4];
                if stream.read_exact(&mut greeting).is_ok() && &greeting == b"SSH-" {
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        panic!("the SSH host {} does not answer: {log}", self.name);
    }
}

impl Drop for SshHost {
    fn drop(&mut self) {
        self.stop();
        let _ = Command::new("ip").args(["link", "del", &self.veth]).stderr(Stdio::null()).status();
        let _ = Command::new("ip").args(["netns", "del", &self.netns]).stderr(Stdio::null()).status();
    }
}

/// A network namespace, joined to this one by a pair of interfaces. The name of the interface claims the addresses.
fn make_network() -> (String, String, String) {
    let pid = std::process::id();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let netns = format!("sbxhost-{pid}-{count}");
    run("ip", &["netns", "add", &netns]);
    for attempt in 0..64 {
        let network = (pid.wrapping_mul(37) + count + attempt * 251) % NETWORKS;
        let veth = format!("sbxv{network}");
        let made = Command::new("ip")
            .args(["link", "add", &veth, "type", "veth", "peer", "name", "eth0", "netns", &netns])
            .stderr(Stdio::null())
            .status()
            .expect("ip runs");
        if !made.success() {
            continue;
        }
        let base = network * 4;
        let address = |last: u32| format!("10.213.{}.{}", (base + last) >> 8, (base + last) & 255);
        run("ip", &["addr", "add", &format!("{}/30", address(1)), "dev", &veth]);
        run("ip", &["link", "set", &veth, "up"]);
        run("ip", &["-n", &netns, "addr", "add", &format!("{}/30", address(2)), "dev", "eth0"]);
        run("ip", &["-n", &netns, "link", "set", "eth0", "up"]);
        run("ip", &["-n", &netns, "link", "set", "lo", "up"]);
        return (netns, veth, address(2));
    }
    panic!("no free network for an SSH host");
}

/// Removes what test processes that were killed have left.
fn sweep() {
    let Ok(names) = fs::read_dir("/run/netns") else { return };
    for name in names.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let owner = name.strip_prefix("sbxhost-").and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status();
        }
    }
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().expect("a tool of the test runs");
    assert!(
        output.status.success(),
        "{program} {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}
