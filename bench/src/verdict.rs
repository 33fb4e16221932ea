//! The promised figures, each held against this run.

use serde_json::{Value, json};

use crate::memory::Level;
use crate::results::Results;

/// Sandboxes that must work at once.
const AT_ONCE: usize = 500;
const STORED: usize = 100_000;

pub(crate) struct Verdict {
    pub(crate) target: String,
    pub(crate) measured: String,
    /// Absent when it was not measured.
    pub(crate) met: Option<bool>,
}

impl Verdict {
    /// Met if the left figure does not exceed the right one.
    fn at_most(target: impl Into<String>, figures: Option<(f64, f64)>, unit: &str) -> Self {
        let target = target.into();
        match figures {
            Some((measured, limit)) => Self {
                target,
                measured: format!("{measured:.2} {unit}, limit {limit:.2} {unit}"),
                met: Some(measured <= limit),
            },
            None => Self { target, measured: "not measured".into(), met: None },
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        match self.met {
            Some(true) => "pass",
            Some(false) => "MISSED",
            None => "-",
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "target": self.target, "measured": self.measured, "met": self.met })
    }
}

pub(crate) fn of(results: &Results) -> Vec<Verdict> {
    let start = |name: &str| results.startup(name);
    let p50s = |left: &str, right: &str| Some((start(left)?.p50, start(right)?.p50));
    let spread = |name: &str| start(name).map(|summary| (summary.p99, 4.0 * summary.p50));
    let mut verdicts = vec![
        Verdict::at_most(
            "create to first command over HTTP: p50 not above bwrap's p50",
            p50s("http_create_exec", "bwrap"),
            "ms",
        ),
        Verdict::at_most("the same: p99 not above 4 times its own p50", spread("http_create_exec"), "ms"),
        Verdict::at_most(
            "without the warm pool: p50 not above bwrap's p50",
            p50s("cold_create_exec", "bwrap"),
            "ms",
        ),
        Verdict::at_most(
            "without the warm pool: p99 not above 4 times its own p50",
            spread("cold_create_exec"),
            "ms",
        ),
        Verdict::at_most(
            "exec over HTTP: p50 within 3 ms of fork+exec",
            p50s("http_exec", "fork_exec").map(|(ours, bare)| (ours, bare + 3.0)),
            "ms",
        ),
        Verdict::at_most(
            "exec over HTTP: at least 20 times faster than docker exec",
            p50s("http_exec", "docker_exec").map(|(ours, docker)| (ours, docker / 20.0)),
            "ms",
        ),
    ];
    verdicts.extend([burst(results), memory(results), at_once(results)]);
    let worst = |names: [&str; 2]| {
        let p50s = names.map(|name| results.api(name).map(|summary| summary.p50));
        Some(p50s[0]?.max(p50s[1]?)).filter(|_| results.stored >= STORED)
    };
    verdicts.push(Verdict::at_most(
        format!("GET of one of {STORED} sandboxes: p50 below 0.5 ms"),
        worst(["get_living_full", "get_ended_full"]).map(|p50| (p50, 0.5)),
        "ms",
    ));
    verdicts.push(Verdict::at_most(
        format!("a page of 100 of {STORED} sandboxes: p50 below 5 ms"),
        worst(["page_living_full", "page_all_full"]).map(|p50| (p50, 5.0)),
        "ms",
    ));
    verdicts.extend(extensions(results));
    verdicts.extend(payments(results));
    verdicts
}

fn extensions(results: &Results) -> [Verdict; 4] {
    let p50 = |name: &str| results.extensions(name).map(|summary| summary.p50);
    let ratio = |ours: &str, bare: &str, limit: f64| Some((p50(ours)?, p50(bare)? * limit));
    let stacks = match &results.stacks {
        Some(stacks) => Verdict {
            target: "20 compose stacks at once on one host, no collision".into(),
            measured: format!(
                "{} of {} ready, {} ports of their own",
                stacks.ready, stacks.asked, stacks.ports
            ),
            met: (stacks.asked >= 20).then_some(stacks.ready == stacks.asked && stacks.ports == stacks.asked),
        },
        None => Verdict {
            target: "20 compose stacks at once on one host, no collision".into(),
            measured: "not measured".into(),
            met: None,
        },
    };
    [
        Verdict::at_most(
            "ext.docker: create to first exec at most 1.2 times the docker command line",
            ratio("docker_ours", "docker_bare", 1.2),
            "ms",
        ),
        Verdict::at_most(
            "ext.ssh: a further exec at most 1.3 times a bare multiplexed ssh",
            ratio("ssh_ours", "ssh_bare", 1.3),
            "ms",
        ),
        stacks,
        Verdict::at_most(
            "a mirror of 10,000 files, one changed: synced within 1 s",
            p50("mirror_sync").filter(|_| results.mirrored >= 10_000).map(|p50| (p50, 1_000.0)),
            "ms",
        ),
    ]
}

fn payments(results: &Results) -> [Verdict; 5] {
    let figure = |name: &str| results.figures.get(name).copied();
    let at_most = |target: &str, name: &str, limit: f64, unit: &str| {
        Verdict::at_most(target, figure(name).map(|measured| (measured, limit)), unit)
    };
    let rate = figure("ledger_transfers_per_second");
    let arrived = figure("outbox_arrived");
    [
        at_most("a route over 50 offers with 1,000 rows of history: below 50 µs", "route_p50_us", 50.0, "µs"),
        Verdict::at_most(
            "a create on a provider that takes no time, with the ledger on: p50 below 2 ms",
            results.payments("create").map(|summary| (summary.p50, 2.0)),
            "ms",
        ),
        Verdict {
            target: "5,000 ledger transactions a second on SQLite".into(),
            measured: rate.map_or("not measured".into(), |rate| format!("{rate:.0} a second")),
            met: rate.map(|rate| rate >= 5_000.0),
        },
        at_most("the balance with 100,000 entries: below 1 ms", "ledger_balance_p99_us", 1_000.0, "µs"),
        Verdict {
            target: "10,000 events out, the sink fails half the time, ten kills: none lost".into(),
            // The program ends with an error if one is missing or out of order.
            measured: arrived
                .map_or("not measured".into(), |arrived| format!("{arrived:.0} arrived, in order")),
            met: arrived.map(|arrived| arrived >= 10_000.0),
        },
    ]
}

fn burst(results: &Results) -> Verdict {
    let target = "burst of 100 creates: all succeed".to_owned();
    let bursts: Vec<_> = results.bursts.iter().filter(|burst| burst.asked >= 100).collect();
    let Some(worst) = bursts.iter().map(|burst| burst.success_percent()).reduce(f64::min) else {
        return Verdict { target, measured: "not measured".into(), met: None };
    };
    Verdict {
        target,
        measured: format!("{worst:.1} % in {} bursts", bursts.len()),
        met: Some(worst >= 100.0),
    }
}

fn memory(results: &Results) -> Verdict {
    const LIMIT_KIB: f64 = 2048.0;
    let target =
        "an idle sandbox: PSS of supervisor and init at most 2 MiB, however many there are".to_owned();
    let Some(worst) = results.memory.iter().map(Level::worst_kib).reduce(f64::max) else {
        return Verdict { target, measured: "not measured".into(), met: None };
    };
    let each =
        results.memory.iter().map(|level| format!("{:.0} KiB of {}", level.worst_kib(), level.sandboxes));
    let measured = format!("{}, limit {LIMIT_KIB:.0} KiB", each.collect::<Vec<_>>().join(", "));
    Verdict { target, measured, met: Some(worst <= LIMIT_KIB) }
}

/// The phase ends with an error if one of them does not answer, so that its figures are the proof.
fn at_once(results: &Results) -> Verdict {
    let target = format!("{AT_ONCE} sandboxes at once work");
    match results.memory.iter().map(|level| level.sandboxes).max().filter(|most| *most >= AT_ONCE) {
        Some(most) => {
            Verdict { target, measured: format!("{most} alive, each ran a command"), met: Some(true) }
        }
        None => Verdict { target, measured: "not measured".into(), met: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_at_its_limit_is_met_and_one_above_is_not() {
        assert_eq!(Verdict::at_most("x", Some((2.0, 2.0)), "ms").word(), "pass");
        assert_eq!(Verdict::at_most("x", Some((2.1, 2.0)), "ms").word(), "MISSED");
        assert_eq!(Verdict::at_most("x", None, "ms").word(), "-");
    }

    #[test]
    fn nothing_measured_is_no_verdict() {
        assert!(of(&Results::default()).iter().all(|verdict| verdict.met.is_none()));
    }
}
