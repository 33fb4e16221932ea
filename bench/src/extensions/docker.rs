//! `ext.docker` against the docker command line with the same hardening, on one engine.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use sandboxer_testkit::real::dockerd::Dockerd;
use serde_json::json;

use super::profile;
use crate::contender::{Contender, Record, take_turns, timed};
use crate::options::Options;
use crate::results::Results;
use crate::server::{Api, Cli, Server, TTL, WarmPool};

const IMAGE: &str = "sandboxer-bench:latest";
/// What the engine does for us, asked for by hand.
const HARDENED: [&str; 24] = [
    "--network=none",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--read-only",
    "--tmpfs=/tmp",
    "--tmpfs=/var/tmp",
    "--tmpfs=/run",
    "--init",
    "--pids-limit=256",
    "--memory=512m",
    "--memory-swap=512m",
    "--cpus=1",
    "--user=1000:1000",
    "--volume=/workspace",
    "--workdir=/workspace",
    "--label=bench=1",
    "--env=LANG=C.UTF-8",
    "--ulimit=core=0",
    "--hostname=bench",
    "--ipc=private",
    "--log-driver=none",
    "--stop-timeout=0",
    "--restart=no",
    "--rm",
];

pub(super) fn run(options: &Options, folder: &Path, results: &mut Results) -> Result<()> {
    let engine = Rc::new(Dockerd::start().map_err(|why| anyhow!(why))?);
    engine.import_busybox(IMAGE).map_err(|why| anyhow!(why))?;
    let text = format!(
        "id: profile.bench-docker\nversion: \"1.0.0\"\nextends: profile.base\nextension: ext.docker\nimage: {IMAGE}\n"
    );
    let profiles = profile(folder, "bench-docker", &text)?;
    let cli = Cli::new(&options.binary, &folder.join("home"))
        .with("SANDBOXER_PROFILES", profiles)
        .with("DOCKER_HOST", engine.docker_host());
    let server = Server::start_on(cli, WarmPool::Off)?;
    let mut contenders: Vec<Box<dyn Contender>> =
        vec![Box::new(Bare { engine: engine.clone(), turns: 0 }), Box::new(Ours { api: server.api()? })];
    results.extensions.extend(take_turns(&mut contenders, 2, options.sizes.extensions.docker)?);
    Ok(())
}

struct Bare {
    engine: Rc<Dockerd>,
    turns: usize,
}

impl Contender for Bare {
    fn name(&self) -> &'static str {
        "the docker command line"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        self.turns += 1;
        let name = format!("bench-{}", self.turns);
        let mut run = self.engine.docker(&["run", "--detach", "--name", &name]);
        run.args(HARDENED).args([IMAGE, "sleep", "1200"]);
        let ((), took) = timed(|| {
            succeed(&mut run)?;
            succeed(&mut self.engine.docker(&["exec", &name, "/bin/true"]))
        })?;
        record("docker_bare", took);
        succeed(&mut self.engine.docker(&["rm", "--force", "--volumes", &name]))
    }

    /// The engine goes on cleaning up after the client has returned.
    fn rest(&self) -> Duration {
        Duration::from_millis(300)
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {}", output.status, said.trim());
    Ok(())
}

struct Ours {
    api: Api,
}

impl Contender for Ours {
    fn name(&self) -> &'static str {
        "ext.docker over HTTP"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        let request = json!({ "profile": "profile.bench-docker", "ttl": TTL });
        let (id, took) = timed(|| {
            let id = self.api.create_as(&request)?;
            self.api.exec_true(&id)?;
            Ok(id)
        })?;
        record("docker_ours", took);
        self.api.destroy(&id)
    }

    fn rest(&self) -> Duration {
        Duration::from_millis(300)
    }
}
