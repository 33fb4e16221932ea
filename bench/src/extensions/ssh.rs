//! A further exec through `ext.ssh` against `ssh` through a control socket of its own, on one host.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};
use sandboxer_testkit::real::sshd::SshHost;
use serde_json::json;

use super::profile;
use crate::contender::{Contender, Record, take_turns, timed};
use crate::options::Options;
use crate::peers::run_to_end;
use crate::results::Results;
use crate::server::{Api, Cli, Server, TTL, WarmPool};

pub(super) fn run(options: &Options, folder: &Path, results: &mut Results) -> Result<()> {
    SshHost::available().map_err(|why| anyhow!(why))?;
    let host = SshHost::start("bench");
    let text = "id: profile.bench-ssh\nversion: \"1.0.0\"\nextends: profile.ssh-dev\n";
    let profiles = profile(folder, "bench-ssh", text)?;
    let cli = Cli::new(&options.binary, &folder.join("home")).with("SANDBOXER_PROFILES", profiles);
    let address = format!("ssh://{}@{}:{}", host.user(), host.address(), host.port());
    let identity = host.identity_file().display().to_string();
    cli.run(&[
        "hosts",
        "add",
        "bench",
        &address,
        "--identity-file",
        &identity,
        "--host-key",
        &host.host_key(),
    ])?;
    let server = Server::start_on(cli, WarmPool::Off)?;
    let mut api = server.api()?;
    let id = api.create_as(&json!({ "profile": "profile.bench-ssh", "ttl": TTL, "host": "bench" }))?;
    let mut contenders: Vec<Box<dyn Contender>> =
        vec![Box::new(Bare::start(&host, folder)?), Box::new(Ours { api: server.api()?, id: id.clone() })];
    let measured = take_turns(&mut contenders, 5, options.sizes.extensions.ssh);
    drop(contenders);
    api.destroy(&id)?;
    results.extensions.extend(measured?);
    Ok(())
}

/// `ssh` as a person would set it up: one connection that stays, one process for each command.
struct Bare {
    options: Vec<String>,
    control: PathBuf,
}

impl Bare {
    fn start(host: &SshHost, folder: &Path) -> Result<Self> {
        let known = folder.join("known_hosts");
        // The usual port has a form of its own.
        let place = match host.port() {
            22 => host.address().to_owned(),
            port => format!("[{}]:{port}", host.address()),
        };
        std::fs::write(&known, format!("{place} {}\n", host.host_key()))?;
        let control = std::env::temp_dir().join(format!("{}-ssh", crate::cleanup::name()));
        let option = |name: &str, value: String| ["-o".to_owned(), format!("{name}={value}")];
        let mut options = vec!["-F".to_owned(), "/dev/null".to_owned()];
        options.extend(option("UserKnownHostsFile", known.display().to_string()));
        options.extend(option("StrictHostKeyChecking", "yes".into()));
        options.extend(option("BatchMode", "yes".into()));
        options.extend(option("ControlPath", control.display().to_string()));
        options.extend(["-i".to_owned(), host.identity_file().display().to_string()]);
        options.extend(["-p".to_owned(), host.port().to_string()]);
        options.push(format!("{}@{}", host.user(), host.address()));
        let mut master = Command::new("ssh");
        master.args(["-M", "-N", "-f"]).args(&options);
        run_to_end(&mut master).context("the first connection")?;
        Ok(Self { options, control })
    }
}

impl Contender for Bare {
    fn name(&self) -> &'static str {
        "bare ssh"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        record("ssh_bare", run_to_end(Command::new("ssh").args(&self.options).arg("/bin/true"))?);
        Ok(())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = run_to_end(Command::new("ssh").args(["-O", "exit"]).args(&self.options));
        let _ = std::fs::remove_file(&self.control);
    }
}

struct Ours {
    api: Api,
    id: String,
}

impl Contender for Ours {
    fn name(&self) -> &'static str {
        "ext.ssh over HTTP"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        record("ssh_ours", timed(|| self.api.exec_true(&self.id))?.1);
        Ok(())
    }
}
