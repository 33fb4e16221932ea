//! Our side: a server on a home of its own, and the calls that are measured.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::cleanup::{self, Guard, Managed};
use crate::http::Client;

pub(crate) const PROFILE: &str = "profile.agent-dev";
/// Long enough for the longest phase; a bench that is killed leaves nothing for longer than this.
pub(crate) const TTL: &str = "20m";

/// The command `sandboxer` on one home. Variables of the caller do not reach it.
#[derive(Clone)]
pub(crate) struct Cli {
    binary: PathBuf,
    home: PathBuf,
    variables: Vec<(String, String)>,
}

impl Cli {
    pub(crate) fn new(binary: &Path, home: &Path) -> Self {
        Self { binary: binary.to_owned(), home: home.to_owned(), variables: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        let foreign = std::env::vars_os().map(|(name, _)| name);
        for name in foreign.filter(|name| name.to_string_lossy().starts_with("SANDBOXER_")) {
            command.env_remove(name);
        }
        // A configuration of the person who runs the bench must not change what is measured.
        command.env("SANDBOXER_HOME", &self.home).env("XDG_CONFIG_HOME", self.home.join("config"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.args(args).stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// Runs to the end and gives what it printed.
    pub(crate) fn run(&self, args: &[&str]) -> Result<String> {
        let output =
            self.command(args).output().with_context(|| format!("cannot run {}", self.binary.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`sandboxer {}` failed: {}", args.join(" "), said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Sees to it that no sandbox of this home outlives the guard.
    pub(crate) fn guard(&self) -> Guard {
        let ending = self.clone();
        cleanup::on_end(move || ending.destroy_all())
    }

    /// Ends every sandbox of this home, with or without a server.
    fn destroy_all(&self) {
        let Ok(listed) = self.run(&["list", "--json"]) else { return };
        let documents = serde_json::Deserializer::from_str(&listed).into_iter::<Value>();
        let mut ids = Vec::new();
        documents.flatten().for_each(|document| collect_ids(&document, &mut ids));
        for some in ids.chunks(100) {
            let mut args = vec!["destroy"];
            args.extend(some.iter().map(String::as_str));
            if let Err(error) = self.run(&args) {
                crate::report::note(&format!("some sandboxes could not be destroyed: {error:#}"));
            }
        }
    }
}

fn collect_ids(value: &Value, ids: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_ids(item, ids)),
        Value::Object(fields) => match fields.get("sandbox_id").and_then(Value::as_str) {
            Some(id) => ids.push(id.to_owned()),
            None => fields.values().for_each(|value| collect_ids(value, ids)),
        },
        _ => {}
    }
}

/// Whether the server has sandboxes ready before they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarmPool {
    /// As it comes.
    Usual,
    /// Every sandbox is made when it is asked for.
    Off,
}

/// A running `sandboxer serve`; ended with all its sandboxes when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    _guard: Guard,
}

impl Server {
    pub(crate) fn start(binary: &Path, home: &Path, pool: WarmPool) -> Result<Self> {
        Self::start_on(Cli::new(binary, home), pool)
    }

    /// On a home whose command line was already used, or has variables of its own.
    pub(crate) fn start_on(cli: Cli, pool: WarmPool) -> Result<Self> {
        let (binary, home) = (cli.binary.clone(), cli.home.clone());
        std::fs::create_dir_all(&home)?;
        let address = free_address()?;
        let log = home.join("server.log");
        let mut serve = cli.command(&["serve", "--listen", &address.to_string()]);
        if pool == WarmPool::Off {
            serve.env("SANDBOXER_WARM", "0");
        }
        let process = Managed::spawn(serve.stdout(Stdio::null()).stderr(File::create(&log)?))
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let ending = process.clone();
        let guard = cleanup::on_end(move || {
            ending.stop(Duration::from_secs(40));
            cli.destroy_all();
        });
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end && process.is_running() {
            std::thread::sleep(Duration::from_millis(10));
            let ready = Client::connect(address).and_then(|mut client| client.get("/readyz"));
            if ready.is_ok_and(|answer| answer.status == 200) {
                return Ok(Self { address, _guard: guard });
            }
        }
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        bail!("`sandboxer serve` was not ready in time; it said: {}", said.trim())
    }

    pub(crate) fn api(&self) -> Result<Api> {
        Ok(Api { client: Client::connect(self.address)? })
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The calls, on one connection that stays open.
pub(crate) struct Api {
    pub(crate) client: Client,
}

impl Api {
    pub(crate) fn create(&mut self) -> Result<String> {
        self.create_as(&json!({ "profile": PROFILE, "ttl": TTL, "labels": { "made-by": "bench" } }))
    }

    pub(crate) fn create_as(&mut self, request: &Value) -> Result<String> {
        let sandbox = self.create_whole(request)?;
        let id = sandbox["sandbox_id"].as_str().context("the created sandbox has no id")?;
        Ok(id.to_owned())
    }

    /// The whole document of a new sandbox.
    pub(crate) fn create_whole(&mut self, request: &Value) -> Result<Value> {
        self.client.post("/v1/sandboxes", &request.to_string())?.expect(201)
    }

    /// Runs `/bin/true`; anything but exit code 0 is an error.
    pub(crate) fn exec_true(&mut self, id: &str) -> Result<()> {
        let path = format!("/v1/sandboxes/{id}/execs");
        let outcome = self.client.post(&path, r#"{"command":["/bin/true"]}"#)?.expect(200)?;
        ensure!(outcome["exit_code"] == 0, "/bin/true ended with {outcome}");
        Ok(())
    }

    pub(crate) fn destroy(&mut self, id: &str) -> Result<()> {
        let sandbox = self.client.delete(&format!("/v1/sandboxes/{id}"))?.expect(200)?;
        ensure!(sandbox["state"] == "destroyed", "{id} is {} after its end", sandbox["state"]);
        Ok(())
    }

    /// The processes of a sandbox that are there while nothing runs in it: supervisor and init.
    pub(crate) fn processes(&mut self, id: &str) -> Result<[i64; 2]> {
        let seen = self.client.get(&format!("/v1/inspect/sandboxes/{id}"))?.expect(200)?;
        let detail = &seen["backend"]["detail"];
        let pid = |name: &str| detail[name].as_i64().with_context(|| format!("{id} has no `{name}`: {seen}"));
        Ok([pid("supervisor_pid")?, pid("init_pid")?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_in_lists_and_in_pages() {
        let mut ids = Vec::new();
        collect_ids(&json!({ "items": [{ "sandbox_id": "sbx_a" }, { "sandbox_id": "sbx_b" }] }), &mut ids);
        collect_ids(&json!([{ "sandbox_id": "sbx_c", "consumer": {} }]), &mut ids);
        assert_eq!(ids, ["sbx_a", "sbx_b", "sbx_c"]);
    }
}
