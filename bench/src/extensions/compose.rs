//! Many compose stacks of one file at the same moment on one engine.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use sandboxer_testkit::real::dockerd::Dockerd;
use serde_json::{Value, json};

use crate::options::Options;
use crate::results::Results;
use crate::server::{Cli, Server, TTL, WarmPool};

const IMAGE: &str = "sandboxer-bench:latest";
const FILE: &str = "services:
  web:
    image: sandboxer-bench:latest
    command: [\"httpd\", \"-f\", \"-p\", \"8080\"]
    ports: [\"8080:8080\"]
";

pub(crate) struct Stacks {
    pub(crate) asked: usize,
    pub(crate) ready: usize,
    /// Different addresses among those that were published.
    pub(crate) ports: usize,
    wall: Duration,
    failures: Vec<String>,
}

impl Stacks {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "asked": self.asked, "ready": self.ready, "ports": self.ports, "failures": self.failures,
            "wall_ms": self.wall.as_secs_f64() * 1e3,
        })
    }
}

impl fmt::Display for Stacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked, ready, ports) = (self.asked, self.ready, self.ports);
        let seconds = self.wall.as_secs_f64();
        write!(f, "{asked} compose stacks at once: {ready} ready, {ports} addresses, {seconds:.1} s in all")?;
        self.failures.iter().take(3).try_for_each(|why| write!(f, "\n  {why}"))
    }
}

pub(super) fn run(options: &Options, folder: &Path, results: &mut Results) -> Result<()> {
    let engine = Dockerd::start().map_err(|why| anyhow!(why))?;
    engine.import_busybox(IMAGE).map_err(|why| anyhow!(why))?;
    let repo = folder.join("repo");
    std::fs::create_dir_all(&repo)?;
    std::fs::write(repo.join("compose.yaml"), FILE)?;
    let cli = Cli::new(&options.binary, &folder.join("home")).with("DOCKER_HOST", engine.docker_host());
    let server = Server::start_on(cli, WarmPool::Off)?;
    let request = json!({
        "profile": "profile.compose-e2e", "ttl": TTL, "host": "local",
        "inputs": { "repo": repo.display().to_string() },
    });
    let asked = options.sizes.extensions.stacks;
    let start = Instant::now();
    let made: Vec<Result<Value>> = std::thread::scope(|scope| {
        let callers: Vec<_> =
            (0..asked).map(|_| scope.spawn(|| server.api()?.create_whole(&request))).collect();
        let lost = |_| Err(anyhow!("the caller broke off"));
        callers.into_iter().map(|caller| caller.join().unwrap_or_else(lost)).collect()
    });
    let wall = start.elapsed();
    let mut stacks = Stacks { asked, ready: 0, ports: 0, wall, failures: Vec::new() };
    let (mut addresses, mut api) = (BTreeSet::new(), server.api()?);
    for sandbox in made {
        match sandbox {
            Ok(sandbox) => {
                stacks.ready += usize::from(sandbox["state"] == "ready");
                for port in sandbox["reachability"]["ports"].as_array().into_iter().flatten() {
                    addresses.insert(port["address"].to_string());
                }
                api.destroy(sandbox["sandbox_id"].as_str().unwrap_or_default())?;
            }
            Err(error) => stacks.failures.push(format!("{error:#}")),
        }
    }
    stacks.ports = addresses.len();
    results.stacks = Some(stacks);
    Ok(())
}
