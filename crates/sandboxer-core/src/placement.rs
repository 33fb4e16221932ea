//! Which host an extension places a sandbox on: every candidate in its order, with the reason for or against it.
//!
//! Extensions come in the order of the route. For each of them the hosts come in groups (those that the profile
//! prefers, its fallbacks, or simply all), and within a group by how full they are.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use jiff::Timestamp;

use crate::capability::Capability;
use crate::host::{Host, HostHealth, HostLoad, LOCAL};
use crate::profile::{Placement, PlacementStrategy, Resources};
use crate::route::{Offer, Refusal};

/// A registered host as it stands now.
#[derive(Clone, Debug)]
pub struct HostState {
    pub host: Host,
    pub health: HostHealth,
    pub load: HostLoad,
}

impl HostState {
    pub fn idle(host: Host) -> Self {
        Self { host, health: HostHealth::default(), load: HostLoad::default() }
    }
}

/// An extension that the route considers.
#[derive(Clone, Debug)]
pub struct Considered {
    pub id: String,
    /// Absent when it is not installed.
    pub capability: Option<Capability>,
    /// Why it cannot fulfil the request, wherever it would run.
    pub unmet: Vec<String>,
}

/// What is asked of a host.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// Only this host, whatever the profile says.
    pub only: Option<&'a str>,
    pub placement: &'a Placement,
    /// All of these, which contradict each other if they differ.
    pub regions: Vec<&'a str>,
    pub resources: &'a Resources,
    pub now: Timestamp,
}

/// The offers, best first among the accepted ones of each extension.
pub fn offers(extensions: &[Considered], hosts: &[HostState], wish: &Wish<'_>) -> Vec<Offer> {
    let groups = groups(hosts, wish);
    extensions.iter().flat_map(|extension| offers_of(extension, &groups, wish)).collect()
}

/// Hosts of the same preference, and why they are considered.
struct Group<'a> {
    why: String,
    hosts: Vec<&'a HostState>,
    /// A wish of the profile that no registered host answers.
    unregistered: Vec<&'a str>,
}

fn groups<'a>(hosts: &'a [HostState], wish: &Wish<'a>) -> Vec<Group<'a>> {
    let all =
        |why: &str| Group { why: why.to_owned(), hosts: hosts.iter().collect(), unregistered: Vec::new() };
    if let Some(only) = wish.only {
        let found: Vec<&HostState> = hosts.iter().filter(|state| state.host.name == only).collect();
        let unregistered = if found.is_empty() { vec![only] } else { Vec::new() };
        return vec![Group { why: "asked for".into(), hosts: found, unregistered }];
    }
    let named = [
        ("preferred by the profile", &wish.placement.prefer),
        ("the profile's fallback", &wish.placement.fallback),
    ];
    let mut out: Vec<Group<'a>> = Vec::new();
    for (why, names) in named {
        let mut group = Group { why: why.to_owned(), hosts: Vec::new(), unregistered: Vec::new() };
        for name in names {
            let before = group.hosts.len();
            for state in hosts.iter().filter(|state| is_meant(&state.host, name)) {
                let is_new = |other: &&HostState| other.host.name == state.host.name;
                if !out.iter().flat_map(|group| &group.hosts).chain(&group.hosts).any(is_new) {
                    group.hosts.push(state);
                }
            }
            if group.hosts.len() == before && !hosts.iter().any(|state| is_meant(&state.host, name)) {
                group.unregistered.push(name);
            }
        }
        out.push(group);
    }
    if out.iter().all(|group| group.hosts.is_empty()) {
        // Nobody whom the profile names is there: any host is better than none, and the offers say so.
        let wished = out.iter().any(|group| !group.unregistered.is_empty());
        out.push(all(if wished { "no host that the profile names is registered" } else { "" }));
    }
    out
}

/// A profile names a host by its name, or every host with a label as `key=value`.
fn is_meant(host: &Host, word: &str) -> bool {
    match word.split_once('=') {
        Some((key, value)) => host.labels.get(key).is_some_and(|found| found == value),
        None => host.name == word,
    }
}

fn offers_of(extension: &Considered, groups: &[Group<'_>], wish: &Wish<'_>) -> Vec<Offer> {
    let refused = |host: &str, reason: String| Offer::refused(&extension.id, host, Refusal::for_good(reason));
    let anywhere = wish.only.unwrap_or(LOCAL);
    let Some(capability) = &extension.capability else {
        return vec![refused(anywhere, "this extension is not installed".into())];
    };
    if !extension.unmet.is_empty() {
        return vec![refused(anywhere, extension.unmet.join(", "))];
    }
    if !capability.host_local && !capability.host_ssh {
        // A service elsewhere has no hosts of ours to choose from.
        return vec![Offer {
            extension: extension.id.clone(),
            host: LOCAL.to_owned(),
            accepted: true,
            reason: "fits the profile".into(),
            ..Offer::default()
        }];
    }
    let (mut accepted, mut others) = (Vec::new(), Vec::new());
    for group in groups {
        for name in &group.unregistered {
            let reason = format!("{}: there is no such host", group.why);
            others.push(refused(name, reason));
        }
        let mut fitting: Vec<&HostState> = Vec::new();
        for state in &group.hosts {
            match against(capability, state, wish) {
                Some(why) => others.push(Offer::refused(&extension.id, &state.host.name, why)),
                None => fitting.push(state),
            }
        }
        // Stable: hosts that are equally full keep the order of the profile, or of their names.
        fitting.sort_by(|a, b| by_fullness(a, b, wish.placement.strategy));
        accepted.extend(fitting.into_iter().map(|state| Offer {
            extension: extension.id.clone(),
            host: state.host.name.clone(),
            accepted: true,
            reason: praise(group, state, groups),
            ..Offer::default()
        }));
    }
    accepted.extend(others);
    if accepted.is_empty() {
        accepted.push(refused(anywhere, "no host is registered that it can use".into()));
    }
    accepted
}

/// Why this host cannot take the sandbox of this extension; nothing when it can.
pub fn against(capability: &Capability, state: &HostState, wish: &Wish<'_>) -> Option<Refusal> {
    let HostState { host, health, load } = state;
    if let Some(reason) = by_nature(capability, host, wish) {
        return Some(Refusal::for_good(reason));
    }
    // What does not fit on it when it is empty never will.
    if full(host, &HostLoad::default(), wish.resources).is_some() {
        return full(host, load, wish.resources).map(Refusal::for_good);
    }
    if let Some(until) = health.resting(wish.now) {
        let reason = health.reason.as_deref().unwrap_or("it failed");
        let failures = if health.failures == 1 { "failure" } else { "failures" };
        let reason = format!("left alone until {until} after {} {failures}: {reason}", health.failures);
        return Some(Refusal::until(until, reason));
    }
    full(host, load, wish.resources).map(|reason| Refusal::full(wish.now, reason))
}

fn by_nature(capability: &Capability, host: &Host, wish: &Wish<'_>) -> Option<String> {
    match (host.is_local(), capability.host_local, capability.host_ssh) {
        (true, false, _) => return Some("it cannot use the engine's own machine, only hosts by SSH".into()),
        (false, _, false) => return Some("it cannot use hosts that are reached by SSH".into()),
        _ => {}
    }
    let region = wish.regions.iter().find(|region| host.region.as_deref() != Some(**region))?;
    let there = host.region.as_deref().unwrap_or("no region");
    Some(format!("it is in {there}, and `{region}` is required"))
}

/// Which limit of the host one more sandbox would break.
fn full(host: &Host, load: &HostLoad, wanted: &Resources) -> Option<String> {
    let capacity = &host.capacity;
    if let Some(most) = capacity.sandboxes.filter(|most| load.sandboxes >= *most) {
        let sandboxes = if most == 1 { "sandbox" } else { "sandboxes" };
        return Some(format!("full: {} of {most} {sandboxes}", load.sandboxes));
    }
    if let (Some(most), Some(more)) = (capacity.cpu, wanted.cpu)
        && load.cpu + more > most + 1e-9
    {
        return Some(format!("full: {} of {most} processors are promised, {more} more are needed", load.cpu));
    }
    for (what, most, used, more) in [
        ("memory", capacity.memory_mb, load.memory_mb, wanted.memory_mb),
        ("disk", capacity.disk_mb, load.disk_mb, wanted.disk_mb),
    ] {
        if let (Some(most), Some(more)) = (most, more)
            && used.saturating_add(more) > most
        {
            return Some(format!("full: {used} of {most} MB {what} are promised, {more} more are needed"));
        }
    }
    None
}

fn by_fullness(a: &HostState, b: &HostState, strategy: PlacementStrategy) -> Ordering {
    let order = fullness(a).total_cmp(&fullness(b)).then(a.load.sandboxes.cmp(&b.load.sandboxes));
    match strategy {
        PlacementStrategy::Spread => order,
        PlacementStrategy::Pack => order.reverse(),
    }
}

/// From 0, empty, to 1, full: by its tightest limit. Without limits the number of sandboxes decides.
pub fn fullness(state: &HostState) -> f64 {
    let HostState { host, load, .. } = state;
    let capacity = &host.capacity;
    let share = |used: f64, most: Option<f64>| most.map(|most| if most > 0.0 { used / most } else { 1.0 });
    let shares = [
        share(f64::from(load.sandboxes), capacity.sandboxes.map(f64::from)),
        share(load.cpu, capacity.cpu),
        share(load.memory_mb as f64, capacity.memory_mb.map(|most| most as f64)),
        share(load.disk_mb as f64, capacity.disk_mb.map(|most| most as f64)),
    ];
    let tightest = shares.into_iter().flatten().max_by(f64::total_cmp);
    tightest.unwrap_or_else(|| f64::from(load.sandboxes) / (f64::from(load.sandboxes) + 16.0)).clamp(0.0, 1.0)
}

/// What an accepted offer says. With one host there is nothing to say about the choice.
fn praise(group: &Group<'_>, state: &HostState, groups: &[Group<'_>]) -> String {
    let mut out = "fits the profile".to_owned();
    if !group.why.is_empty() {
        out.push_str(", ");
        out.push_str(&group.why);
    }
    let is_choice = groups.iter().map(|group| group.hosts.len()).sum::<usize>() > 1;
    if is_choice || state.host.capacity != Default::default() {
        let (most, count) = (state.host.capacity.sandboxes, state.load.sandboxes);
        let of = most.map_or_else(String::new, |most| format!(" of {most}"));
        let sandboxes = if most.unwrap_or(count) == 1 { "sandbox" } else { "sandboxes" };
        out.push_str(&format!(", {count}{of} {sandboxes} on it"));
    }
    out
}
