//! Starting from a snapshot: a create on the snapshot's own extension and host, configured as its sandbox was unless
//! the request says otherwise.

use sandboxer_core::profile::Scope;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::snapshot::{SnapshotRecord, Taken};
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Error, ErrorKind, Result, SnapshotId};

use crate::{Caller, CreateOptions, Created, Engine, Plan, Work};

impl Engine {
    /// A create with `from`, for whoever has the snapshot in hand.
    pub async fn restore(
        &self,
        caller: &Caller,
        id: SnapshotId,
        mut request: CreateRequest,
        options: CreateOptions,
    ) -> Result<Created> {
        let id = id.to_string();
        if request.from.as_ref().is_some_and(|from| *from != id) {
            return Err(Error::new(ErrorKind::InvalidInput, "`from` names another snapshot than the path")
                .with_hint("leave `from` out"));
        }
        request.from = Some(id);
        self.create(caller, request, options).await
    }

    /// Resolves a request without any effect, also one that starts from a snapshot, which its caller must be able to
    /// see.
    pub fn plan_for<'a>(&'a self, caller: &'a Caller, request: &'a CreateRequest) -> Work<'a, Plan> {
        Box::pin(async move {
            crate::inputs::check(caller, request)?;
            let mut plan = self.plan_from(caller, request).await?;
            plan.spec.workspace_source = self.checked_source(caller, &plan)?;
            Ok(plan)
        })
    }

    async fn plan_from(&self, caller: &Caller, request: &CreateRequest) -> Result<Plan> {
        let Some(from) = &request.from else { return self.plan_as(Some(caller), request).await };
        let stored = self.load_snapshot(caller, from.parse()?).await?;
        if stored.doomed && stored.lease.as_ref().is_none_or(|lease| lease.owner != self.inner.owner.as_str())
        {
            return Err(Error::new(ErrorKind::IllegalState, format!("snapshot {from} is being deleted")));
        }
        let record = stored.record;
        let extension = self.inner.registry.get(&record.snapshot.extension)?;
        if !extension.describe().capability.restore {
            return Err(Error::unsupported(&record.snapshot.extension, "starting from a snapshot"));
        }
        let mut plan = self.plan_as(Some(caller), &placed(request, &record)?).await?;
        if request.profile.is_none() {
            plan.spec = configured(&record.spec, request);
        }
        plan.from = Some(origin(record)?);
        Ok(plan)
    }
}

fn origin(record: SnapshotRecord) -> Result<Taken> {
    record.taken.ok_or_else(|| Error::new(ErrorKind::Internal, "a snapshot that was never taken"))
}

/// The request with the snapshot's place and profile in it. Only one place has the data.
fn placed(request: &CreateRequest, record: &SnapshotRecord) -> Result<CreateRequest> {
    let snapshot = &record.snapshot;
    for (what, wanted, is) in
        [("extension", &request.extension, &snapshot.extension), ("host", &request.host, &snapshot.host)]
    {
        if wanted.as_ref().is_some_and(|wanted| wanted != is) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("snapshot {} can only be used with {what} `{is}`", snapshot.snapshot_id),
            )
            .with_hint(format!("leave the {what} out")));
        }
    }
    Ok(CreateRequest {
        profile: request.profile.clone().or_else(|| Some(snapshot.profile.clone())),
        extension: Some(snapshot.extension.clone()),
        host: Some(snapshot.host.clone()),
        // A copy of something is shared only by whoever asks for that.
        scope: request.scope.or(Some(Scope::Session)),
        from: None,
        ..request.clone()
    })
}

/// The configuration of the snapshot's sandbox with the request's own words on top.
fn configured(of: &SandboxSpec, request: &CreateRequest) -> SandboxSpec {
    let mut spec = of.clone();
    spec.variables.extend(request.env.clone());
    spec.inputs.extend(request.inputs.clone());
    spec.secret_refs.extend(request.setup_metadata.secret_refs.iter().cloned());
    // The snapshot has the workspace's content already; only a folder that is named again is used again.
    spec.workspace_source = request.workspace.as_ref().and_then(|wanted| wanted.source.clone());
    if let Some(wanted) = &request.workspace {
        spec.workspace.mode = wanted.mode.unwrap_or(spec.workspace.mode);
        spec.workspace.access = wanted.access.unwrap_or(spec.workspace.access);
    }
    let isolation = request.route.as_ref().and_then(|route| route.constraints.require_isolation);
    spec.requires.isolation = spec.requires.isolation.max(isolation);
    spec.allow_degraded |= request.allow_degraded;
    spec
}
