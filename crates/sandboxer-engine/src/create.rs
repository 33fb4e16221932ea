//! Create: plan, write the intent, establish, answer. Reuse and idempotent repeats end here too.

use sandboxer_core::event::NewEvent;
use sandboxer_core::extension::Progress;
use sandboxer_core::isolation::IsolationReport;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::sandbox::{Drift, Links, Sandbox, SandboxRecord, reason};
use sandboxer_core::{Actor, Error, ErrorKind, Result, SandboxId, State};
use sandboxer_store::{Idempotency, Insert, Inserted, Step, Stored};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::bill::Money;
use crate::caller::Action;
use crate::destroy::Ending;
use crate::establish::Making;
use crate::plan::explained;
use crate::sharing::Sharing;
use crate::{Caller, Engine, Plan, Work, fault};

/// How a create is to be carried out.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    pub idempotency_key: Option<String>,
    /// Cancelling it before the sandbox is ready removes everything again.
    pub cancel: CancellationToken,
    /// Answer as soon as the intent is written.
    pub respond_async: bool,
    /// Told how far long work is.
    pub progress: Progress,
}

/// The sandbox, and whether it is still being established.
#[derive(Clone, Debug)]
pub struct Created {
    pub sandbox: Sandbox,
    pub pending: bool,
}

impl Engine {
    /// If the caller goes away, the create is cancelled, which cleans up.
    pub async fn create(
        &self,
        caller: &Caller,
        request: CreateRequest,
        options: CreateOptions,
    ) -> Result<Created> {
        caller.require(Action::UseSandboxes)?;
        let request = as_caller(caller, request);
        let plan = self.plan_for(caller, &request).await?;
        plan.offer()?;
        let sharing = Sharing::of(caller, &request, &plan, self);
        self.create_shared(caller, request, plan, options, sharing).await
    }

    pub(crate) fn create_shared<'a>(
        &'a self,
        caller: &'a Caller,
        request: CreateRequest,
        plan: Plan,
        options: CreateOptions,
        sharing: Sharing,
    ) -> Work<'a, Created> {
        Box::pin(async move {
            // A task of its own from the first write on: a future that is dropped in the middle would clean up nothing.
            let (engine, caller, cancel) = (self.clone(), caller.clone(), options.cancel.clone());
            let guard = cancel.drop_guard();
            let task = tokio::spawn(async move {
                engine.create_planned(&caller, &request, plan, &options, &sharing).await
            });
            let created = task.await.map_err(internal)?;
            let _ = guard.disarm();
            created
        })
    }

    async fn create_planned(
        &self,
        caller: &Caller,
        request: &CreateRequest,
        mut plan: Plan,
        options: &CreateOptions,
        sharing: &Sharing,
    ) -> Result<Created> {
        let _waiting = self.inner.waiting_creates.try_acquire().map_err(|_| {
            Error::new(ErrorKind::RateLimited, "too many creates are waiting")
                .with_hint("try again in a moment; the limit is that of this server")
        })?;
        // A sandbox to share that turns out to be dead is settled and the insert tried again; that ends quickly.
        let mut rounds = 0;
        while rounds < 8 {
            let insert = self.intent(caller, request, &plan, options, sharing).await?;
            fault::point("engine.create.before_intent");
            let inserted = match self.insert_paid(insert).await {
                // The next one may cost less; there are only so many.
                Err(refusal)
                    if refusal.kind() == ErrorKind::InsufficientCredits && plan.pass_over(&refusal) =>
                {
                    continue;
                }
                other => other?,
            };
            rounds += 1;
            let created = match inserted {
                Inserted::New(stored) => {
                    fault::point("engine.create.after_intent");
                    return self.establish_new(stored, &plan, options).await;
                }
                Inserted::Replayed(stored) => self.replay(stored, options).await?,
                Inserted::Reusable(stored) => self.reuse(stored, options).await?,
                Inserted::Mismatch => {
                    return Err(Error::new(
                        ErrorKind::IdempotencyMismatch,
                        "this idempotency key was used before with another request",
                    )
                    .with_hint("use a new key for a new request"));
                }
            };
            if let Some(created) = created {
                return Ok(created);
            }
        }
        Err(Error::new(ErrorKind::Conflict, "the sandbox kept ending while it was being shared"))
    }

    /// What is written before anything is done: the record, its first events, the lease, the idempotency key.
    async fn intent(
        &self,
        caller: &Caller,
        request: &CreateRequest,
        plan: &Plan,
        options: &CreateOptions,
        sharing: &Sharing,
    ) -> Result<Insert> {
        let mut record = self.new_record(caller, request, plan, sharing).await?;
        (record.bill, record.sandbox.quote) = self.open_bill(caller, &record).await?;
        let money = match &record.bill {
            Some(bill) if bill.held > sandboxer_core::Money::ZERO => self.hold_for(&record),
            // Nothing to tell; only whose statement it will be on.
            Some(_) => Money { facts: Vec::new(), ..self.hold_for(&record) },
            None => Money::default(),
        };
        let now = record.sandbox.created_at;
        let mut about = json!({
            "profile": record.sandbox.profile,
            "extension": record.sandbox.extension,
            "host": record.sandbox.host,
            "consumer": record.sandbox.consumer,
            "ttl": record.sandbox.ttl,
            "quote": record.sandbox.quote.amount,
        });
        if let Some(from) = &request.from {
            about["from"] = json!(from);
        }
        let steps = vec![
            Step { to: State::Requested, event: NewEvent::transition(State::Requested, now, about) },
            Step {
                to: State::Provisioning,
                event: NewEvent::transition(State::Provisioning, now, json!({})),
            },
        ];
        let idempotency = match &options.idempotency_key {
            None => None,
            Some(key) => Some(Idempotency {
                scope: format!("{}/create", caller.key_text().unwrap_or_else(|| "local".into())),
                key: key.clone(),
                body_hash: sandboxer_core::hash::of_value(&serde_json::to_value(request).map_err(internal)?),
            }),
        };
        Ok(Insert { record, steps, lease: self.lease(), idempotency, facts: money.facts, books: money.books })
    }

    async fn new_record(
        &self,
        caller: &Caller,
        request: &CreateRequest,
        plan: &Plan,
        sharing: &Sharing,
    ) -> Result<SandboxRecord> {
        let offer = match plan.route.untried() {
            Some(offer) => offer,
            None => plan.offer()?,
        };
        let (sandbox_id, now) = (SandboxId::generate(), self.now());
        let config_hash = plan.spec.config_hash()?;
        let reuse_key = sharing.key.clone();
        let drift = self.drift(sharing, &config_hash, plan).await?;
        let sandbox = Sandbox {
            sandbox_id,
            state: State::Provisioning,
            profile: plan.profile.clone(),
            extension: offer.extension.clone(),
            host: offer.host.clone(),
            scope: plan.scope,
            reused: false,
            isolation: IsolationReport { declared: plan.spec.isolation.level, ..IsolationReport::default() },
            reachability: None,
            ttl: plan.ttl,
            idle_reap: plan.idle_reap,
            created_at: now,
            ready_at: None,
            expires_at: plan.ttl.after(now),
            destroyed_at: None,
            labels: request.labels.clone(),
            consumer: request.consumer.clone(),
            workspace: plan.spec.workspace.clone(),
            quote: plan.quote.clone(),
            cost: None,
            reason: None,
            failure: None,
            cleanup: None,
            drift,
            config_hash,
            route: plan.route.clone(),
            links: Links::of(sandbox_id),
        };
        Ok(SandboxRecord {
            sandbox,
            spec: plan.spec.clone(),
            handle: None,
            reuse_key,
            owner_key: caller.key_text(),
            bill: None,
        })
    }

    /// The living sandbox of the same scope that is configured differently, so that the caller learns why it got another.
    async fn drift(&self, sharing: &Sharing, config_hash: &str, plan: &Plan) -> Result<Option<Drift>> {
        let Some(key) = &sharing.key else { return Ok(None) };
        let living = self.inner.store.sharing(key).await?;
        if let Some(other) = living.iter().find(|other| other.record.sandbox.config_hash != config_hash) {
            let changed = plan.spec.differing_keys(&other.record.spec)?;
            return Ok(Some(Drift { previous: other.record.id(), changed }));
        }
        let Some(freely) = sharing.freely.as_ref().filter(|freely| *freely != key) else { return Ok(None) };
        let living = self.inner.store.sharing(freely).await?;
        let Some(other) = living.first() else { return Ok(None) };
        let mut changed = plan.spec.differing_keys(&other.record.spec)?;
        changed.push("route".into());
        Ok(Some(Drift { previous: other.record.id(), changed }))
    }

    async fn establish_new(&self, stored: Stored, plan: &Plan, options: &CreateOptions) -> Result<Created> {
        let making =
            Making { from: plan.from.clone(), progress: options.progress.clone(), ..Making::default() };
        if options.respond_async {
            let (engine, sandbox) = (self.clone(), stored.record.sandbox.clone());
            tokio::spawn(async move { engine.establish(stored, &making, CancellationToken::new()).await });
            return Ok(Created { sandbox, pending: true });
        }
        let sandbox = self.establish(stored, &making, options.cancel.clone()).await?;
        Ok(Created { sandbox, pending: false })
    }

    /// The same key and body give the same sandbox, once it is established, or the same failure. Nothing, if the first
    /// request never got an answer: then this one is the first.
    async fn replay(&self, stored: Stored, options: &CreateOptions) -> Result<Option<Created>> {
        if options.respond_async && matches!(stored.record.state(), State::Requested | State::Provisioning) {
            return Ok(Some(Created { sandbox: stored.record.sandbox, pending: true }));
        }
        let mut stored = self.until_established(stored, &options.cancel).await?;
        if stored.record.state() == State::Destroying {
            stored = self.end(stored, Ending::because(reason::CLEANUP_RETRY)).await?;
        }
        if stored.record.was_never_answered() {
            return Ok(None);
        }
        let sandbox = stored.record.sandbox;
        match (&sandbox.failure, sandbox.ready_at) {
            (Some(failure), None) => {
                let kind = ErrorKind::from_code(&failure.code).unwrap_or(ErrorKind::BackendFailed);
                let mut error = Error::new(kind, failure.message.clone());
                if kind == ErrorKind::NoBackend {
                    error = explained(error, &sandbox.route);
                }
                Err(match &failure.hint {
                    Some(hint) => error.with_hint(hint.clone()),
                    None => error,
                })
            }
            _ => Ok(Some(Created { sandbox, pending: false })),
        }
    }

    /// The living sandbox, if it does live.
    async fn reuse(&self, stored: Stored, options: &CreateOptions) -> Result<Option<Created>> {
        let stored = self.until_established(stored, &options.cancel).await?;
        let mut stored = self.settle(stored).await?;
        if stored.record.state() == State::Paused {
            // Whoever asks for a sandbox wants one that can be used.
            let id = stored.record.id();
            self.resume(&Caller::local_admin(), id).await?;
            stored = self.reload(id).await?;
        }
        if !stored.record.state().is_usable() {
            return Ok(None);
        }
        let mut sandbox = stored.record.sandbox;
        sandbox.reused = true;
        Ok(Some(Created { sandbox, pending: false }))
    }

    /// Waits for whoever is establishing a sandbox, and takes over if they are gone.
    async fn until_established(&self, mut stored: Stored, cancel: &CancellationToken) -> Result<Stored> {
        let mut pause = std::time::Duration::from_millis(2);
        while matches!(stored.record.state(), State::Requested | State::Provisioning) {
            if !self.is_being_worked_on(&stored) {
                return self.settle(stored).await;
            }
            tokio::select! {
                () = cancel.cancelled() => return Err(Error::new(ErrorKind::Cancelled, "the create was cancelled")),
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(std::time::Duration::from_millis(100));
            let id = stored.record.id();
            stored = self.inner.store.get(id).await?.ok_or_else(|| {
                Error::new(ErrorKind::SandboxNotFound, format!("sandbox {id} vanished from the store"))
            })?;
        }
        Ok(stored)
    }
}

/// A key says what its holder is; only an operator may act on behalf of somebody else.
pub(crate) fn as_caller(caller: &Caller, mut request: CreateRequest) -> CreateRequest {
    if caller.actor != Actor::Adm {
        request.consumer.actor = caller.actor;
    }
    request
}

fn internal(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, "a create broke off").with_source(source)
}
