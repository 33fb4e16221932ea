//! The compose tool of a host: the plugin `docker compose`, or `docker-compose` of either generation.

use std::time::Duration;

use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::Command;

use super::{Site, alone};

const FIND: &str = r#"
command -v docker >/dev/null 2>&1 || { echo no-docker; exit 0; }
v=$(docker version --format '{{.Server.Version}}' 2>&1) || { echo no-engine; printf '%s\n' "$v"; exit 0; }
echo "engine $v"
echo "cpus $(docker info --format '{{.NCPU}}' 2>/dev/null)"
if c=$(docker compose version --short 2>/dev/null) && [ -n "$c" ]; then echo "plugin $c"
elif c=$(docker-compose version --short 2>/dev/null) && [ -n "$c" ]; then echo "program $c"
else echo no-compose; fi
"#;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    /// `docker compose`, rather than `docker-compose`.
    pub(crate) plugin: bool,
    /// `1.29.2`, `2.27.0`.
    pub(crate) version: String,
    pub(crate) engine: String,
    /// Processors that the engine has; it refuses a limit above that.
    pub(crate) cpus: Option<u32>,
}

impl Tool {
    pub(super) async fn find(site: &Site) -> Result<Self> {
        let answer = site.script(FIND, &[]).await?;
        if !answer.success() {
            return Err(sandboxer_remote::failure::of("asking for docker", &answer));
        }
        Self::read(&answer.text(), site.remote.name())
    }

    /// From what the script said.
    fn read(text: &str, host: &str) -> Result<Self> {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        if first == "no-docker" {
            return Err(Error::new(ErrorKind::NoBackend, format!("{host} has no docker"))
                .with_hint(
                    "install docker and its compose plugin on the host, or choose another host with --host",
                )
                .with_retry(sandboxer_core::Retry::Permanent));
        }
        if first == "no-engine" {
            return Err(engine_down(host, &lines.collect::<Vec<_>>().join(" ")));
        }
        let engine = first.strip_prefix("engine ").unwrap_or_default().to_owned();
        let cpus = lines.next().and_then(|line| line.strip_prefix("cpus ")?.parse().ok());
        let second = lines.next().unwrap_or_default();
        let (plugin, version) = match second.split_once(' ') {
            Some(("plugin", version)) => (true, version),
            Some(("program", version)) => (false, version),
            _ => {
                return Err(Error::new(ErrorKind::NoBackend, format!("{host} has docker, but no compose"))
                    .with_hint("install the compose plugin (`docker compose`) or docker-compose on the host")
                    .with_retry(sandboxer_core::Retry::Permanent));
            }
        };
        Ok(Self { plugin, version: version.trim_start_matches('v').to_owned(), engine, cpus })
    }

    /// The words that start the tool.
    pub(crate) fn program(&self) -> &'static [&'static str] {
        if self.plugin { &["docker", "compose"] } else { &["docker-compose"] }
    }

    /// A compose command on the sandbox in `folder`. Nothing of the host's own settings gets in.
    pub(crate) fn command(
        &self,
        site: &Site,
        tag: &str,
        folder: &str,
        args: &[&str],
        limit: Duration,
    ) -> Command {
        let file = format!("{folder}/compose.json");
        let project = format!("{folder}/project");
        let empty = format!("{folder}/empty.env");
        let fixed = ["-p", tag, "-f", &file, "--project-directory", &project, "--env-file", &empty];
        let argv = self.program().iter().chain(&fixed).chain(args).map(|word| (*word).to_owned());
        site.alone(tag, Command::script(alone!("exec \"$@\""), argv))
            .env("COMPOSE_PROFILES", "")
            .env("COMPOSE_REMOVE_ORPHANS", "")
            .env("COMPOSE_IGNORE_ORPHANS", "")
            .timeout(limit)
    }
}

/// The engine is there, but does not answer.
pub(crate) fn engine_down(host: &str, words: &str) -> Error {
    let words = words.trim();
    let error = Error::new(ErrorKind::Unreachable, format!("the docker engine of {host} does not answer"))
        .with_hint("start it, and let the account use it (`docker info` must work there)");
    if words.is_empty() { error } else { error.with_source(std::io::Error::other(words.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_generation_is_found() {
        let plugin = Tool::read("engine 27.0.1\ncpus 8\nplugin v2.27.0", "h").unwrap();
        assert_eq!((plugin.program(), plugin.version.as_str()), (&["docker", "compose"][..], "2.27.0"));
        assert_eq!(plugin.cpus, Some(8));
        let program = Tool::read("engine 20.10.24\ncpus \nprogram 1.29.2", "h").unwrap();
        assert_eq!((program.program(), program.engine.as_str()), (&["docker-compose"][..], "20.10.24"));
    }

    #[test]
    fn what_is_missing_is_told() {
        for (text, kind, words) in [
            ("no-docker", ErrorKind::NoBackend, "h has no docker"),
            ("engine 1\ncpus 2\nno-compose", ErrorKind::NoBackend, "h has docker, but no compose"),
            ("no-engine\nCannot connect", ErrorKind::Unreachable, "the docker engine of h does not answer"),
        ] {
            let error = Tool::read(text, "h").unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, words));
            assert!(error.hint().is_some());
        }
    }
}
