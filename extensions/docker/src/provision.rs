//! The way of a create: refuse what cannot be, find the image, make, fill, start, and read back what holds.

use std::time::Duration;

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, RemoveContainerOptionsBuilder,
    StartContainerOptions,
};
use sandboxer_core::extension::{Handle, ProvisionRequest};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::profile::{Image, Persistence};
use sandboxer_core::{Error, ErrorKind, Result};

use crate::client::{Client, Connected};
use crate::controls::{self, Told};
use crate::create::{self, Facts};
use crate::errors::{map, optional};
use crate::locks::{self, Held};
use crate::mounts::{self, Blocklist};
use crate::{image, labels, owner, ready, remains, seed};

/// How long another process may take between making a container and starting it.
const OTHERS_LIMIT: Duration = Duration::from_secs(20);

pub(crate) async fn provision(client: &Client, request: ProvisionRequest) -> Result<Handle> {
    refuse(&request)?;
    // An engine that was never reached has nothing of it: there is nothing to take down.
    let connected = client.connect().await.map_err(Error::without_effect)?;
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
                let handle = self.bring_up(&id, facts).await;
                if handle.is_err() {
                    self.sweep().await;
                }
                return handle;
            }
            if let Some(handle) = self.adopt(&name).await? {
                return Ok(handle);
            }
        }
    }

    /// What a failure left. Whatever stays is found by its tag, so that the failure itself remains the answer.
    async fn sweep(&self) {
        match remains::clear_held(self.connected, self.held, &self.request.tag).await {
            Ok(report) if report.is_clean() => {}
            left => tracing::warn!(tag = self.request.tag, left = ?left, "a failed provision left something"),
        }
    }

    /// The container that has the name already. One that its maker left halfway is removed.
    async fn adopt(&self, name: &str) -> Result<Option<Handle>> {
        let start = tokio::time::Instant::now();
        loop {
            let Some(state) = inspect(self.connected, name).await? else { return Ok(None) };
            let labels = state.config.as_ref().and_then(|config| config.labels.clone()).unwrap_or_default();
            if labels.get(labels::TAG) != Some(&self.request.tag) {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!("the container name {name} is somebody else's"),
                ));
            }
            if is_running(&state) {
                let user = labels.get(labels::USER).cloned().unwrap_or_default();
                let told = ready::logged(self.connected, name).await?;
                if ready::is_ready(&told) {
                    return self.handle(&state, &told, &user).map(Some);
                }
            }
            let created = state
                .state
                .as_ref()
                .and_then(|state| state.status)
                .is_some_and(|status| status == bollard::models::ContainerStateStatusEnum::CREATED);
            // Within this process the lock tells that nobody works on it; another process gets its time.
            let abandoned = created && is_of_the_dead(&labels);
            if abandoned || start.elapsed() > OTHERS_LIMIT || !created && !is_running(&state) {
                remove(self.connected, self.held, name).await?;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn fill(&self, container: &str, facts: &Facts) -> Result<()> {
        let owner = owner::find(self.connected, container, &facts.user).await?;
        let wanted = self.request.spec.workspace.access != sandboxer_core::profile::WorkspaceAccess::None;
        let seed = self.request.seed.clone().filter(|_| wanted);
        seed::fill(self.connected, container, seed, owner).await
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
        let told = ready::hear(attached.output).await?;
        let Some(state) = inspect(self.connected, id).await? else {
            return Err(crate::errors::gone(&self.request.tag));
        };
        self.handle(&state, &told, &facts.user)
    }

    fn handle(&self, state: &ContainerInspectResponse, told: &str, user: &str) -> Result<Handle> {
        let told = Told::parse(told);
        let controls = controls::of(&told, state, user);
        let missing: Vec<String> = controls::missing(&controls)
            .iter()
            .map(|control| format!("{} ({})", control.name, control.detail))
            .collect();
        if !missing.is_empty() && !self.request.spec.allow_degraded {
            return Err(Error::new(
                ErrorKind::IsolationUnavailable,
                format!("the docker engine did not enforce {}", missing.join(", ")),
            )
            .with_hint("`--allow-degraded` accepts it; the sandbox shows it then"));
        }
        let degraded = !missing.is_empty();
        Ok(Handle {
            tag: self.request.tag.clone(),
            host: sandboxer_core::host::LOCAL.to_owned(),
            effective: if degraded { IsolationLevel::Policy } else { IsolationLevel::Container },
            controls,
            degraded,
            data: serde_json::json!({ "container": state.id, "user": user, "reaper": told.has_reapers() }),
        })
    }
}

/// Whether the process that made it is this one, which holds the lock, or is gone.
fn is_of_the_dead(labels: &std::collections::HashMap<String, String>) -> bool {
    let maker = labels.get(labels::MAKER).and_then(|maker| maker.parse::<u32>().ok());
    maker.is_none_or(|maker| {
        maker == std::process::id() || !std::path::Path::new(&format!("/proc/{maker}")).exists()
    })
}
