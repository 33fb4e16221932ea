//! Views of the catalog, the extensions, the machine and one sandbox.

use sandboxer_core::extension::{BackendStatus, CheckReport, Description};
use sandboxer_core::host;
use sandboxer_core::profile::Profile;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Result, SandboxId};

use crate::caller::Action;
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
}

/// The machine behind the engine, and what of ours is on it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct HostReport {
    pub host: String,
    #[schema(value_type = Object)]
    pub facts: serde_json::Value,
    pub sandboxes: Vec<Sandbox>,
}

/// The row and what the backend says about it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct SandboxInspection {
    pub sandbox: Sandbox,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendStatus>,
}

impl Engine {
    pub fn profiles(&self) -> Vec<ProfileView> {
        self.inner.catalog.list().into_iter().map(|entry| self.profile_view(entry)).collect()
    }

    pub fn profile(&self, name: &str) -> Result<ProfileView> {
        Ok(self.profile_view(self.inner.catalog.get(name)?))
    }

    fn profile_view(&self, entry: &crate::catalog::Entry) -> ProfileView {
        let reference = entry.profile.reference();
        let request = CreateRequest { profile: Some(reference.clone()), ..CreateRequest::default() };
        let reason =
            self.plan(&request).and_then(|plan| plan.offer().map(drop)).err().map(|error| error.to_string());
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
            let description = extension.describe();
            let check = extension.check(host::LOCAL).await.unwrap_or_else(|error| CheckReport {
                ok: false,
                items: vec![sandboxer_core::extension::CheckItem {
                    name: "check".into(),
                    ok: false,
                    required: true,
                    detail: error.chain().join(": "),
                    hint: error.hint().map(str::to_owned),
                }],
            });
            out.push(ExtensionView { description, check });
        }
        out
    }

    pub async fn extension(&self, id: &str) -> Result<ExtensionView> {
        let extension = self.inner.registry.get(id)?;
        Ok(ExtensionView { description: extension.describe(), check: extension.check(host::LOCAL).await? })
    }

    pub async fn inspect_host(&self, caller: &Caller) -> Result<HostReport> {
        caller.require(Action::Operate)?;
        let mut facts = serde_json::Map::new();
        for extension in self.inner.registry.iter() {
            if let Ok(serde_json::Value::Object(more)) = extension.host_facts(host::LOCAL).await {
                facts.extend(more);
            }
        }
        let living = self.inner.store.living().await?;
        Ok(HostReport {
            host: host::LOCAL.to_owned(),
            facts: facts.into(),
            sandboxes: living.into_iter().map(|stored| stored.record.sandbox).collect(),
        })
    }

    pub async fn inspect_sandbox(&self, caller: &Caller, id: SandboxId) -> Result<SandboxInspection> {
        let stored = self.settle_if_needed(self.load(caller, id).await?).await?;
        let backend = match &stored.record.handle {
            Some(handle) if stored.record.state().is_usable() => {
                Some(self.extension_of(&stored)?.status(handle).await?)
            }
            _ => None,
        };
        Ok(SandboxInspection { sandbox: stored.record.sandbox, backend })
    }
}
