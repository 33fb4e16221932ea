//! Whatever hosts there are: nobody unfit is accepted, and the order is that of the strategy.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::host::{HostAccess, HostCapacity, HostSign, SshAccess};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn host(name: &str, ssh: bool) -> Host {
    let access = SshAccess {
        address: "h".into(),
        port: 22,
        user: "u".into(),
        identity_file: None,
        host_keys: vec!["ssh-ed25519 AAAA".into()],
    };
    let access = if ssh { HostAccess::Ssh(access) } else { HostAccess::Local };
    Host { name: name.into(), access, ..Host::local() }
}

fn considered(local: bool, ssh: bool) -> Considered {
    let capability = Capability { host_local: local, host_ssh: ssh, ..Capability::default() };
    Considered { id: "ext.x".into(), capability: Some(capability), unmet: Vec::new() }
}

fn wish<'a>(placement: &'a Placement, resources: &'a Resources) -> Wish<'a> {
    Wish { only: None, placement, regions: Vec::new(), resources, now: now() }
}

fn names(offers: &[Offer], accepted: bool) -> Vec<&str> {
    offers.iter().filter(|offer| offer.accepted == accepted).map(|offer| offer.host.as_str()).collect()
}

fn placement(prefer: &[&str], fallback: &[&str], strategy: PlacementStrategy) -> Placement {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Placement { prefer: words(prefer), fallback: words(fallback), strategy }
}

fn loaded(name: &str, sandboxes: u32) -> HostState {
    let mut state = HostState::idle(host(name, true));
    state.load.sandboxes = sandboxes;
    state
}

#[test]
fn preference_comes_before_load_and_strategy_decides_within_it() {
    let hosts = [loaded("a", 3), loaded("b", 1), loaded("c", 0), loaded("d", 2)];
    let resources = Resources::default();
    for (strategy, expected) in
        [(PlacementStrategy::Spread, ["b", "a", "c", "d"]), (PlacementStrategy::Pack, ["a", "b", "d", "c"])]
    {
        let placement = placement(&["a", "b"], &["c", "d"], strategy);
        let offers = offers(&[considered(false, true)], &hosts, &wish(&placement, &resources));
        assert_eq!(names(&offers, true), expected, "{strategy:?}");
    }
}

#[test]
fn a_label_means_every_host_that_has_it() {
    let mut hosts = [loaded("a", 3), loaded("b", 1), loaded("c", 0)];
    for index in [0, 1] {
        hosts[index].host.labels = BTreeMap::from([("pool".to_owned(), "ci".to_owned())]);
    }
    let placement = placement(&["pool=ci"], &["b", "c"], PlacementStrategy::Spread);
    let offers = offers(&[considered(false, true)], &hosts, &wish(&placement, &Resources::default()));
    assert_eq!(names(&offers, true), ["b", "a", "c"]);
}

#[test]
fn unregistered_hosts_are_named_and_skipped() {
    let resources = Resources::default();
    let wished = placement(&["gone"], &["away"], PlacementStrategy::Spread);
    let hosts = [HostState::idle(Host::local()), loaded("a", 0)];
    let offers_any = offers(&[considered(true, true)], &hosts, &wish(&wished, &resources));
    assert_eq!(names(&offers_any, true), ["local", "a"], "any host when none of the named is there");
    assert_eq!(names(&offers_any, false), ["gone", "away"]);
    assert!(offers_any[0].reason.contains("no host that the profile names is registered"));
    let hosts = [HostState::idle(Host::local()), loaded("away", 0)];
    let offers_named = offers(&[considered(true, true)], &hosts, &wish(&wished, &resources));
    assert_eq!(names(&offers_named, true), ["away"], "and only the named when one of them is");
}

#[test]
fn one_host_that_was_asked_for_is_the_only_one() {
    let (placement, resources) = (Placement::default(), Resources::default());
    let hosts = [HostState::idle(Host::local()), loaded("a", 0), loaded("b", 0)];
    let wish = Wish { only: Some("b"), ..wish(&placement, &resources) };
    let only_b = offers(&[considered(true, true)], &hosts, &wish);
    assert_eq!(names(&only_b, true), ["b"]);
    assert_eq!(only_b.len(), 1);
    let no_ssh = offers(&[considered(true, false)], &hosts, &wish);
    assert!(names(&no_ssh, true).is_empty());
}

#[test]
fn what_does_not_fit_is_said_once_per_extension() {
    let (placement, resources) = (Placement::default(), Resources::default());
    let hosts = [HostState::idle(Host::local()), loaded("a", 0)];
    let missing = Considered { id: "ext.gone".into(), capability: None, unmet: Vec::new() };
    let unfit = Considered { unmet: vec!["it does not support GPUs".into()], ..considered(true, true) };
    let told = offers(&[missing, unfit, considered(false, false)], &hosts, &wish(&placement, &resources));
    let reasons: Vec<&str> = told.iter().map(|offer| offer.reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["this extension is not installed", "it does not support GPUs", "fits the profile"],
        "a hosted service has no hosts to choose from"
    );
}

#[test]
fn rest_doubles_up_to_its_bound_and_an_answer_ends_it() {
    let mut health = HostHealth::default();
    let failed = HostSign::Failed { reason: "no route".into() };
    let mut rests = Vec::new();
    for _ in 0..40 {
        health = health.after(&failed, false, now());
        rests.push(health.cooled_until.unwrap().duration_since(now()).as_secs());
    }
    assert_eq!(rests[..6], [30, 60, 120, 240, 480, 600]);
    assert!(rests[6..].iter().all(|rest| *rest == 600));
    assert!(health.resting(now()).is_some());
    assert!(health.resting(now() + SignedDuration::from_secs(600)).is_none(), "over at its end");
    let well = health.after(&HostSign::Answered { latency_ms: Some(3) }, false, now());
    assert_eq!((well.failures, well.resting(now()), well.latency_ms), (0, None, Some(3)));
    let local = HostHealth::default().after(&failed, true, now());
    assert_eq!((local.failures, local.cooled_until), (1, None), "the own machine is never left alone");
}

prop_compose! {
    fn any_host()(
        ssh in any::<bool>(), region in prop::option::of(prop::sample::select(vec!["eu", "us"])),
        most in prop::option::of(0_u32..5), cpu in prop::option::of(0_u32..8), memory in prop::option::of(0_u64..4_096),
        count in 0_u32..6, used_cpu in 0_u32..8, used_memory in 0_u64..4_096, rest in prop::option::of(-60_i64..60),
    ) -> HostState {
        let mut state = HostState::idle(host("", ssh));
        state.host.region = region.map(str::to_owned);
        state.host.capacity =
            HostCapacity { sandboxes: most, cpu: cpu.map(f64::from), memory_mb: memory, disk_mb: None };
        state.load = HostLoad { sandboxes: count, cpu: f64::from(used_cpu), memory_mb: used_memory, disk_mb: 0 };
        state.health.cooled_until = rest.map(|rest| now() + SignedDuration::from_secs(rest));
        state
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_unfit_is_accepted(
        mut hosts in prop::collection::vec(any_host(), 0..8), local in any::<bool>(), ssh in any::<bool>(),
        region in prop::option::of(prop::sample::select(vec!["eu", "us"])), cpu in prop::option::of(0_u32..6),
        memory_mb in prop::option::of(0_u64..2_048), pack in any::<bool>(),
    ) {
        for (index, state) in hosts.iter_mut().enumerate() {
            state.host.name = format!("h{index}");
        }
        let strategy = if pack { PlacementStrategy::Pack } else { PlacementStrategy::Spread };
        let (placement, resources) =
            (placement(&[], &[], strategy), Resources { cpu: cpu.map(f64::from), memory_mb, ..Resources::default() });
        let wish = Wish { regions: region.into_iter().collect(), ..wish(&placement, &resources) };
        let offers = offers(&[considered(local, ssh)], &hosts, &wish);
        let find = |name: &str| hosts.iter().find(|state| state.host.name == name);
        let mut last: Option<f64> = None;
        for offer in offers.iter().filter(|offer| offer.accepted) {
            let Some(state) = find(&offer.host) else {
                prop_assert!(!local && !ssh, "only a hosted service needs no host");
                continue;
            };
            let HostState { host, health, load } = state;
            prop_assert!(if host.is_local() { local } else { ssh }, "of a kind that it can use");
            prop_assert!(health.cooled_until.is_none_or(|until| until <= now()));
            prop_assert!(region.is_none() || host.region.as_deref() == region);
            prop_assert!(host.capacity.sandboxes.is_none_or(|most| load.sandboxes < most));
            prop_assert!(host.capacity.cpu.is_none_or(|most| load.cpu + resources.cpu.unwrap_or(0.0) <= most || resources.cpu.is_none()));
            prop_assert!(host.capacity.memory_mb.is_none_or(|most| load.memory_mb + memory_mb.unwrap_or(0) <= most || memory_mb.is_none()));
            let full = fullness(state);
            prop_assert!((0.0..=1.0).contains(&full));
            if let Some(last) = last {
                prop_assert!(if pack { full <= last } else { full >= last }, "{last} before {full}");
            }
            last = Some(full);
        }
        // Nobody fit is left out, and everybody is told.
        if local || ssh {
            let capability = Capability { host_local: local, host_ssh: ssh, ..Capability::default() };
            for state in &hosts {
                let told = offers.iter().find(|offer| offer.host == state.host.name);
                let told = told.ok_or_else(|| TestCaseError::fail("a host without a word"))?;
                prop_assert_eq!(told.accepted, against(&capability, state, &wish).is_none());
                prop_assert!(!told.reason.is_empty());
            }
        }
    }
}
