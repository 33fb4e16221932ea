//! What holds for every price: more never costs less, parts never cost more than the whole, and quotes suffice.

use proptest::prelude::*;

use super::*;
use crate::duration::Dur;
use crate::tariff::{Phase, Terms, sum};

/// A file with random rates; amounts in nano-dollars. Paused costs a part of running, or nothing.
fn price() -> impl Strategy<Value = String> {
    let amount = 1_u64..2_000_000_000;
    let period = prop::sample::select(vec!["second", "minute", "hour", "day"]);
    let memory = (
        amount.clone(),
        period.clone(),
        prop::sample::select(vec!["gib", "gb"]),
        prop::option::of(1_u64..100),
    );
    let vcpu = (amount.clone(), period, prop::sample::select(vec!["vcpu", "core"]));
    (vcpu, memory, prop::option::of(amount), 0_u64..4).prop_map(|(vcpu, memory, create, free)| {
        let dollars = |nanos: u64| format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        let mut text = format!(
            "{HEAD}rates:\n  - {{ meter: vcpu, amount: {}, per: {}, unit: {} }}\n",
            dollars(vcpu.0),
            vcpu.1,
            vcpu.2
        );
        let line = |amount: u64, states: &str| {
            format!(
                "  - {{ meter: memory, amount: {}, per: {}, unit: {}, free: {free}, states: [{states}] }}\n",
                dollars(amount),
                memory.1,
                memory.2
            )
        };
        text += &line(memory.0, "running");
        if let Some(part) = memory.3 {
            text += &line((memory.0 / part).max(1), "paused");
        }
        if let Some(create) = create {
            text += &format!("  - {{ meter: create, amount: {} }}\n", dollars(create));
        }
        text
    })
}

fn cost(tariff: &Tariff, phase: Phase, time: Dur, is_first: bool) -> Money {
    sum(tariff.interval(phase, time, None, is_first).unwrap().iter().map(|item| item.cost)).unwrap()
}

proptest! {
    #[test]
    fn more_time_or_more_of_it_never_costs_less(
        text in price(),
        cpu in 0.0_f64..64.0, more_cpu in 0.0_f64..64.0,
        memory in 0_u64..1_000_000, more_memory in 0_u64..1_000_000,
        time in 0_u64..1_000_000_000, more_time in 0_u64..1_000_000_000,
    ) {
        let small = tariff_of(&text, &resources(cpu, memory));
        let large = tariff_of(&text, &resources(cpu + more_cpu, memory + more_memory));
        let (short, long) = (Dur::from_millis(time), Dur::from_millis(time + more_time));
        for phase in [Phase::Running, Phase::Paused] {
            prop_assert!(cost(&small, phase, short, true) <= cost(&small, phase, long, true));
            prop_assert!(cost(&small, phase, short, true) <= cost(&large, phase, short, true));
        }
        prop_assert!(cost(&small, Phase::Paused, short, false) <= cost(&small, Phase::Running, short, false));
    }

    #[test]
    fn parts_cost_the_whole_but_for_a_nano_dollar_each(
        text in price(),
        cpu in 0.0_f64..64.0, memory in 0_u64..1_000_000,
        parts in prop::collection::vec(0_u64..100_000_000, 1..40),
    ) {
        for line in tariff_of(&text, &resources(cpu, memory)).lines.iter().filter(|line| line.rate.per.is_some()) {
            let at = |ms: u64| line.cost(Dur::from_millis(ms), None).unwrap().0;
            let split = sum(parts.iter().map(|part| at(*part))).unwrap();
            let whole = at(parts.iter().sum());
            prop_assert!(split <= whole, "{split} > {whole}");
            let lost = whole.nanos() - split.nanos();
            prop_assert!(lost <= parts.len() as i128, "{lost} lost in {} parts", parts.len());
        }
    }

    #[test]
    fn a_quote_covers_whatever_happens_within_its_time(
        text in price(),
        cpu in 0.0_f64..64.0, memory in 0_u64..1_000_000,
        parts in prop::collection::vec((0_u64..10_000_000, any::<bool>()), 1..40),
        rest in 0_u64..10_000_000,
    ) {
        let tariff = tariff_of(&text, &resources(cpu, memory));
        let ttl = Dur::from_millis(parts.iter().map(|(ms, _)| ms).sum::<u64>() + rest);
        let spent = parts.iter().enumerate().map(|(index, (ms, paused))| {
            // A sandbox starts running.
            let phase = if *paused && index > 0 { Phase::Paused } else { Phase::Running };
            cost(&tariff, phase, Dur::from_millis(*ms), index == 0)
        });
        let spent = sum(spent).unwrap();
        let quote = tariff.quote(ttl, Terms::default()).unwrap().amount;
        prop_assert!(quote >= spent, "{quote} < {spent}");
    }
}
