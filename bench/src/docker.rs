//! A docker daemon of our own: own files, own socket, no bridge and no firewall rules, gone afterwards.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::bundle::Bundle;
use crate::cleanup::{self, Guard, Managed};
use crate::contender::{Contender, Record};
use crate::peers::{find, run_to_end};

const IMAGE: &str = "sandboxer-bench:latest";
const CONTAINER: &str = "sandboxer-bench";
/// overlay2 is what people run; vfs works where overlays cannot be stacked.
const DRIVERS: [&str; 2] = ["overlay2", "vfs"];

pub(crate) struct Docker {
    client: PathBuf,
    socket: String,
    pub(crate) driver: &'static str,
    _guard: Guard,
}

impl Docker {
    pub(crate) fn start(folder: &Path, bundle: &Bundle) -> Result<Self> {
        let daemon = find("dockerd").context("dockerd is not installed")?;
        let client = find("docker").context("docker is not installed")?;
        let mut last = None;
        for driver in DRIVERS {
            match Self::start_with(&daemon, &client, &folder.join(driver), driver, bundle) {
                Ok(docker) => return Ok(docker),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("no storage driver")))
    }

    fn start_with(
        daemon: &Path,
        client: &Path,
        folder: &Path,
        driver: &'static str,
        bundle: &Bundle,
    ) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let socket = format!("unix://{}", folder.join("sock").display());
        let log = folder.join("log");
        // Not the host's configuration.
        let config = folder.join("daemon.json");
        std::fs::write(&config, "{}")?;
        let mut serve = Command::new(daemon);
        serve
            .arg("--data-root")
            .arg(folder.join("data"))
            .arg("--exec-root")
            .arg(folder.join("exec"))
            .arg("--pidfile")
            .arg(folder.join("pid"))
            .args(["--host", &socket, "--storage-driver", driver, "--iptables=false", "--ip6tables=false"])
            .args([
                "--bridge=none",
                "--ip-forward=false",
                "--cgroup-parent",
                &cleanup::name(),
                "--config-file",
            ])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        let process = Managed::spawn(&mut serve).context("cannot start dockerd")?;
        let docker = |args: &[&str]| {
            let mut command = Command::new(client);
            command.args(["--host", &socket]).args(args);
            command
        };
        let (ending, mut remove) = (process.clone(), docker(&["rm", "--force", CONTAINER]));
        let guard = cleanup::on_end(move || {
            let _ = run_to_end(&mut remove);
            ending.stop(Duration::from_secs(30));
        });
        let mut up = false;
        let end = Instant::now() + Duration::from_secs(40);
        while !up && Instant::now() < end && process.is_running() {
            std::thread::sleep(Duration::from_millis(100));
            up = run_to_end(&mut docker(&["version"])).is_ok();
        }
        if !up {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            bail!(
                "dockerd with {driver} did not start: {}",
                said.lines().last().unwrap_or("it said nothing")
            );
        }
        let tar = bundle.tar()?.display().to_string();
        run_to_end(&mut docker(&["import", &tar, IMAGE])).context("docker import")?;
        let sleep = ["run", "--detach", "--name", CONTAINER, IMAGE, "/bin/sleep", "86400"];
        run_to_end(&mut docker(&sleep)).context("docker run")?;
        Ok(Self { client: client.to_owned(), socket, driver, _guard: guard })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.client);
        command.args(["--host", &self.socket]).args(args);
        command
    }

    pub(crate) fn contenders(self: &std::rc::Rc<Self>, every: usize) -> [Box<dyn Contender>; 2] {
        let run = Turn {
            docker: self.clone(),
            name: "docker_run",
            args: vec!["run", "--rm", IMAGE, "/bin/true"],
            every,
        };
        let exec = Turn {
            docker: self.clone(),
            name: "docker_exec",
            args: vec!["exec", CONTAINER, "/bin/true"],
            every,
        };
        [Box::new(run), Box::new(exec)]
    }
}

struct Turn {
    docker: std::rc::Rc<Docker>,
    name: &'static str,
    args: Vec<&'static str>,
    every: usize,
}

impl Contender for Turn {
    fn name(&self) -> &'static str {
        self.name
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        record(self.name, run_to_end(&mut self.docker.command(&self.args))?);
        Ok(())
    }

    fn every(&self) -> usize {
        self.every
    }

    /// The daemon goes on cleaning up after the client has returned.
    fn rest(&self) -> Duration {
        Duration::from_millis(300)
    }
}
