//! From a request to a running stack.

mod content;
mod failure;
mod publish;
mod ready;

use std::time::Duration;

use sandboxer_core::extension::{Handle, ProvisionRequest};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::profile::{Danger, Image, Persistence, WorkspaceAccess};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use sandboxer_remote::Guard;
use serde::{Deserialize, Serialize};

use crate::config::Settings;
use crate::inspect;
use crate::judge::{Lifted, Stack};
use crate::rewrite::{Plan, WORKSPACE, rewrite};
use crate::site::{ANSWER, Site};
use content::Content;

/// Images are pulled and built in it.
pub(crate) const PROVISION_LIMIT: Dur = Dur::from_secs(900);
/// Less than the above, so that what went wrong is told before the engine gives up.
const UP_LIMIT: Duration = Duration::from_secs(780);

/// Whether the engine answers now, and whether something of the tag is there already.
const LOOK: &str = "docker version >/dev/null || exit 9; [ ! -e \"$1\" ] && [ ! -e \"$2\" ] || exit 7";

/// What finds the parts of the sandbox again; the handle's own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Data {
    /// The service that commands and files go to.
    pub(crate) service: String,
    /// Its container.
    pub(crate) container: String,
    /// Where its commands start, and what relative paths are relative to.
    pub(crate) workdir: String,
    /// The variables that every command sees.
    pub(crate) variables: std::collections::BTreeMap<String, String>,
    pub(crate) ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServicePort {
    pub(crate) service: String,
    pub(crate) port: u16,
}

impl Data {
    pub(crate) fn of(handle: &Handle) -> Result<Self> {
        serde_json::from_value(handle.data.clone()).map_err(|source| {
            Error::new(ErrorKind::Internal, format!("the handle of {} cannot be read", handle.tag))
                .with_source(source)
        })
    }
}

/// What is written beside a stack, so that a snapshot of it can start again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) stack: Stack,
    pub(crate) service: String,
}

/// Refuses what no compose stack can do, before anything is looked at.
pub(crate) fn check_request(request: &ProvisionRequest) -> Result<()> {
    crate::site::check_tag(&request.tag)?;
    if request.spec.image != Image::Host {
        return Err(Error::unsupported(
            crate::ID,
            "an `image` of the profile; the compose file names the images",
        ));
    }
    if request.spec.persistence == Persistence::Persistent {
        return Err(Error::unsupported(crate::ID, "`persistence: persistent`; `checkpoint` keeps snapshots"));
    }
    if !request.spec.mounts.is_empty() {
        return Err(Error::unsupported(crate::ID, "mounts of the profile; the compose file has its own"));
    }
    Ok(())
}

/// Establishes the stack, or finds the one that this tag already has.
pub(crate) async fn provision(
    settings: &Settings,
    site: &Site,
    request: &ProvisionRequest,
) -> Result<Handle> {
    let tag = request.tag.as_str();
    if let Some(handle) = existing(site, tag).await.map_err(Error::without_effect)? {
        return Ok(handle);
    }
    let content = Content::prepare(settings, request).await.map_err(Error::without_effect)?;
    let _lock = site.lock(tag).await?;
    if let Some(handle) = existing(site, tag).await? {
        return Ok(handle);
    }
    site.tool().await.map_err(Error::without_effect)?;
    // What an earlier try left half-way: its folder was there before anything else, and goes last.
    let output = site.script(LOOK, &[&site.folder(tag), &site.staging(tag)]).await?;
    match output.outcome.exit_code {
        0 => {}
        7 => drop(crate::teardown::remove(site, tag).await?),
        _ => return Err(crate::site::engine_down(site.remote.name(), &output.last_words())),
    }
    match establish(site, request, &content).await {
        Ok(handle) => Ok(handle),
        Err(error) => {
            request.progress.say("it failed; removing what was made");
            if let Err(cleanup) = crate::teardown::remove(site, tag).await {
                tracing::warn!(%tag, error = ?cleanup, "a failed stack could not be removed; its tag finds it");
            }
            Err(error)
        }
    }
}

async fn establish(site: &Site, request: &ProvisionRequest, content: &Content) -> Result<Handle> {
    let (tag, spec) = (request.tag.as_str(), &request.spec);
    let folder = site.folder(tag);
    let project = format!("{folder}/project");
    let stack = &content.stack;
    let access = workspace_access(site, stack, &content.service, spec.workspace.access).await?;
    let mut resources = spec.resources.clone();
    if let (Some(wanted), Some(there)) = (resources.cpu, site.tool().await?.cpus) {
        // More than there is is no limit at all, and the engine refuses it.
        resources.cpu = Some(wanted.min(f64::from(there)));
    }
    let plan = Plan {
        tag,
        project: &project,
        resources: &resources,
        allowed: &spec.dangerously_allow,
        main: &content.service,
        access,
    };
    let file = rewrite(stack, &plan);
    publish::publish(site, request, content, &file).await?;
    let guard = Guard::new(&site.remote, &folder);
    let last_will = crate::teardown::last_will(site, tag);
    guard.install(request.expires_at, None, &last_will).await?;
    if let Some(from) = &request.from {
        request.progress.say("filling volumes from the snapshot");
        compose(site, tag, &["up", "--no-start"]).await?;
        crate::snapshot::fill(site, tag, from, stack).await?;
    }
    request
        .progress
        .say(format!("starting {} services", stack.services.iter().filter(|one| !one.optional).count()));
    compose(site, tag, &["up", "-d", "--no-color", "--remove-orphans"]).await?;
    let containers = ready::wait(site, tag, stack, &request.progress).await?;
    let around = inspect::surroundings(site, tag).await?;
    let main = containers.iter().find(|one| one.service() == content.service);
    let workdir = match main {
        Some(main) if main.mounts.iter().any(|mount| mount.destination == WORKSPACE) => WORKSPACE.to_owned(),
        Some(main) => {
            main.config.working_dir.clone().filter(|dir| !dir.is_empty()).unwrap_or_else(|| "/".into())
        }
        None => "/".into(),
    };
    let data = Data {
        service: content.service.clone(),
        container: main.map(|main| main.plain_name().to_owned()).unwrap_or_default(),
        workdir,
        variables: spec.variables.clone(),
        ports: ports(stack),
    };
    let handle = Handle {
        tag: tag.to_owned(),
        host: site.remote.name().to_owned(),
        effective: effective(&stack.lifted),
        controls: crate::controls::read_back(&containers, &around, &project, &spec.resources, &stack.lifted),
        degraded: false,
        data: serde_json::to_value(&data).map_err(|source| internal("a handle cannot be written", source))?,
    };
    if let Some(idle) = request.idle_reap {
        // Only now: a long start is no idleness.
        guard.touch().await?;
        guard.install(request.expires_at, Some(idle.as_std()), &last_will).await?;
        guard.extend(request.expires_at).await?;
    }
    publish::keep_handle(site, &handle).await?;
    Ok(handle)
}

/// The handle that an earlier provision of the tag left.
async fn existing(site: &Site, tag: &str) -> Result<Option<Handle>> {
    let path = format!("{}/handle.json", site.folder(tag));
    let output = site.script("[ ! -f \"$1\" ] || cat \"$1\"", &[&path]).await?;
    Ok(serde_json::from_slice(&output.stdout).ok())
}

async fn compose(site: &Site, tag: &str, args: &[&str]) -> Result<()> {
    let tool = site.tool().await?;
    let command = tool.command(site, tag, &site.folder(tag), args, UP_LIMIT);
    let output = site.remote.output(command, ANSWER).await?;
    if output.success() { Ok(()) } else { Err(failure::of(site, tag, &output)) }
}

fn ports(stack: &Stack) -> Vec<ServicePort> {
    let of = |service: &crate::judge::Service| {
        let name = service.name.clone();
        let numbers: Vec<u16> =
            service.ports.iter().filter(|port| !port.udp).map(|port| port.number).collect();
        numbers.into_iter().map(move |port| ServicePort { service: name.clone(), port })
    };
    stack.services.iter().filter(|service| !service.optional).flat_map(of).collect()
}

/// How strong the boundary still is once these were lifted.
fn effective(lifted: &[Lifted]) -> IsolationLevel {
    let is = |danger| lifted.iter().any(|one| one.danger == danger);
    if is(Danger::Privileged) || is(Danger::DockerSocket) {
        IsolationLevel::Network
    } else if is(Danger::HostNamespaces) || is(Danger::HostPaths) {
        IsolationLevel::Policy
    } else {
        IsolationLevel::Container
    }
}

/// An image whose programs live in `/workspace` keeps it to itself.
async fn workspace_access(
    site: &Site,
    stack: &Stack,
    service: &str,
    wanted: WorkspaceAccess,
) -> Result<WorkspaceAccess> {
    let main = stack.services.iter().find(|one| one.name == service);
    let Some(image) = main.and_then(|main| main.config.get("image")).and_then(serde_json::Value::as_str)
    else {
        return Ok(wanted);
    };
    let answer =
        site.docker(&["image", "inspect", "-f", "{{.Config.WorkingDir}}", "--", image]).await?.text();
    let own = answer == WORKSPACE || answer.starts_with("/workspace/");
    Ok(if own { WorkspaceAccess::None } else { wanted })
}

/// The service that commands go to: the request's, the profile's, or the first that starts.
pub(crate) fn main_service(stack: &Stack, wanted: Option<&str>) -> Result<String> {
    let mut started =
        stack.services.iter().filter(|service| !service.optional).map(|service| service.name.as_str());
    let Some(wanted) = wanted else { return Ok(started.next().unwrap_or_default().to_owned()) };
    if started.any(|name| name == wanted) {
        return Ok(wanted.to_owned());
    }
    let names: Vec<&str> = stack.services.iter().map(|service| service.name.as_str()).collect();
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("the compose file starts no service `{}`", printable(wanted)),
    )
    .with_hint(format!("it has: {}", names.join(", "))))
}

pub(crate) fn internal(what: &str, source: serde_json::Error) -> Error {
    Error::new(ErrorKind::Internal, what.to_owned()).with_source(source)
}
