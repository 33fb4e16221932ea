//! Trying an extension out: the part of the conformance suite that harms nothing.

use std::time::Duration;

use sandboxer_core::profile::Image;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, Error, ErrorKind, Extension, Result, host};
use sandboxer_engine::Engine;
use sandboxer_testkit::conformance::{self, Subject};

pub(crate) use sandboxer_testkit::conformance::{Report as Trial, Verdict};

/// What the sandbox of a trial is like.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrialWish {
    pub(crate) host: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) inputs: Vec<(String, String)>,
}

/// How long a provision may take, unless the extension says more.
const PROVISION: Duration = Duration::from_secs(120);

pub(crate) async fn run(engine: &Engine, id: &str, wish: TrialWish) -> Result<Trial> {
    let extension = engine.registry().get(id)?;
    let (spec, host) = spec_and_host(engine, &*extension, wish).await?;
    let deadline = extension.provision_timeout(&spec).map_or(PROVISION, Dur::as_std);
    let subject = Subject { deadline, ..Subject::new(move || extension.clone(), spec) };
    Ok(conformance::run_safe(&subject.on(host)).await)
}

/// From the profile that was named, from one that is made for the extension, or the plainest that there is.
async fn spec_and_host(
    engine: &Engine,
    extension: &dyn Extension,
    wish: TrialWish,
) -> Result<(SandboxSpec, String)> {
    let about = extension.describe();
    let made_for = || {
        let fits = engine.catalog().list().into_iter();
        let fits = fits.filter(|entry| entry.profile.extension.as_deref() == Some(&*about.id));
        fits.map(|entry| entry.profile.reference()).next()
    };
    if about.capability.only_by_name && wish.profile.is_none() && wish.inputs.is_empty() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{} needs to be told what to start before it can be tried", about.id),
        )
        .with_hint(format!(
            "give `--profile PROFILE` and `--input NAME=VALUE` as for a create; `sandboxer extensions check` alone tells what is missing, and {} what it takes",
            about.id.replacen("ext.", "extensions/", 1) + "/docs.md"
        )));
    }
    if let Some(profile) = wish.profile.or_else(made_for) {
        let request = CreateRequest {
            profile: Some(profile),
            inputs: wish.inputs.into_iter().collect(),
            extension: Some(about.id),
            host: wish.host,
            ..CreateRequest::default()
        };
        let plan = engine.plan(&request).await?;
        plan.offer()?;
        return Ok((plan.spec, plan.host));
    }
    if !about.capability.image_host {
        return Err(Error::new(ErrorKind::InvalidInput, format!("no profile is made for {}", about.id))
            .with_hint("name one with `--profile`"));
    }
    let mut spec = SandboxSpec { image: Image::Host, ..SandboxSpec::default() };
    spec.isolation.level = spec.isolation.level.min(about.capability.isolation);
    if !about.capability.host_local {
        // What a host elsewhere can give is its own affair; the trial takes what there is.
        spec.isolation.level = sandboxer_core::isolation::IsolationLevel::Network;
    }
    Ok((spec, wish.host.unwrap_or_else(|| host::LOCAL.to_owned())))
}
