//! A tree to a [`Profile`]: every key of the schema, its type and its default, in one place.

use super::fields::Fields;
use super::node::{Node, Path};
use super::schema::*;
use crate::error::Result;
use crate::isolation::IsolationLevel;

/// The keys that one mapping of the schema may have.
pub(crate) struct Section {
    /// Its path without list positions; empty at the top.
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [&'static str],
}

macro_rules! sections {
    ($($constant:ident = $name:literal: [$($key:literal),* $(,)?];)*) => {
        $(static $constant: Section = Section { name: $name, keys: &[$($key),*] };)*
        pub(super) static SECTIONS: &[&Section] = &[$(&$constant),*];
    };
}

sections! {
    TOP = "": [
        "id", "version", "description", "extends", "extension", "image", "persistence", "isolation", "network",
        "workspace", "scope_default", "ttl", "resources", "variables", "secrets", "secret_refs", "mounts", "setup",
        "requires", "route", "placement", "docker", "compose", "packer", "dangerously_allow", "reachability",
        "metadata",
    ];
    ISOLATION = "isolation": ["level"];
    NETWORK = "network": ["default", "egress"];
    EGRESS = "network.egress": ["host", "ports", "protocol", "methods", "paths", "binaries", "credential"];
    WORKSPACE = "workspace": ["mode", "access"];
    TTL = "ttl": ["default", "max", "idle_reap"];
    RESOURCES = "resources": ["cpu", "memory_mb", "disk_mb", "pids", "gpu"];
    SECRETS = "secrets": ["name", "ref", "inject", "expose"];
    INJECT = "secrets.inject": ["host", "header", "env"];
    MOUNTS = "mounts": ["source", "target", "access"];
    SETUP = "setup": ["instructions", "commands", "secret_refs"];
    REQUIRES = "requires": ["isolation", "gpu", "snapshot", "fork", "pause", "region"];
    ROUTE = "route": ["strategy", "order", "only", "ignore", "weights", "fallback", "hedge", "constraints"];
    HEDGE = "route.hedge": ["after"];
    CONSTRAINTS = "route.constraints": [
        "max_cost_per_hour", "max_cost_total", "require_isolation", "region", "capabilities", "max_latency",
        "residency",
    ];
    PLACEMENT = "placement": ["prefer", "fallback", "strategy"];
    DOCKER = "docker": ["runtime"];
    COMPOSE = "compose": ["file", "service"];
    PACKER = "packer": ["template", "variables", "files", "ssh_user"];
    REACHABILITY = "reachability": ["tunnel", "identity"];
    METADATA = "metadata": ["cost_class", "latency_class", "tags"];
}

const LEVELS: &[(&str, IsolationLevel)] = &[
    ("container", IsolationLevel::Container),
    ("microvm", IsolationLevel::Microvm),
    ("policy", IsolationLevel::Policy),
    ("network", IsolationLevel::Network),
];
const PERSISTENCES: &[(&str, Persistence)] = &[
    ("ephemeral", Persistence::Ephemeral),
    ("persistent", Persistence::Persistent),
    ("checkpoint", Persistence::Checkpoint),
];
const MODES: &[(&str, WorkspaceMode)] = &[
    ("mirror", WorkspaceMode::Mirror),
    ("remote-canonical", WorkspaceMode::RemoteCanonical),
    ("remote", WorkspaceMode::RemoteCanonical),
];
const ACCESSES: &[(&str, WorkspaceAccess)] =
    &[("none", WorkspaceAccess::None), ("ro", WorkspaceAccess::Ro), ("rw", WorkspaceAccess::Rw)];
const SCOPES: &[(&str, Scope)] =
    &[("session", Scope::Session), ("agent", Scope::Agent), ("shared", Scope::Shared)];
const MOUNT_ACCESSES: &[(&str, MountAccess)] = &[("ro", MountAccess::Ro), ("rw", MountAccess::Rw)];
const PLACEMENT_STRATEGIES: &[(&str, PlacementStrategy)] =
    &[("spread", PlacementStrategy::Spread), ("pack", PlacementStrategy::Pack)];
const COST_CLASSES: &[(&str, CostClass)] =
    &[("self-hosted", CostClass::SelfHosted), ("saas-metered", CostClass::SaasMetered)];

/// The profile that the tree describes, with defaults for whatever it leaves out.
pub(super) fn profile(root: &Node) -> Result<Profile> {
    let top = Fields::open(root, Path::default(), &TOP)?;
    Ok(Profile {
        id: top.required_text("id")?,
        version: top.required_word("version")?,
        description: top.text("description")?,
        extends: top.text("extends")?,
        extension: top.text("extension")?,
        image: top.text("image")?.map(Image::from).unwrap_or_default(),
        persistence: top.choice("persistence", PERSISTENCES)?.unwrap_or_default(),
        isolation: isolation(&top)?,
        network: network(&top)?,
        workspace: workspace(&top)?,
        scope_default: top.choice("scope_default", SCOPES)?.unwrap_or_default(),
        ttl: ttl(&top)?,
        resources: resources(&top)?,
        variables: top.free_map("variables")?.into_iter().collect(),
        secrets: top.mappings("secrets", &SECRETS, secret)?,
        secret_refs: secret_refs(&top)?,
        mounts: top.mappings("mounts", &MOUNTS, mount)?,
        setup: setup(&top)?,
        requires: requires(&top)?,
        route: route(&top)?,
        placement: placement(&top)?,
        docker: DockerOptions { runtime: top.section(&DOCKER)?.text("runtime")? },
        compose: compose(&top)?,
        packer: packer(&top)?,
        dangerously_allow: top.choices("dangerously_allow", Danger::ALL)?,
        reachability: reachability(&top)?,
        metadata: metadata(&top)?,
    })
}

/// Written at the top or beside the setup that needs them; both mean the same.
fn secret_refs(top: &Fields<'_>) -> Result<Vec<String>> {
    let mut all = top.texts("secret_refs")?;
    all.extend(top.section(&SETUP)?.texts("secret_refs")?);
    Ok(all)
}

fn isolation(top: &Fields<'_>) -> Result<Isolation> {
    let default = Isolation::default();
    Ok(Isolation { level: top.section(&ISOLATION)?.choice("level", LEVELS)?.unwrap_or(default.level) })
}

fn network(top: &Fields<'_>) -> Result<Network> {
    let section = top.section(&NETWORK)?;
    Ok(Network {
        default: section.choice("default", &[("deny", NetworkDefault::Deny)])?.unwrap_or_default(),
        egress: section.mappings("egress", &EGRESS, |rule| {
            Ok(EgressRule {
                host: rule.required_text("host")?,
                ports: rule.wholes("ports")?,
                protocol: rule.text("protocol")?,
                methods: rule.texts("methods")?,
                paths: rule.texts("paths")?,
                binaries: rule.texts("binaries")?,
                credential: rule.text("credential")?,
            })
        })?,
    })
}

fn workspace(top: &Fields<'_>) -> Result<Workspace> {
    let section = top.section(&WORKSPACE)?;
    Ok(Workspace {
        mode: section.choice("mode", MODES)?.unwrap_or_default(),
        access: section.choice("access", ACCESSES)?.unwrap_or_default(),
    })
}

fn ttl(top: &Fields<'_>) -> Result<Ttl> {
    let section = top.section(&TTL)?;
    let default = Ttl::default();
    let max = section.duration("max")?.unwrap_or(default.max);
    Ok(Ttl {
        // Whoever writes only a short maximum means it for the default as well.
        default: section.duration("default")?.unwrap_or(default.default.min(max)),
        max,
        idle_reap: section.duration("idle_reap")?,
    })
}

fn resources(top: &Fields<'_>) -> Result<Resources> {
    let section = top.section(&RESOURCES)?;
    Ok(Resources {
        cpu: section.number("cpu")?,
        memory_mb: section.whole("memory_mb")?,
        disk_mb: section.whole("disk_mb")?,
        pids: section.whole("pids")?,
        gpu: section.whole("gpu")?,
    })
}

fn secret(fields: Fields<'_>) -> Result<Secret> {
    Ok(Secret {
        name: fields.required_text("name")?,
        reference: fields.required_text("ref")?,
        inject: if fields.has("inject") { Some(inject(&fields.section(&INJECT)?)?) } else { None },
        expose: fields.flag("expose")?.unwrap_or_default(),
    })
}

fn inject(fields: &Fields<'_>) -> Result<Inject> {
    if fields.has("env") == (fields.has("host") || fields.has("header")) {
        let message = "`inject` is either `{ host, header }` or `{ env }`";
        return Err(fields
            .refuse(message)
            .unwrap_or_else(|| crate::Error::new(crate::ErrorKind::InvalidProfile, message)));
    }
    match fields.text("env")? {
        Some(env) => Ok(Inject::Env { env }),
        None => Ok(Inject::Header {
            host: fields.required_text("host")?,
            header: fields.required_text("header")?,
        }),
    }
}

fn mount(fields: Fields<'_>) -> Result<Mount> {
    Ok(Mount {
        source: fields.required_text("source")?,
        target: fields.required_text("target")?,
        access: fields.choice("access", MOUNT_ACCESSES)?.unwrap_or_default(),
    })
}

fn setup(top: &Fields<'_>) -> Result<Setup> {
    let section = top.section(&SETUP)?;
    Ok(Setup {
        instructions: section.text("instructions")?.unwrap_or_default(),
        commands: section.texts("commands")?,
    })
}

fn requires(top: &Fields<'_>) -> Result<Requires> {
    let section = top.section(&REQUIRES)?;
    Ok(Requires {
        isolation: section.choice("isolation", LEVELS)?,
        gpu: section.flag("gpu")?.unwrap_or_default(),
        snapshot: section.flag("snapshot")?.unwrap_or_default(),
        fork: section.flag("fork")?.unwrap_or_default(),
        pause: section.flag("pause")?.unwrap_or_default(),
        region: section.text("region")?,
    })
}

fn route(top: &Fields<'_>) -> Result<RouteSpec> {
    let section = top.section(&ROUTE)?;
    let constraints = section.section(&CONSTRAINTS)?;
    Ok(RouteSpec {
        strategy: section.choice("strategy", Strategy::ALL)?,
        order: section.texts("order")?,
        only: section.texts("only")?,
        ignore: section.texts("ignore")?,
        weights: section.whole_map("weights")?.into_iter().collect(),
        fallback: section.texts("fallback")?,
        hedge: hedge(&section)?,
        constraints: Constraints {
            max_cost_per_hour: constraints.money("max_cost_per_hour")?,
            max_cost_total: constraints.money("max_cost_total")?,
            require_isolation: constraints.choice("require_isolation", LEVELS)?,
            region: constraints.text("region")?,
            capabilities: constraints.texts("capabilities")?,
            max_latency: constraints.duration("max_latency")?,
            residency: constraints.texts("residency")?,
        },
    })
}

/// A yes, a no, or after how long.
fn hedge(route: &Fields<'_>) -> Result<Option<Hedge>> {
    if !route.is_mapping("hedge") {
        return Ok(route.flag("hedge")?.map(Hedge::Flag));
    }
    let after = route.section(&HEDGE)?.duration("after")?;
    Ok(Some(after.map_or(Hedge::Flag(true), |after| Hedge::After(HedgeAfter { after }))))
}

fn placement(top: &Fields<'_>) -> Result<Placement> {
    let section = top.section(&PLACEMENT)?;
    Ok(Placement {
        prefer: section.texts("prefer")?,
        fallback: section.texts("fallback")?,
        strategy: section.choice("strategy", PLACEMENT_STRATEGIES)?.unwrap_or_default(),
    })
}

fn compose(top: &Fields<'_>) -> Result<ComposeOptions> {
    let section = top.section(&COMPOSE)?;
    Ok(ComposeOptions { file: section.text("file")?, service: section.text("service")? })
}

fn packer(top: &Fields<'_>) -> Result<PackerOptions> {
    let section = top.section(&PACKER)?;
    Ok(PackerOptions {
        template: section.text("template")?,
        variables: section.free_map("variables")?.into_iter().collect(),
        files: section.texts("files")?,
        ssh_user: section.text("ssh_user")?,
    })
}

fn reachability(top: &Fields<'_>) -> Result<ReachabilitySpec> {
    let section = top.section(&REACHABILITY)?;
    Ok(ReachabilitySpec { tunnel: section.text("tunnel")?, identity: section.text("identity")? })
}

fn metadata(top: &Fields<'_>) -> Result<Metadata> {
    let section = top.section(&METADATA)?;
    Ok(Metadata {
        cost_class: section.choice("cost_class", COST_CLASSES)?,
        latency_class: section.text("latency_class")?,
        tags: section.texts("tags")?,
    })
}
