//! What the stack is made of: a judged bundle, or a snapshot.

use sandboxer_core::extension::ProvisionRequest;
use sandboxer_core::{Error, ErrorKind, Result};

use super::{Kept, main_service};
use crate::bundle::{Bundle, COMPOSE_NAMES, Origin, prepare};
use crate::config::Settings;
use crate::judge::{Stack, judge, word};

pub(super) struct Content {
    /// Absent when the project comes from a snapshot on the host itself.
    pub(super) bundle: Option<Bundle>,
    pub(super) stack: Stack,
    pub(super) service: String,
}

impl Content {
    /// Everything that can be refused is refused here, before the host has seen anything.
    pub(super) async fn prepare(settings: &Settings, request: &ProvisionRequest) -> Result<Self> {
        let spec = &request.spec;
        let wanted =
            spec.inputs.get("service").filter(|name| !name.is_empty()).or(spec.compose.service.as_ref());
        if let Some(from) = &request.from {
            let kept: Kept = serde_json::from_value(from.data.clone()).map_err(|source| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("{} is no snapshot of a compose stack", from.snapshot_id),
                )
                .with_source(source)
            })?;
            if let Some(lifted) =
                kept.stack.lifted.iter().find(|one| !spec.dangerously_allow.contains(&one.danger))
            {
                return Err(Error::new(ErrorKind::Refused, format!("{}: {}", lifted.place, lifted.what))
                    .with_hint(format!(
                        "the snapshot needs a profile that says `dangerously_allow: [{}]`",
                        word(lifted.danger)
                    )));
            }
            let service =
                main_service(&kept.stack, wanted.map(String::as_str).or(Some(kept.service.as_str())))?;
            return Ok(Self { bundle: None, stack: kept.stack, service });
        }
        let bundle = bundle(settings, request).await?;
        if !bundle.left_out.is_empty() {
            let left: Vec<String> =
                bundle.left_out.iter().map(|path| sandboxer_core::suggest::printable(path)).collect();
            request
                .progress
                .say(format!("left out, because they look like credentials: {}", left.join(", ")));
        }
        let file = crate::file::find(&bundle, spec.compose.file.as_deref())?;
        let stack = judge(&bundle, &file, &spec.variables, &spec.dangerously_allow)?;
        for note in &stack.notes {
            request.progress.say(note);
        }
        let service = main_service(&stack, wanted.map(String::as_str))?;
        Ok(Self { bundle: Some(bundle), stack, service })
    }
}

/// The inputs' bundle; a seed lies on top of it, or is the bundle itself when it has a compose file.
async fn bundle(settings: &Settings, request: &ProvisionRequest) -> Result<Bundle> {
    let spec = &request.spec;
    let include: Vec<String> = spec
        .inputs
        .get("include")
        .map(|list| {
            list.split(',').map(|path| path.trim().to_owned()).filter(|path| !path.is_empty()).collect()
        })
        .unwrap_or_default();
    let file = spec.compose.file.as_deref();
    let packing = settings.state_dir.join("packing");
    let seed = match &request.seed {
        Some(seed) => Some(prepare(Origin::Seed(seed.clone()), &include, file, &packing).await?),
        None => None,
    };
    match seed {
        Some(seed) if has_compose_file(&seed, file) => Ok(seed),
        Some(seed) => {
            let origin = Origin::of(&spec.inputs)?;
            let base = prepare(origin, &include, file, &packing).await?;
            crate::bundle::lay_over(base, &seed).await
        }
        None => {
            let origin = Origin::of(&spec.inputs)?;
            prepare(origin, &include, file, &packing).await
        }
    }
}

fn has_compose_file(bundle: &Bundle, named: Option<&str>) -> bool {
    match named {
        Some(named) => bundle.index.is_file(named.trim_start_matches("./")),
        None => COMPOSE_NAMES.iter().any(|name| bundle.index.is_file(name)),
    }
}
