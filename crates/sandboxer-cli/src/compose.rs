//! Puts the house together: settings from flags, variables and the file; then an engine or a client to a server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::env_vars::EnvVars;
use sandboxer_core::profile::RouteSpec;
use sandboxer_core::route::ExtensionLimits;
use sandboxer_core::{Error, ErrorKind, HostDirectory, Registry, Result};
use sandboxer_engine::catalog::{Catalog, CatalogSources};
use sandboxer_engine::clock::SystemClock;
use sandboxer_engine::prices::Prices;
use sandboxer_engine::{
    Engine, FinHub, HostBook, Limits, Parts, PrivateTargets, STATE_HUB_SINK, Sink, StateHub, fin_hub_outlet,
};
use sandboxer_ext_native::NativeConfig;
use sandboxer_store::sqlite::{SqliteStore, StoreOptions};
use sandboxer_store::{Outlet, Store};

use crate::api::Api;
use crate::args::Globals;
use crate::config::Config;
use crate::embedded::Embedded;
use crate::remote::Remote;
use crate::status::io_error;

/// The store's file in the home.
const STORE_FILE: &str = "sandboxer.db";

/// Flags, then variables, then `config.toml`, then what the contract says.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) home: PathBuf,
    pub(crate) server: Option<String>,
    api_key_file: Option<PathBuf>,
    host: Option<String>,
    pub(crate) state_hub_url: Option<String>,
    pub(crate) fin_hub_url: Option<String>,
    pub(crate) webhook_allow_private: Option<String>,
    pub(crate) route: RouteSpec,
    pub(crate) extension_limits: BTreeMap<String, ExtensionLimits>,
    sources: CatalogSources,
    /// Folders whose manifests may name executables: the user's own and the one that was named, never the working
    /// directory's, which may be somebody else's project.
    registries: Vec<PathBuf>,
    /// Folders of price files; later ones win.
    prices: Vec<PathBuf>,
    /// Those that must be there, after the others.
    named_prices: Vec<PathBuf>,
    pub(crate) log: Option<String>,
    pub(crate) log_format: Option<String>,
}

impl Settings {
    pub(crate) fn load(globals: &Globals) -> Result<Self> {
        let config_dir = base_dir("XDG_CONFIG_HOME", ".config");
        let config = match &config_dir {
            Some(dir) => Config::load(&dir.join("config.toml"))?,
            None => Config::default(),
        };
        let home = globals.home.clone().filter(|path| !path.as_os_str().is_empty());
        let home =
            home.or(config.home).or_else(|| base_dir("XDG_DATA_HOME", ".local/share")).ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    "there is no place to keep state: neither SANDBOXER_HOME nor HOME is set",
                )
                .with_hint("set SANDBOXER_HOME to a folder that you can write to")
            })?;
        let mut extra = config.profiles;
        extra.extend(variable(EnvVars::SANDBOXER_PROFILES)?.map(PathBuf::from));
        if let Some(missing) = globals.profiles.iter().find(|folder| !folder.is_dir()) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("--profiles {}: there is no such folder", missing.display()),
            ));
        }
        extra.extend(globals.profiles.iter().cloned());
        // An empty value says "the local store" whatever the file says.
        let server = globals.server.clone().or(config.server).filter(|url| !url.is_empty());
        let registries = config_dir.as_ref().map(|dir| dir.join("registry")).into_iter();
        let registries =
            registries.chain(variable(EnvVars::SANDBOXER_REGISTRY)?.map(PathBuf::from)).collect();
        let prices = config_dir.iter().map(|dir| dir.join("prices")).collect();
        // Only what needs a price fails where one of these is missing.
        let mut named_prices = config.prices;
        let folder = std::env::var_os(EnvVars::SANDBOXER_PRICES).filter(|folder| !folder.is_empty());
        named_prices.extend(folder.map(PathBuf::from));
        Ok(Self {
            home: absolute(&home)?,
            registries,
            prices,
            named_prices,
            server,
            api_key_file: globals.api_key_file.clone().or(config.api_key_file),
            host: variable(EnvVars::SANDBOXER_HOST)?.or(config.host),
            state_hub_url: variable(EnvVars::SANDBOXER_STATE_HUB_URL)?.or(config.state_hub_url),
            fin_hub_url: variable(EnvVars::SANDBOXER_FIN_HUB_URL)?.or(config.fin_hub_url),
            webhook_allow_private: variable(EnvVars::SANDBOXER_WEBHOOK_ALLOW_PRIVATE)?
                .or(config.webhook_allow_private),
            route: config.route,
            extension_limits: config.extensions,
            sources: CatalogSources {
                user: config_dir.map(|dir| dir.join("profiles")),
                project: Some(PathBuf::from(".sandboxer/profiles")),
                extra,
            },
            log: variable(EnvVars::SANDBOXER_LOG)?.or(config.log),
            log_format: variable(EnvVars::SANDBOXER_LOG_FORMAT)?.or(config.log_format),
        })
    }

    /// The key for the server: from the file that was named, otherwise from the variable.
    fn api_key(&self) -> Result<Option<String>> {
        let Some(path) = &self.api_key_file else { return variable(EnvVars::SANDBOXER_API_KEY) };
        let text = std::fs::read_to_string(path).map_err(|source| {
            io_error(format!("the API key file {} cannot be read", path.display()), source)
        })?;
        Ok(Some(text.trim().to_owned()).filter(|key| !key.is_empty()))
    }

    /// What events are queued for, beside webhooks.
    /// Tells processes with other hubs apart; nothing without any.
    pub(crate) fn hubs_mark(&self) -> String {
        if self.state_hub_url.is_none() && self.fin_hub_url.is_none() {
            return String::new();
        }
        let hubs = serde_json::json!([self.state_hub_url, self.fin_hub_url]);
        format!("-{}", &sandboxer_core::hash::of_value(&hubs)[..8])
    }

    fn outlets(&self) -> Vec<Outlet> {
        let state = self.state_hub_url.iter().map(|_| STATE_HUB_SINK.into());
        state.chain(self.fin_hub_url.iter().map(|_| fin_hub_outlet())).collect()
    }

    /// Somebody beside webhooks listens to events.
    fn has_hubs(&self) -> bool {
        self.state_hub_url.is_some() || self.fin_hub_url.is_some()
    }

    /// Every profile that there is for this working directory.
    pub(crate) fn catalog(&self) -> Catalog {
        Catalog::load(&self.sources)
    }
}

/// Whatever answers commands: the server that was named, or an engine of our own.
pub(crate) async fn api(settings: &Settings) -> Result<Box<dyn Api>> {
    match &settings.server {
        Some(url) => Ok(Box::new(Remote::new(url, settings.api_key()?)?)),
        None => {
            let engine = engine(settings, Role::Command).await?;
            Ok(Box::new(Embedded::new(engine, settings.has_hubs())))
        }
    }
}

/// What an engine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// One command: it queues events and leaves their delivery to others, since an HTTP client takes its time to start.
    Command,
    /// The process that delivers for commands.
    Deliverer,
    Server,
}

/// How many sandboxes a server makes in advance.
fn warm_size() -> Result<usize> {
    const DEFAULT: usize = 4;
    const MOST: usize = 64;
    let Some(text) = variable(EnvVars::SANDBOXER_WARM)? else { return Ok(DEFAULT) };
    text.parse().ok().filter(|size| *size <= MOST).ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("`{}` is not a size of the warm pool", sandboxer_core::suggest::printable(&text)),
        )
        .with_hint(format!("SANDBOXER_WARM is a number from 0 to {MOST}"))
    })
}

/// An engine on the local store.
pub(crate) async fn engine(settings: &Settings, role: Role) -> Result<Engine> {
    // Before anything is queued for a place that is none.
    settings.state_hub_url.as_deref().map_or(Ok(()), StateHub::check)?;
    settings.fin_hub_url.as_deref().map_or(Ok(()), FinHub::check)?;
    make_home(&settings.home)?;
    let name = if role == Role::Server { "server" } else { "cli" };
    let options =
        StoreOptions { source: format!("sandboxer://{}/{name}", host_name()), hubs: settings.outlets() };
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&settings.home.join(STORE_FILE), options).await?);
    // Where extensions look up the host that a sandbox is placed on.
    let hosts: Arc<dyn HostDirectory> = Arc::new(HostBook::new(store.clone()));
    let mut registry = Registry::default();
    let mut native = NativeConfig::new(&settings.home);
    if let Some(features) = variable(EnvVars::SANDBOXER_PROBE_OFF)? {
        native = native.without(&features)?;
    }
    let behind_stub = native.clone();
    if role == Role::Server {
        native.warm = warm_size()?;
    }
    sandboxer_ext_native::register(&mut registry, native);
    sandboxer_ext_docker::register(&mut registry, sandboxer_ext_docker::Settings::new(&settings.home));
    sandboxer_ext_compose_ssh::register(
        &mut registry,
        sandboxer_ext_compose_ssh::Settings::new(hosts.clone(), &settings.home),
    );
    let ssh = sandboxer_ext_ssh::Settings::new(hosts.clone(), &settings.home);
    sandboxer_ext_ssh::register(&mut registry, ssh);
    let machines = sandboxer_ext_vm_packer::Settings::new(hosts.clone(), settings.home.join("vm-packer"));
    sandboxer_ext_vm_packer::register(&mut registry, machines);

    register_stub(&mut registry, &settings.home, behind_stub)?;
    register_processes(&mut registry, &settings.registries);

    let mut sinks: Vec<Arc<dyn Sink>> = Vec::new();
    if let Some(url) = settings.state_hub_url.as_deref().filter(|_| role != Role::Command) {
        sinks.push(Arc::new(StateHub::new(url)?));
    }
    if let Some(url) = settings.fin_hub_url.as_deref().filter(|_| role != Role::Command) {
        sinks.push(Arc::new(FinHub::new(url)?));
    }
    let prices = Prices::load_with(settings.prices.clone(), settings.named_prices.clone());
    // A look says what is wrong. Commands without a price in them need none, and are told of the folder all the same.
    if settings.named_prices.iter().any(|folder| !folder.is_dir()) {
        prices.book();
    }
    let engine = Engine::new(Parts {
        store,
        registry,
        catalog: settings.catalog(),
        clock: Arc::new(SystemClock),
        limits: Limits::default(),
        host: settings.host.clone(),
        sinks,
        prices,
        route: settings.route.clone(),
        extension_limits: settings.extension_limits.clone(),
    });
    engine.keep_workspaces_in(&settings.home);
    engine.keep_secrets_in(&settings.home);
    if let Some(targets) = &settings.webhook_allow_private {
        engine.allow_private_webhooks(targets.parse::<PrivateTargets>()?);
    }
    Ok(engine)
}

/// Adds the pretended provider. Its sandboxes run on a native runtime of its own, in a folder of its own: under the same
/// tags, those of `ext.native` never meet them.
fn register_stub(registry: &mut Registry, home: &Path, mut native: NativeConfig) -> Result<()> {
    use sandboxer_ext_saas_stub::{Backing, Settings};
    let folder = home.join("saas-stub");
    native.root = Settings::native_root(&folder);
    let backing = Backing::Extension(Arc::new(sandboxer_ext_native::Native::new(native)));
    let stub = Settings::new(folder, variable(EnvVars::SANDBOXER_STUB)?, backing)?;
    sandboxer_ext_saas_stub::register(registry, stub);
    Ok(())
}

/// Adds the extensions that run in processes of their own, after the built-in ones, whose ids they cannot take.
fn register_processes(registry: &mut Registry, folders: &[PathBuf]) {
    let (extensions, problems) = sandboxer_ext_process::load(folders);
    for problem in problems {
        tracing::error!("an extension is left out: {}", problem.chain().join(": "));
    }
    for extension in extensions {
        let id = extension.describe().id;
        if registry.ids().any(|taken| taken == id) {
            tracing::error!("an extension is left out: `{id}` is the name of a built-in one");
        } else {
            registry.register(extension);
        }
    }
}

/// The home, for its owner alone: sockets and the store in it are as good as a key.
fn make_home(home: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    match std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home) {
        Ok(()) => Ok(()),
        Err(source) => {
            let kind = match source.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
                _ => ErrorKind::StoreFailed,
            };
            Err(Error::new(kind, format!("the state folder {} cannot be made", home.display()))
                .with_source(source)
                .with_hint("set SANDBOXER_HOME to a folder that you can write to"))
        }
    }
}

/// A variable that is set to something. One that is not text is refused, not ignored.
fn variable(name: &'static str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(error @ std::env::VarError::NotUnicode(_)) => {
            Err(Error::new(ErrorKind::InvalidInput, format!("{name} cannot be used")).with_source(error))
        }
    }
}

/// `$VARIABLE/sandboxer`, otherwise `~/below/sandboxer`. Relative paths in the variable are to be ignored, says XDG.
fn base_dir(variable: &str, below: &str) -> Option<PathBuf> {
    let given = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = given.or_else(|| {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
        Some(PathBuf::from(home).join(below))
    })?;
    Some(base.join("sandboxer"))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| io_error(format!("{} cannot be used", path.display()), source))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
