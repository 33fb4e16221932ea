//! The bench's own command line.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::{api, extensions, payments};

pub(crate) const USAGE: &str = "\
usage: sandboxer-bench [--quick] [--only PHASE]… [--binary FILE] [--floor FILE] [--results FOLDER]
  --quick     few samples: shows that everything works, not how fast it is
  --only      startup, burst, memory, api, extensions or payments; may be repeated
  --binary    the sandboxer to measure; beside this program unless given
  --floor     the example `floor` of the runtime; in examples/ beside this program unless given
  --results   where the JSON goes; bench/results unless given";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Startup,
    Burst,
    Memory,
    Api,
    Extensions,
    Payments,
}

/// How much of everything.
pub(crate) struct Sizes {
    pub(crate) quick: bool,
    pub(crate) warm_up: usize,
    pub(crate) rounds: usize,
    /// docker takes part in every such round.
    pub(crate) docker_every: usize,
    pub(crate) burst: usize,
    pub(crate) bursts: usize,
    pub(crate) levels: &'static [usize],
    pub(crate) api: api::Sizes,
    pub(crate) extensions: extensions::Sizes,
    pub(crate) payments: payments::Sizes,
}

const FULL: Sizes = Sizes {
    quick: false,
    warm_up: 10,
    rounds: 300,
    docker_every: 10,
    burst: 100,
    bursts: 3,
    levels: &[1, 100, 500],
    api: api::Sizes { stored: 100_000, reads: 1_000, creates: 200 },
    extensions: extensions::Sizes { docker: 30, ssh: 200, stacks: 20, files: 10_000, syncs: 20 },
    payments: payments::Sizes { creates: 300, transfers: 50_000, events: 10_000 },
};
const QUICK: Sizes = Sizes {
    quick: true,
    warm_up: 2,
    rounds: 20,
    docker_every: 10,
    burst: 20,
    bursts: 1,
    levels: &[1, 20],
    api: api::Sizes { stored: 2_000, reads: 50, creates: 10 },
    extensions: extensions::Sizes { docker: 3, ssh: 10, stacks: 3, files: 500, syncs: 3 },
    payments: payments::Sizes { creates: 20, transfers: 2_000, events: 200 },
};

pub(crate) struct Options {
    pub(crate) sizes: Sizes,
    pub(crate) phases: Vec<Phase>,
    pub(crate) binary: PathBuf,
    pub(crate) floor: PathBuf,
    /// The measuring programs of the crates.
    pub(crate) examples: PathBuf,
    pub(crate) results: PathBuf,
}

impl Options {
    /// Nothing when only help was asked for.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let own = std::env::current_exe().context("cannot find the own program")?;
        let beside = own.parent().context("the own program has no folder")?;
        let mut options = Self {
            sizes: FULL,
            phases: Vec::new(),
            binary: beside.join("sandboxer"),
            floor: beside.join("examples/floor"),
            examples: beside.join("examples"),
            results: PathBuf::from("bench/results"),
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--quick" => options.sizes = QUICK,
                "--only" => options.phases.push(phase(&value()?)?),
                "--binary" => options.binary = value()?.into(),
                "--floor" => options.floor = value()?.into(),
                "--results" => options.results = value()?.into(),
                "--help" | "-h" => return Ok(None),
                other => bail!("`{other}` is not an option"),
            }
        }
        if options.phases.is_empty() {
            options.phases = vec![
                Phase::Startup,
                Phase::Burst,
                Phase::Memory,
                Phase::Api,
                Phase::Extensions,
                Phase::Payments,
            ];
        }
        Ok(Some(options))
    }
}

fn phase(name: &str) -> Result<Phase> {
    Ok(match name {
        "startup" => Phase::Startup,
        "burst" => Phase::Burst,
        "memory" => Phase::Memory,
        "api" => Phase::Api,
        "extensions" => Phase::Extensions,
        "payments" => Phase::Payments,
        other => bail!("`{other}` is not a phase"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Option<Options>> {
        Options::parse(args.iter().map(|&arg| arg.to_owned()))
    }

    #[test]
    fn everything_is_measured_unless_told_otherwise() {
        assert_eq!(parse(&[]).unwrap().unwrap().phases.len(), 6);
        let some = parse(&["--quick", "--only", "api"]).unwrap().unwrap();
        assert_eq!(some.phases, [Phase::Api]);
        assert!(some.sizes.quick);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(parse(&["--fast"]).is_err());
        assert!(parse(&["--only", "disk"]).is_err());
        assert!(parse(&["--binary"]).is_err());
        assert!(parse(&["--help"]).unwrap().is_none());
    }
}
