//! The way of a create: refuse what cannot be, find the image, make, fill, start, and read back what holds.

use std::time::Duration;

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, LogsOptionsBuilder, RemoveContainerOptionsBuilder,
    StartContainerOptions,
};
use futures::StreamExt as _;
use sandboxer_core::extension::{Handle, ProvisionRequest};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::profile::{Image, Persistence};
use sandboxer_core::{Error, ErrorKind, Result};

use crate::client::{Client, Connected};
use crate::controls::{self, Told};
use crate::create::{self, Facts};
use crate::errors::{map, optional};
use crate::hijack::{Output, Source};
use crate::locks::{self, Held};
use crate::mounts::{self, Blocklist};
use crate::seed::{self, Owner};
use crate::{image, labels};

/// How long the container's process may take to speak.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How long another process may take between making a container and starting it.
const OTHERS_LIMIT: Duration = Duration::from_secs(20);
const REPORT_LIMIT: usize = 32 * 1024;

pub(crate) async fn provision(client: &Client, request: ProvisionRequest) -> Result<Handle> {
    refuse(&request)?;
    let connected = client.connect().await?;
    let own = [client.state_dir(), connected.socket()];
    let sources = match request.spec.mounts.is_empty() {
        true => Vec::new(),
        false => mounts::validate(&request.spec.mounts, &Blocklist::of_host(&own))?,
    };
    known_runtime(connected, &request).await?;
    let held = locks::hold(&request.tag).await;
    let found = image::find(connected, &request).await?;
    let mut facts = Facts { image: found.id, user: found.user, sources, workspace_from: None };
    let made = Maker { connected, request: &request, held: &held };
    if create::is_read_only(&request) && request.seed.is_some() {
        facts.workspace_from = Some(made.filled_helper(&facts).await?);
    }
    let helper = facts.workspace_from.clone();
    let handle = made.container(&facts).await;
    if let Some(helper) = helper {
        // Its volume lives on with the container that reads it.
        remove(connected, &held, &helper).await?;
    }
    handle
}

/// What this extension does not do, before anything is made.
fn refuse(request: &ProvisionRequest) -> Result<()> {
    let spec = &request.spec;
    if !labels::is_tag(&request.tag) {
        return Err(Error::new(ErrorKind::InvalidInput, "a tag is small letters, digits and `_`"));
    }
    let unsupported = |what: &str| Err(Error::unsupported(crate::ID, what));
    match () {
        () if spec.image == Image::Host && request.from.is_none() => unsupported("`image: host`"),
        () if !spec.network.egress.is_empty() => unsupported("egress rules"),
        () if !spec.secrets.is_empty() || !spec.secret_refs.is_empty() => unsupported("secrets"),
        () if spec.persistence == Persistence::Persistent => unsupported("`persistence: persistent`"),
        () if spec.resources.gpu.unwrap_or_default() > 0 || spec.requires.gpu => unsupported("GPUs"),
        () if spec.requires.isolation == Some(IsolationLevel::Microvm) => unsupported("isolation `microvm`"),
        () => Ok(()),
    }
}

async fn known_runtime(connected: &Connected, request: &ProvisionRequest) -> Result<()> {
    let Some(wanted) = &request.spec.docker.runtime else { return Ok(()) };
    let info = connected.api.info().await.map_err(|error| map(error, "tell its runtimes"))?;
    let mut known: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
    if known.contains(wanted) {
        return Ok(());
    }
    known.sort();
    let wanted = sandboxer_core::suggest::printable(wanted);
    Err(Error::new(ErrorKind::IsolationUnavailable, format!("the docker engine has no runtime `{wanted}`"))
        .with_hint(format!("it has {}; others are registered in its daemon.json", known.join(", "))))
}

pub(crate) async fn inspect(connected: &Connected, name: &str) -> Result<Option<ContainerInspectResponse>> {
    let state = connected.api.inspect_container(name, None::<InspectContainerOptions>).await;
    optional(state, "look at a container")
}

pub(crate) fn is_running(state: &ContainerInspectResponse) -> bool {
    state.state.as_ref().and_then(|state| state.running).unwrap_or_default()
}

/// Removes a container with its own volumes; one that is gone, or going, is fine.
pub(crate) async fn remove(connected: &Connected, held: &Held, name: &str) -> Result<()> {
    let (api, name) = (connected.api.clone(), name.to_owned());
    locks::finish(held, async move {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        match optional(api.remove_container(&name, Some(options)).await, "remove a container") {
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            other => other.map(drop),
        }
    })
    .await
}

struct Maker<'a> {
    connected: &'a Connected,
    request: &'a ProvisionRequest,
    held: &'a Held,
}

impl Maker<'_> {
    /// A container that is never started, with a volume that it may write and the real one may not.
    async fn filled_helper(&self, facts: &Facts) -> Result<String> {
        let tag = &self.request.tag;
        let name = format!("{}-seed", labels::container_name(tag));
        remove(self.connected, self.held, &name).await?;
        let body = create::helper(tag, &facts.image, vec![create::volume(tag, false)], &[]);
        let id = self.make(&name, body).await?.ok_or_else(|| {
            Error::new(ErrorKind::Conflict, format!("somebody else provisions {tag} at this moment"))
        })?;
        match self.fill(&id, facts).await {
            Ok(()) => Ok(id),
            Err(error) => {
                remove(self.connected, self.held, &id).await?;
                Err(error)
            }
        }
    }

    /// Makes a container, or `None` when its name is taken.
    async fn make(&self, name: &str, body: bollard::models::ContainerCreateBody) -> Result<Option<String>> {
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        let api = self.connected.api.clone();
        locks::finish(self.held, async move {
            match api.create_container(Some(options), body).await {
                Ok(made) => Ok(Some(made.id)),
                Err(bollard::errors::Error::DockerResponseServerError { status_code: 409, .. }) => Ok(None),
                Err(error) => Err(map(error, "make a container")),
            }
        })
        .await
    }

    /// The first one under this tag, whoever made it.
    async fn container(&self, facts: &Facts) -> Result<Handle> {
        let name = labels::container_name(&self.request.tag);
        loop {
            if let Some(id) = self.make(&name, create::body(self.request, facts)?).await? {
                return match self.bring_up(&id, facts).await {
                    Ok(handle) => Ok(handle),
                    Err(error) => {
                        remove(self.connected, self.held, &id).await?;
                        Err(error)
                    }
                };
            }
            if let Some(handle) = self.adopt(&name).await? {
                return Ok(handle);
            }
        }
    }

    /// The container that has the name already. One that its maker left halfway is removed.
    async fn adopt(&self, name: &str) -> Result<Option<Handle>> {
        let start = tokio::time::Instant::now();
        loop {
            let Some(state) = inspect(self.connected, name).await? else { return Ok(None) };
            let labels = state.config.as_ref().and_then(|config| config.labels.clone()).unwrap_or_default();
            if labels.get(labels::TAG) != Some(&self.request.tag) {
                return Err(Error::new(ErrorKind::Conflict, format!("the container name {name} is somebody else's")));
            }
            if is_running(&state) {
                let user = labels.get(labels::USER).cloned().unwrap_or_default();
                let told = self.logged(name).await?;
                if told.lines().any(|line| line == READY) {
                    return self.handle(&state, &told, &user).map(Some);
                }
            }
            let created = state.state.as_ref().and_then(|state| state.status).is_some_and(|status| {
                status == bollard::models::ContainerStateStatusEnum::CREATED
            });
            // Within this process the lock tells that nobody works on it; another process gets its time.
            let abandoned = created && is_of_the_dead(&labels);
            if abandoned || start.elapsed() > OTHERS_LIMIT || !created && !is_running(&state) {
                remove(self.connected, self.held, name).await?;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn fill(&self, container: &str, facts: &Facts) -> Result<()> {
        let owner = match numeric(&facts.user) {
            Some(owner) => owner,
            None => self.named_owner(container, &facts.user).await?,
        };
        let wanted = self.request.spec.workspace.access != sandboxer_core::profile::WorkspaceAccess::None;
        let seed = self.request.seed.clone().filter(|_| wanted);
        seed::fill(self.connected, container, seed, owner).await
    }

    /// An image may name its user; the numbers are in its own file of accounts.
    async fn named_owner(&self, container: &str, user: &str) -> Result<Owner> {
        let options = bollard::query_parameters::DownloadFromContainerOptionsBuilder::default().path("/etc/passwd").build();
        let mut stream = std::pin::pin!(self.connected.api.download_from_container(container, Some(options)));
        let mut tar = Vec::new();
        while let Some(piece) = stream.next().await {
            tar.extend_from_slice(&piece.map_err(|error| map(error, "read the accounts of an image"))?);
            if tar.len() > 1 << 20 {
                break;
            }
        }
        let text = String::from_utf8_lossy(&tar);
        let name = user.split(':').next().unwrap_or_default();
        let account = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let account = account.filter(|fields| fields.len() == 7).find(|fields| fields[0] == name);
        let owner = account.and_then(|fields| Some(Owner { uid: fields[2].parse().ok()?, gid: fields[3].parse().ok()? }));
        owner.ok_or_else(|| Error::new(ErrorKind::InvalidInput, format!("the image has no account `{name}`, which it names as its user")))
    }

    async fn bring_up(&self, id: &str, facts: &Facts) -> Result<Handle> {
        if !create::is_read_only(self.request) {
            self.fill(id, facts).await?;
        }
        let path = format!("/containers/{id}/attach?stream=1&stdout=1&stderr=1");
        let attached = self.connected.hijack(&path, "", "attach to a container").await?;
        let (api, name) = (self.connected.api.clone(), id.to_owned());
        let started = locks::finish(self.held, async move {
            let started = api.start_container(&name, None::<StartContainerOptions>).await;
            started.map_err(|error| map(error, "start a container"))
        });
        started.await?;
        let heard = tokio::time::timeout(READY_LIMIT, hear(attached.output)).await;
        let told = heard.map_err(|_| {
            Error::new(ErrorKind::Timeout, format!("the container did not speak within {READY_LIMIT:?}"))
        })??;
        let Some(state) = inspect(self.connected, id).await? else {
            return Err(crate::errors::gone(&self.request.tag));
        };
        self.handle(&state, &told, &facts.user)
    }

    /// What the container's process told when it started.
    async fn logged(&self, name: &str) -> Result<String> {
        let options = LogsOptionsBuilder::default().stdout(true).build();
        let mut stream = std::pin::pin!(self.connected.api.logs(name, Some(options)));
        let mut told = String::new();
        while let Some(piece) = stream.next().await {
            match piece {
                Ok(piece) => told.push_str(&String::from_utf8_lossy(&piece.into_bytes())),
                // It may end at any moment.
                Err(bollard::errors::Error::DockerResponseServerError { status_code: 404 | 409, .. }) => break,
                Err(error) => return Err(map(error, "read a container's words")),
            }
        }
        Ok(told)
    }

    fn handle(&self, state: &ContainerInspectResponse, told: &str, user: &str) -> Result<Handle> {
        let controls = controls::of(&Told::parse(told), state, user);
        let missing: Vec<String> = controls::missing(&controls).iter().map(|control| format!("{} ({})", control.name, control.detail)).collect();
        if !missing.is_empty() && !self.request.spec.allow_degraded {
            return Err(Error::new(ErrorKind::IsolationUnavailable, format!("the docker engine did not enforce {}", missing.join(", ")))
                .with_hint("`--allow-degraded` accepts it; the sandbox shows it then"));
        }
        let degraded = !missing.is_empty();
        Ok(Handle {
            tag: self.request.tag.clone(),
            host: sandboxer_core::host::LOCAL.to_owned(),
            effective: if degraded { IsolationLevel::Policy } else { IsolationLevel::Container },
            controls,
            degraded,
            data: serde_json::json!({ "container": state.id, "user": user }),
        })
    }
}

/// The last line of the report.
const READY: &str = "ready";

/// Listens until the container's process is ready.
async fn hear(mut output: Output) -> Result<String> {
    let (mut told, mut complaint, mut buffer) = (String::new(), String::new(), Vec::new());
    loop {
        match output.frame(&mut buffer).await.map_err(crate::errors::unreachable)? {
            Some(Source::Stdout) => told.push_str(&String::from_utf8_lossy(&buffer)),
            Some(Source::Stderr) => complaint.push_str(&String::from_utf8_lossy(&buffer)),
            None => return Err(silent(&complaint)),
        }
        if told.lines().any(|line| line == READY) && told.ends_with('\n') {
            return Ok(told);
        }
        if told.len() + complaint.len() > REPORT_LIMIT {
            return Err(silent(&complaint));
        }
    }
}

fn silent(complaint: &str) -> Error {
    let words = complaint.trim();
    let error = Error::new(ErrorKind::Unsupported, format!("the container ended before it was ready: {words}"));
    error.with_hint("an image needs /bin/sh, `sleep` and `date`: busybox or any distribution will do, a distroless one will not")
}

/// `1000:1000`, or `1000` with the group of the same number.
fn numeric(user: &str) -> Option<Owner> {
    let (uid, gid) = user.split_once(':').unwrap_or((user, user));
    Some(Owner { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
}

/// Whether the process that made it is this one, which holds the lock, or is gone.
fn is_of_the_dead(labels: &std::collections::HashMap<String, String>) -> bool {
    let maker = labels.get(labels::MAKER).and_then(|maker| maker.parse::<u32>().ok());
    maker.is_none_or(|maker| maker == std::process::id() || !std::path::Path::new(&format!("/proc/{maker}")).exists())
}
