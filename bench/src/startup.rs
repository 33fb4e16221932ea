//! The rounds in which everybody starts something: the floor, the peers and us.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result};

use crate::bundle::Bundle;
use crate::contender::{Contender, take_turns};
use crate::docker::Docker;
use crate::options::Options;
use crate::ours::{COLD, CliCreate, CliExec, HttpCreate, HttpExec, WARM};
use crate::peers::{Floor, OneShot, ShelteredCrun, find};
use crate::results::Results;
use crate::server::{Cli, Server, WarmPool};

pub(crate) fn run(options: &Options, temp: &Path, results: &mut Results) -> Result<()> {
    let sizes = &options.sizes;
    let mut contenders = peers(options, temp, results)?;
    let server = Server::start(&options.binary, &temp.join("startup"), WarmPool::Usual)?;
    let cold = Server::start(&options.binary, &temp.join("cold"), WarmPool::Off)?;
    contenders.push(Box::new(HttpCreate::new(&server, WARM)?));
    contenders.push(Box::new(HttpCreate::new(&cold, COLD)?));
    contenders.push(Box::new(HttpExec::new(&server)?));
    let cli = Cli::new(&options.binary, &temp.join("cli"));
    let _guard = cli.guard();
    contenders.push(Box::new(CliCreate::new(&cli)));
    contenders.push(Box::new(CliExec::new(&cli)?));
    results.startup = take_turns(&mut contenders, sizes.warm_up, sizes.rounds)?;
    Ok(())
}

/// The peers that work here. One that does not is left out and named.
fn peers(options: &Options, temp: &Path, results: &mut Results) -> Result<Vec<Box<dyn Contender>>> {
    let folder = temp.join("peers");
    std::fs::create_dir_all(folder.join("state"))?;
    let bundle = Bundle::make(&folder.join("bundle"));
    let with_bundle = || bundle.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"));
    let oci = |name: &'static str| -> Result<OneShot> {
        let program = find(name).context("not installed")?;
        Ok(OneShot::oci(name, program, with_bundle()?, &folder.join("state").join(name)))
    };
    let runc = || -> Result<Vec<Box<dyn Contender>>> { Ok(vec![Box::new(oci("runc")?)]) };
    let crun = || -> Result<Vec<Box<dyn Contender>>> {
        let mut direct = oci("crun")?;
        match direct.turn(&mut |_, _| {}) {
            Err(error) if format!("{error:#}").contains("hybrid mode") => {
                crate::report::note("crun runs where it does not see the second cgroup hierarchy");
                Ok(vec![Box::new(ShelteredCrun::start(&direct)?)])
            }
            _ => Ok(vec![Box::new(direct)]),
        }
    };
    let floor = |mode: &str, name: &'static str| -> Result<Vec<Box<dyn Contender>>> {
        Ok(vec![Box::new(Floor::start(&options.floor, mode, name, temp)?)])
    };
    let bwrap = || -> Result<Vec<Box<dyn Contender>>> {
        Ok(vec![Box::new(OneShot::bwrap(find("bwrap").context("not installed")?))])
    };
    let docker = || -> Result<Vec<Box<dyn Contender>>> {
        let docker = Rc::new(Docker::start(&folder.join("docker"), with_bundle()?)?);
        crate::report::note(&format!("docker runs with its own files on {}", docker.driver));
        Ok(docker.contenders(options.sizes.docker_every).into())
    };
    let mut found = Vec::new();
    for (name, made) in [
        ("fork + exec", floor("fork", "fork_exec")),
        ("syscall floor", floor("namespaces", "floor")),
        ("bwrap", bwrap()),
        ("crun", crun()),
        ("runc", runc()),
        ("docker", docker()),
    ] {
        match made.and_then(tried) {
            Ok(contenders) => found.extend(contenders),
            Err(error) => {
                let said = format!("{name}: {error:#}");
                crate::report::note(&format!("going on without {said}"));
                results.skipped.push(said);
            }
        }
    }
    Ok(found)
}

/// One turn each, before anything is measured.
fn tried(mut contenders: Vec<Box<dyn Contender>>) -> Result<Vec<Box<dyn Contender>>> {
    for contender in &mut contenders {
        contender.turn(&mut |_, _| {}).with_context(|| format!("{} does not work here", contender.name()))?;
    }
    Ok(contenders)
}
