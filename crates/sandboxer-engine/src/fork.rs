//! Fork: several sandboxes that go on from where one stands. One snapshot, which goes again at the end.

use sandboxer_core::error::Failure;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Dur, Error, ErrorKind, Result, SandboxId};

use crate::hold::detached;
use crate::{Caller, CreateOptions, Engine, fault};

/// How a sandbox is forked.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// How many, 1 to 32.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 32)]
    pub count: u32,
    /// How long each lives; as long as the original was given when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Dur>,
}

impl ForkRequest {
    pub const MOST: u32 = 32;
}

impl Default for ForkRequest {
    fn default() -> Self {
        Self { count: one(), ttl: None }
    }
}

fn one() -> u32 {
    1
}

/// What became of a fork. Those that were made stay, also when others failed.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Forked {
    pub items: Vec<Sandbox>,
    /// Why the others could not be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Failure>,
}

impl Engine {
    /// An error only if none could be made.
    pub async fn fork(&self, caller: &Caller, id: SandboxId, request: ForkRequest) -> Result<Forked> {
        if !(1..=ForkRequest::MOST).contains(&request.count) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("{} sandboxes cannot be forked at once", request.count),
            )
            .with_hint(format!("`count` goes from 1 to {}", ForkRequest::MOST)));
        }
        let (engine, caller) = (self.clone(), caller.clone());
        detached(async move { engine.fork_now(&caller, id, &request).await }).await
    }

    async fn fork_now(&self, caller: &Caller, id: SandboxId, request: &ForkRequest) -> Result<Forked> {
        let stored = self.load(caller, id).await?;
        let description = self.description_of(&stored)?;
        let capability = &description.capability;
        if !(capability.fork && capability.snapshot && capability.restore) {
            return Err(Error::unsupported(&description.id, "fork"));
        }
        let sandbox = &stored.record.sandbox;
        let snapshot = self.take_snapshot(caller, id, Some(format!("fork of {id}")), true).await?;
        fault::point("engine.fork.after_snapshot");
        let create = CreateRequest {
            from: Some(snapshot.record.snapshot.snapshot_id.to_string()),
            ttl: request.ttl.or(Some(sandbox.ttl)),
            labels: sandbox.labels.clone(),
            consumer: sandbox.consumer.clone(),
            ..CreateRequest::default()
        };
        let forks: Vec<_> = (0..request.count)
            .map(|_| {
                let (engine, caller, create) = (self.clone(), caller.clone(), create.clone());
                tokio::spawn(async move { engine.create(&caller, create, CreateOptions::default()).await })
            })
            .collect();
        let (mut items, mut failed) = (Vec::new(), Vec::new());
        for fork in forks {
            match fork.await {
                Ok(Ok(created)) => items.push(created.sandbox),
                Ok(Err(error)) => failed.push(error),
                Err(source) => {
                    failed.push(Error::new(ErrorKind::Internal, "a fork broke off").with_source(source))
                }
            }
        }
        fault::point("engine.fork.after_restores");
        // One that the backend needs for as long as the forks live goes after them.
        if let Err(error) = self.drop_doomed(snapshot).await {
            tracing::debug!(error = ?error, sandbox = %id, "a fork's snapshot is left to be removed later");
        }
        match failed.first() {
            Some(error) if items.is_empty() => Err(error.clone()),
            _ => Ok(Forked { items, errors: failed.iter().map(Failure::from).collect() }),
        }
    }
}
