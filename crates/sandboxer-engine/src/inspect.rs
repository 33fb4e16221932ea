//! Views of the catalog, the extensions, the machine and one sandbox.

use std::sync::Arc;

use sandboxer_core::extension::{BackendStatus, CheckItem, CheckReport, Description, Extension};
use sandboxer_core::host::{self, Host};
use sandboxer_core::price::PriceCard;
use sandboxer_core::profile::Profile;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Result, SandboxId};

use crate::caller::Action;
use crate::hosts::check_one;
use crate::placement::Scene;
use crate::survey::can_use;
use crate::{Caller, Engine};

/// A profile with where it came from and whether it can be used here.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ProfileView {
    /// `profile.agent-dev@1.0.0`.
    pub reference: String,
    pub origin: String,
    /// Definitions of the same version that this one replaces.
    pub shadows: Vec<String>,
    pub available: bool,
    /// Why it is not available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub profile: Profile,
}

/// An extension with what it declares and whether it can be used now.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ExtensionView {
    #[serde(flatten)]
    pub description: Description,
    pub check: CheckReport,
    /// What it asks now; absent where nobody said, which for a service means that it cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<PriceCard>,
    /// Why its price cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_problem: Option<String>,
}

/// A host, and what of ours is on it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct HostReport {
    pub host: String,
    #[schema(value_type = Object)]
    pub facts: serde_json::Value,
    pub sandboxes: Vec<Sandbox>,
    /// It answered; otherwise the facts are those of the last time it did.
    #[serde(default = "yes")]
    pub reachable: bool,
    /// Extensions that could not say anything, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

fn yes() -> bool {
    true
}

/// The row and what the backend says about it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct SandboxInspection {
    pub sandbox: Sandbox,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendStatus>,
}

impl Engine {
    pub async fn profiles(&self) -> Result<Vec<ProfileView>> {
        let scene = self.scene().await?;
        Ok(self.inner.catalog.list().into_iter().map(|entry| self.profile_view(&scene, entry)).collect())
    }

    pub async fn profile(&self, name: &str) -> Result<ProfileView> {
        let entry = self.inner.catalog.get(name)?;
        Ok(self.profile_view(&self.scene().await?, entry))
    }

    fn profile_view(&self, scene: &Scene, entry: &crate::catalog::Entry) -> ProfileView {
        let reference = entry.profile.reference();
        let request = CreateRequest { profile: Some(reference.clone()), ..CreateRequest::default() };
        let reason = self
            .plan_on(scene, &request)
            .and_then(|plan| plan.offer().map(drop))
            .err()
            .map(|error| error.to_string());
        ProfileView {
            reference,
            origin: entry.origin.to_string(),
            shadows: entry.shadows.iter().map(ToString::to_string).collect(),
            available: reason.is_none(),
            reason,
            profile: entry.profile.clone(),
        }
    }

    pub async fn extensions(&self) -> Vec<ExtensionView> {
        let mut out = Vec::new();
        for extension in self.inner.registry.iter() {
            out.push(self.extension_view(extension).await);
        }
        out
    }

    pub async fn extension(&self, id: &str) -> Result<ExtensionView> {
        Ok(self.extension_view(&self.inner.registry.get(id)?).await)
    }

    /// Checked on the engine's own machine, or on the first other host that it can use.
    async fn extension_view(&self, extension: &Arc<dyn Extension>) -> ExtensionView {
        let description = extension.describe();
        let hosts = match self.book().all().await {
            Ok(records) => records.into_iter().map(|record| record.host).collect(),
            Err(_) => vec![Host::local()],
        };
        let check = match hosts.iter().find(|host| can_use(&description.capability, host)) {
            Some(host) => check_one(extension, &host.name).await,
            None => CheckReport {
                ok: false,
                items: vec![CheckItem {
                    name: "host".into(),
                    ok: false,
                    required: true,
                    detail: "it needs a host that is reached by SSH, and none is registered".into(),
                    hint: Some("`sandboxer hosts add NAME ssh://user@address`".into()),
                }],
            },
        };
        let is_own = description.capability.self_hosted;
        let (price, price_problem) = match self.prices().book().card(&description.id, is_own, self.now()) {
            Ok(card) => (card.cloned(), None),
            Err(error) => (None, Some(error.chain().join(": "))),
        };
        ExtensionView { description, check, price, price_problem }
    }

    /// The engine's own machine, or the host of this name, and what of ours is on it.
    pub async fn inspect_host(&self, caller: &Caller, name: Option<&str>) -> Result<HostReport> {
        caller.require(Action::Operate)?;
        let record = self.book().get(name.unwrap_or(host::LOCAL)).await?;
        let found = self.host_facts(&record.host).await;
        let living = self.inner.store.living().await?;
        let name = record.host.name.clone();
        // A host that is away is shown as it was last seen.
        let facts = if found.silent && found.facts.is_empty() {
            record.facts.unwrap_or_else(|| serde_json::json!({}))
        } else {
            found.facts.into()
        };
        Ok(HostReport {
            sandboxes: living
                .into_iter()
                .map(|stored| stored.record.sandbox)
                .filter(|sandbox| sandbox.host == name)
                .collect(),
            host: name,
            facts,
            reachable: !found.silent,
            problems: found.problems,
        })
    }

    pub async fn inspect_sandbox(&self, caller: &Caller, id: SandboxId) -> Result<SandboxInspection> {
        let stored = self.settle_if_needed(self.load(caller, id).await?).await?;
        let backend = match &stored.record.handle {
            Some(handle) if stored.record.state().is_usable() => {
                Some(self.extension_of(&stored.record).await?.status(handle).await?)
            }
            _ => None,
        };
        Ok(SandboxInspection { sandbox: stored.record.sandbox, backend })
    }
}
