//! What is measured of us in the same rounds as the peers.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::contender::{Contender, Record, timed};
use crate::server::{Api, Cli, PROFILE, Server, TTL};

/// What the figures of one server are called.
pub(crate) struct Names {
    create: &'static str,
    first_exec: &'static str,
    create_exec: &'static str,
    destroy: &'static str,
    create_exec_destroy: &'static str,
}

/// A server as it comes, which has a few sandboxes ready.
pub(crate) const WARM: Names = Names {
    create: "http_create",
    first_exec: "http_first_exec",
    create_exec: "http_create_exec",
    destroy: "http_destroy",
    create_exec_destroy: "http_create_exec_destroy",
};
/// A server that makes every sandbox when it is asked for.
pub(crate) const COLD: Names = Names {
    create: "cold_create",
    first_exec: "cold_first_exec",
    create_exec: "cold_create_exec",
    destroy: "cold_destroy",
    create_exec_destroy: "cold_create_exec_destroy",
};

/// Over HTTP: create, first command, and the end apart.
pub(crate) struct HttpCreate {
    api: Api,
    names: Names,
}

impl HttpCreate {
    pub(crate) fn new(server: &Server, names: Names) -> Result<Self> {
        Ok(Self { api: server.api()?, names })
    }
}

impl Contender for HttpCreate {
    fn name(&self) -> &'static str {
        self.names.create_exec
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        let (id, create) = timed(|| self.api.create())?;
        let ((), first) = timed(|| self.api.exec_true(&id))?;
        let ((), destroy) = timed(|| self.api.destroy(&id))?;
        record(self.names.create, create);
        record(self.names.first_exec, first);
        record(self.names.create_exec, create + first);
        record(self.names.destroy, destroy);
        record(self.names.create_exec_destroy, create + first + destroy);
        Ok(())
    }

    /// A server that makes the next one in advance does so now, at nobody else's expense.
    fn rest(&self) -> Duration {
        Duration::from_millis(50)
    }
}

/// Over HTTP: a command in a sandbox that is there.
pub(crate) struct HttpExec {
    api: Api,
    id: String,
}

impl HttpExec {
    pub(crate) fn new(server: &Server) -> Result<Self> {
        let mut api = server.api()?;
        let id = api.create()?;
        Ok(Self { api, id })
    }
}

impl Contender for HttpExec {
    fn name(&self) -> &'static str {
        "exec over HTTP"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        record("http_exec", timed(|| self.api.exec_true(&self.id))?.1);
        Ok(())
    }
}

impl Drop for HttpExec {
    fn drop(&mut self) {
        let _ = self.api.destroy(&self.id);
    }
}

/// The command line without a server: one process a command, on a home that no other process holds open.
pub(crate) struct CliCreate(Cli);

impl CliCreate {
    pub(crate) fn new(cli: &Cli) -> Self {
        Self(cli.clone())
    }
}

impl Contender for CliCreate {
    fn name(&self) -> &'static str {
        "create by the command line"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        let (id, create) = timed(|| cli_create(&self.0))?;
        let (_, first) = timed(|| self.0.run(&["exec", &id, "--", "/bin/true"]))?;
        self.0.run(&["destroy", &id])?;
        record("cli_create", create);
        record("cli_create_exec", create + first);
        Ok(())
    }
}

fn cli_create(cli: &Cli) -> Result<String> {
    let id = cli.run(&["create", "--profile", PROFILE, "--ttl", TTL])?;
    ensure!(id.starts_with("sbx_"), "`sandboxer create` printed `{id}`");
    Ok(id)
}

pub(crate) struct CliExec {
    cli: Cli,
    id: String,
}

impl CliExec {
    pub(crate) fn new(cli: &Cli) -> Result<Self> {
        Ok(Self { cli: cli.clone(), id: cli_create(cli)? })
    }
}

impl Contender for CliExec {
    fn name(&self) -> &'static str {
        "exec by the command line"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        record("cli_exec", timed(|| self.cli.run(&["exec", &self.id, "--", "/bin/true"]))?.1);
        Ok(())
    }
}
