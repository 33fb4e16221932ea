//! The use cases: create … destroy, exec, files, reap, reconcile, deliver.
//!
//! The engine alone changes lifecycle state. It asks core what applies, the store what is, and extensions for facts;
//! the server and the command line call it and nothing below it.

pub mod caller;
pub mod catalog;
pub mod clock;
pub mod fault;
pub mod http;
pub mod owner;

mod absorbed;
mod admit;
mod attempt;
mod bill;
mod create;
mod credits;
mod destroy;
mod establish;
mod estimate;
mod events;
mod execs;
mod files;
mod fork;
mod health;
mod hedge;
mod hold;
mod hosts;
mod inputs;
mod inspect;
mod keys;
mod maintain;
mod outbox;
mod pause;
mod placement;
mod plan;
mod ports;
pub mod prices;
mod progress;
mod reach;
mod reconcile;
mod reconcile_usage;
mod recreate;
mod refusal;
mod reroute;
mod restore;
mod route;
mod sharing;
mod signs;
mod silence;
mod snapshots;
mod stale;
mod statement;
mod survey;
mod ttl;
pub mod vault;
pub mod workspace;

use std::collections::BTreeMap;
use std::sync::Arc;

use sandboxer_core::profile::RouteSpec;
use sandboxer_core::route::ExtensionLimits;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Dur, Error, ErrorKind, Registry, Result, SandboxId, State};
use sandboxer_store::{Store, Stored};
use tokio::sync::Semaphore;

pub use caller::Caller;
pub use create::{CreateOptions, Created};
pub use credits::{
    ALL_ACCOUNTS, BooksAudit, BudgetRequest, CreditKind, CreditRequest, Credited, Credits, EntryQuery,
    EntryView, LimitRequest, ProviderKeyRequest, ProviderKeyView, parse_adjustment, parse_amount,
    parse_workspace,
};
pub use estimate::{Estimate, EstimateRequest};
pub use fork::{ForkRequest, Forked};
pub use hosts::{ExtensionCheck, HostBook, HostCheck, HostView, NewHost, known_host_name};
pub use inspect::{ExtensionView, HostReport, ProfileView, SandboxInspection};
pub use keys::NewKey;
pub use outbox::{
    FIN_HUB_SINK, FinHub, NewWebhook, NewWebhookView, PrivateTargets, ReplayRequest, STATE_HUB_SINK,
    Schedule, SecretView, Sink, StateHub, Undelivered, WebhookAnswer, WebhookView, fin_hub_outlet,
};
pub use plan::Plan;
pub use reconcile::ReconcileReport;
pub use reconcile_usage::{
    MOST_BYTES as MOST_USAGE_BYTES, MalformedRow, UsageFormat, UsageImport, UsageLine, UsageReport,
};
pub use stale::{EmptyRow, ReapRequest, Remains, StaleReport, Unanswered};
pub use statement::{ExtensionTotal, MeterTotal, Month, Statement, StatementFormat, StatementText};

use catalog::Catalog;
use clock::Clock;
use owner::Owner;
use prices::Prices;

/// Bounds of the engine's own work.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Creates under way at once; more wait their turn.
    pub concurrent_creates: usize,
    /// Creates that may wait; more are refused.
    pub waiting_creates: usize,
    /// How long a backend may take to provision, with its setup commands.
    pub provision_timeout: Dur,
    /// How long a teardown may take.
    pub teardown_timeout: Dur,
    /// How long finished sandboxes and their events are remembered.
    pub retention: Dur,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrent_creates: 64,
            waiting_creates: 4_096,
            provision_timeout: Dur::from_secs(600),
            teardown_timeout: Dur::from_secs(120),
            retention: Dur::from_secs(30 * 86_400),
        }
    }
}

/// What an engine is made of.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub registry: Registry,
    pub catalog: Catalog,
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
    /// Overrides the placement of profiles.
    pub host: Option<String>,
    pub sinks: Vec<Arc<dyn Sink>>,
    /// What holds for every route, below profile and request.
    pub route: RouteSpec,
    /// What is sent to an extension at most, by its id.
    pub extension_limits: BTreeMap<String, ExtensionLimits>,
    /// What backends ask; the built-in prices unless folders were named.
    pub prices: Prices,
}

/// Work whose type is forgotten. The large operations are given out as such: an `async fn` is compiled again in every
/// crate and test that awaits it, this once and here.
pub(crate) type Work<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The engine. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    registry: Registry,
    catalog: Catalog,
    clock: Arc<dyn Clock>,
    limits: Limits,
    host: Option<String>,
    sinks: Vec<Arc<dyn Sink>>,
    route: RouteSpec,
    extension_limits: BTreeMap<String, ExtensionLimits>,
    /// What this process has at hand of what routing remembers.
    memory: health::Memory,
    counted: admit::Counted,
    absorbed: absorbed::Absorbed,
    prices: Prices,
    owner: Owner,
    /// Which signs of life were written down.
    signs: signs::Signs,
    /// Which backends did not answer lately.
    silence: silence::Silence,
    create_slots: Semaphore,
    waiting_creates: Semaphore,
    /// Where seeds and mirrors are kept, once that is known.
    workspaces: std::sync::OnceLock<workspace::Places>,
    /// Where secrets are kept, once that is known.
    vault: std::sync::OnceLock<vault::Vault>,
    /// What webhooks are sent with.
    post: outbox::Post,
}

impl Engine {
    pub fn new(parts: Parts) -> Self {
        let create_slots = Semaphore::new(parts.limits.concurrent_creates);
        let waiting_creates = Semaphore::new(parts.limits.waiting_creates + parts.limits.concurrent_creates);
        let descriptions = parts.registry.iter().map(|extension| extension.describe());
        let metered = descriptions.filter(|one| !one.capability.self_hosted).map(|one| one.id);
        parts.prices.are_metered(metered);
        Self {
            inner: Arc::new(Inner {
                store: parts.store,
                registry: parts.registry,
                catalog: parts.catalog,
                clock: parts.clock,
                limits: parts.limits,
                host: parts.host,
                sinks: parts.sinks,
                route: parts.route,
                extension_limits: parts.extension_limits,
                memory: health::Memory::default(),
                counted: admit::Counted::default(),
                absorbed: absorbed::Absorbed::default(),
                prices: parts.prices,
                owner: Owner::of_this_process(),
                signs: signs::Signs::default(),
                silence: silence::Silence::default(),
                create_slots,
                waiting_creates,
                workspaces: std::sync::OnceLock::new(),
                vault: std::sync::OnceLock::new(),
                post: outbox::Post::default(),
            }),
        }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    pub fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    /// The extensions that were registered.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// What backends ask.
    pub fn prices(&self) -> &Prices {
        &self.inner.prices
    }

    /// The clock that every stored time comes from.
    pub fn now(&self) -> jiff::Timestamp {
        self.inner.clock.now()
    }

    /// The names of the sinks that events are delivered to.
    pub fn sink_names(&self) -> impl Iterator<Item = &str> {
        self.inner.sinks.iter().map(|sink| sink.name())
    }

    /// The row, if the caller may know of it. Whose it is not is told the same as a stranger's id.
    async fn load(&self, caller: &Caller, id: SandboxId) -> Result<Stored> {
        let stored = self.inner.store.get(id).await?;
        stored.filter(|stored| caller.may_see(stored.record.owner_key.as_deref())).ok_or_else(|| {
            Error::new(ErrorKind::SandboxNotFound, format!("there is no sandbox {id}"))
                .with_hint("`sandboxer list --all` shows the sandboxes that are known, ended ones included")
        })
    }

    /// The row of a sandbox in which commands can run now, settled first if its time is over.
    async fn load_usable(&self, caller: &Caller, id: SandboxId) -> Result<Stored> {
        let mut stored = self.load(caller, id).await?;
        if stored.record.state().is_usable()
            && (stored.record.sandbox.expires_at <= self.now() || self.is_abandoned(&stored))
        {
            stored = self.settle(stored).await?;
        }
        if stored.record.state().is_usable() { Ok(stored) } else { Err(not_usable(&stored)) }
    }

    /// One sandbox, as it really is: a row whose backend ended is brought up to date first. Where the backend cannot be
    /// asked, as it was last known.
    pub async fn get(&self, caller: &Caller, id: SandboxId) -> Result<Sandbox> {
        let stored = self.load(caller, id).await?;
        match Box::pin(self.settle_if_needed(stored)).await {
            Ok(settled) => Ok(settled.record.sandbox),
            Err(error) if is_the_stores(&error) => Err(error),
            Err(error) => {
                tracing::error!(error = ?error, sandbox = %id, "its backend could not be asked; this is what was known last");
                Ok(self.load(caller, id).await?.record.sandbox)
            }
        }
    }
}

/// Not the backend's: what is known may be wrong, and nothing was asked.
fn is_the_stores(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StoreFailed | ErrorKind::StoreBusy | ErrorKind::Internal)
}

/// Why nothing can be done with it now, and what to do about that.
fn not_usable(stored: &Stored) -> Error {
    let (id, state) = (stored.record.id(), stored.record.state());
    let hint = match state {
        State::Requested | State::Provisioning => "wait until it is ready".to_owned(),
        State::Paused => format!("`sandboxer resume {id}` first"),
        _ => format!("`sandboxer recreate {id}` makes a new one from the same profile"),
    };
    Error::new(ErrorKind::IllegalState, format!("sandbox {id} is {state}")).with_hint(hint)
}
