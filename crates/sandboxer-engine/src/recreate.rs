//! A new sandbox in the place of an old one, which is ended first.

use sandboxer_core::profile::RouteSpec;
use sandboxer_core::request::{CreateRequest, WorkspaceRequest};
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::{Result, SandboxId};
use sandboxer_store::Stored;

use crate::create::as_caller;
use crate::sharing::Sharing;
use crate::{Caller, CreateOptions, Created, Engine, Plan};

impl Engine {
    /// From the profile and wishes of the old one.
    pub async fn recreate(&self, caller: &Caller, id: SandboxId, options: CreateOptions) -> Result<Created> {
        let old = self.load(caller, id).await?;
        let request = request_of(&old);
        // What cannot be made again is said before the old one is touched.
        let plan = self.plan_in_place_of(caller, &request, &old.record).await?;
        plan.offer()?;
        self.require_credits(caller, &old.record, &plan.quote).await?;
        // It takes the place of the old one, also for those who share it, although it names its backend.
        let sharing = Sharing { key: old.record.reuse_key.clone(), freely: None };
        let request = as_caller(caller, request);
        self.destroy(caller, id).await?;
        let plan = self.plan_for(caller, &request).await?;
        plan.offer()?;
        self.create_shared(caller, request, plan, options, sharing).await
    }

    /// A plan as if the old one were gone: what it takes of hosts and limits is free for its successor.
    async fn plan_in_place_of(
        &self,
        caller: &Caller,
        request: &CreateRequest,
        old: &SandboxRecord,
    ) -> Result<Plan> {
        crate::inputs::check(caller, request)?;
        let mut scene = self.scene_of(Some(caller), request).await?;
        scene.leave_out(old, self.now());
        let mut plan = self.plan_on(&scene, request)?;
        plan.spec.workspace_source = self.checked_source(caller, &plan)?;
        Ok(plan)
    }
}

fn request_of(old: &Stored) -> CreateRequest {
    let (sandbox, spec) = (&old.record.sandbox, &old.record.spec);
    CreateRequest {
        profile: Some(sandbox.profile.clone()),
        scope: Some(sandbox.scope),
        workspace: Some(WorkspaceRequest {
            mode: Some(sandbox.workspace.mode),
            access: Some(sandbox.workspace.access),
            source: spec.workspace_source.clone(),
        }),
        inputs: spec.inputs.clone(),
        ttl: Some(sandbox.ttl),
        consumer: sandbox.consumer.clone(),
        labels: sandbox.labels.clone(),
        env: spec.variables.clone(),
        extension: Some(sandbox.extension.clone()),
        host: Some(sandbox.host.clone()),
        max_cost: sandbox.route.max_cost_total,
        route: Some(RouteSpec { constraints: sandbox.route.demanded.clone(), ..RouteSpec::default() }),
        allow_degraded: spec.allow_degraded,
        ..CreateRequest::default()
    }
}
