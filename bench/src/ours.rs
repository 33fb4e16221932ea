//! What is measured of us in the same rounds as the peers.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::contender::{Contender, Record, timed};
use crate::server::{Api, Cli, PROFILE, Server, TTL};

/// Over HTTP: create, first command, and the end apart.
pub(crate) struct HttpCreate(Api);

impl HttpCreate {
    pub(crate) fn new(server: &Server) -> Result<Self> {
        Ok(Self(server.api()?))
    }
}

impl Contender for HttpCreate {
    fn name(&self) -> &'static str {
        "create over HTTP"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        let (id, create) = timed(|| self.0.create())?;
        let ((), first) = timed(|| self.0.exec_true(&id))?;
        let ((), destroy) = timed(|| self.0.destroy(&id))?;
        record("http_create", create);
        record("http_first_exec", first);
        record("http_create_exec", create + first);
        record("http_destroy", destroy);
        record("http_create_exec_destroy", create + first + destroy);
        Ok(())
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

/// The command line without a server: one process a command.
pub(crate) struct CliCreate {
    cli: Cli,
    api: Api,
}

impl CliCreate {
    pub(crate) fn new(server: &Server) -> Result<Self> {
        Ok(Self { cli: server.cli.clone(), api: server.api()? })
    }
}

impl Contender for CliCreate {
    fn name(&self) -> &'static str {
        "create by the command line"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        let (id, create) = timed(|| self.cli.run(&["create", "--profile", PROFILE, "--ttl", TTL]))?;
        ensure!(id.starts_with("sbx_"), "`sandboxer create` printed `{id}`");
        let (_, first) = timed(|| self.cli.run(&["exec", &id, "--", "/bin/true"]))?;
        self.api.destroy(&id)?;
        record("cli_create", create);
        record("cli_create_exec", create + first);
        Ok(())
    }
}

pub(crate) struct CliExec {
    cli: Cli,
    api: Api,
    id: String,
}

impl CliExec {
    pub(crate) fn new(server: &Server) -> Result<Self> {
        let mut api = server.api()?;
        let id = api.create()?;
        Ok(Self { cli: server.cli.clone(), api, id })
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

    fn rest(&self) -> Duration {
        Duration::from_millis(5)
    }
}

impl Drop for CliExec {
    fn drop(&mut self) {
        let _ = self.api.destroy(&self.id);
    }
}
