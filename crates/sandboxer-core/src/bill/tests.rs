use super::*;
use crate::actor::Actor;
use crate::tariff::{Charged, Rate, TariffLine};

fn money(text: &str) -> Money {
    text.parse().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn line(meter: &str, rate: &str, phases: &[Phase]) -> TariffLine {
    TariffLine {
        meter: meter.into(),
        charged: Charged::Reserved,
        quantity: 1_000,
        free: 0,
        unit_size: 1_000,
        unit: meter.into(),
        rate: Rate { amount: money(rate), per: Some(Dur::from_secs(1)) },
        phases: phases.to_vec(),
    }
}

fn bill(minimum: &str, terms: Terms, hold: &str) -> Bill {
    let tariff = Tariff {
        extension: "ext.x".into(),
        price: "ext.x 2026-01-01".into(),
        basis: "metered".into(),
        lines: vec![
            line("vcpu", "0.01", &[Phase::Running]),
            line("disk", "0.001", &[Phase::Running, Phase::Paused]),
        ],
        minimum: money(minimum),
        granularity: Dur::ZERO,
    };
    let payer = Payer {
        organisation: "default".into(),
        workspace: "default".into(),
        key: None,
        actor: Actor::Adm,
        profile: "profile.x".into(),
    };
    let quote = Quote { amount: money(hold), ..Quote::self_hosted() };
    Bill::new(payer, terms, tariff, &quote).unwrap()
}

#[test]
fn a_pause_stops_what_the_provider_stops_charging() {
    let (id, mut bill) = (SandboxId::generate(), bill("0", Terms::default(), "10"));
    assert_eq!(bill.start(id, Phase::Running, at(0), None).unwrap().len(), 2);
    assert_eq!(bill.stop(id, at(10), None).unwrap().len(), 2);
    assert_eq!(bill.start(id, Phase::Paused, at(10), None).unwrap().len(), 1);
    assert_eq!(bill.stop(id, at(110), None).unwrap()[0].cost, money("0.1"));
    bill.start(id, Phase::Running, at(110), None).unwrap();
    bill.stop(id, at(120), None).unwrap();
    let (settlement, cost) = bill.settle().unwrap();
    // 20 s of 0.011 and 100 s of 0.001.
    assert_eq!(settlement, Settlement { upstream: money("0.32"), fee: Money::ZERO });
    assert_eq!((cost.charged, cost.difference), (money("0.32"), money("-9.68")));
    assert_eq!(cost.items.len(), 3, "one for each meter and state: {:?}", cost.items);
}

#[test]
fn a_clock_that_goes_back_charges_nothing() {
    let (id, mut bill) = (SandboxId::generate(), bill("0", Terms::default(), "10"));
    bill.start(id, Phase::Running, at(100), None).unwrap();
    let meters = bill.stop(id, at(-500), None).unwrap();
    assert_eq!((meters[0].cost, meters[0].ended_at), (Money::ZERO, Some(at(100))));
}

#[test]
fn no_time_is_charged_twice_when_the_clock_goes_back() {
    let (id, mut bill) = (SandboxId::generate(), bill("0", Terms::default(), "10"));
    bill.start(id, Phase::Running, at(0), None).unwrap();
    bill.stop(id, at(100), None).unwrap();
    let started = bill.start(id, Phase::Running, at(40), None).unwrap();
    assert_eq!(started[0].started_at, at(100));
}

#[test]
fn nobody_is_charged_above_the_hold() {
    let (id, mut bill) = (SandboxId::generate(), bill("0", Terms::default(), "0.05"));
    bill.start(id, Phase::Running, at(0), None).unwrap();
    bill.stop(id, at(10), None).unwrap();
    let (settlement, cost) = bill.settle().unwrap();
    assert_eq!(settlement.upstream, money("0.05"));
    assert_eq!((cost.charged, cost.absorbed, cost.upstream), (money("0.05"), money("0.06"), money("0.11")));
}

#[test]
fn the_minimum_is_for_those_that_ran() {
    let (id, mut ran) = (SandboxId::generate(), bill("1", Terms::default(), "10"));
    let mut never = ran.clone();
    ran.start(id, Phase::Running, at(0), None).unwrap();
    ran.stop(id, at(1), None).unwrap();
    let cost = ran.settle().unwrap().1;
    assert_eq!((cost.charged, total(&cost.items)), (money("1"), money("1")));
    assert_eq!(never.settle().unwrap().1.charged, Money::ZERO);
}

fn total(items: &[Item]) -> Money {
    sum(items.iter().map(|item| item.cost)).unwrap()
}

#[test]
fn what_is_missing_to_the_minimum_is_a_line_of_the_bill_and_of_the_meters() {
    let (id, mut bill) = (SandboxId::generate(), bill("0.05", Terms::default(), "10"));
    bill.start(id, Phase::Running, at(0), None).unwrap();
    assert_eq!(bill.needed(at(7), at(2)).unwrap(), money("0.077000002"), "7 s, and not the minimum too");
    let meters = bill.finish(id, at(2), None).unwrap();
    let told: Vec<(&str, Money)> = meters.iter().map(|one| (one.meter.as_str(), one.cost)).collect();
    assert_eq!(told, [("vcpu", money("0.02")), ("disk", money("0.002")), (MINIMUM, money("0.028"))]);
    assert_eq!((meters[2].ended_at, meters[2].time), (Some(at(2)), Dur::ZERO));
    let (settlement, cost) = bill.settle().unwrap();
    assert_eq!((settlement.upstream, total(&cost.items)), (money("0.05"), money("0.05")));
    assert_eq!(cost.items[2].what, "up to the minimum of 0.05 USD");
}

#[test]
fn the_minimum_is_asked_once_for_all_intervals() {
    for (seconds, all) in [(1, "0.05"), (100, "1.122")] {
        let (id, mut bill) = (SandboxId::generate(), bill("0.05", Terms::default(), "10"));
        bill.start(id, Phase::Running, at(0), None).unwrap();
        let mut meters = bill.stop(id, at(2), None).unwrap();
        bill.start(id, Phase::Running, at(2), None).unwrap();
        meters.extend(bill.finish(id, at(2 + seconds), None).unwrap());
        assert!(meters.iter().all(|meter| meter.cost > Money::ZERO), "{meters:#?}");
        let cost = bill.settle().unwrap().1;
        assert_eq!((cost.upstream, total(&cost.items)), (money(all), money(all)));
        assert_eq!(sum(meters.iter().map(|meter| meter.cost)).unwrap(), money(all), "{meters:#?}");
    }
}

#[test]
fn with_a_key_of_ones_own_both_figures_are_shown_and_the_fee_is_charged() {
    let own = Terms { provider_key: ProviderKey::Own, fee_basis_points: 1_000 };
    let (id, mut bill) = (SandboxId::generate(), bill("0", own, "1"));
    bill.start(id, Phase::Running, at(0), None).unwrap();
    bill.stop(id, at(100), None).unwrap();
    let (settlement, cost) = bill.settle().unwrap();
    assert_eq!(settlement, Settlement { upstream: Money::ZERO, fee: money("0.11") });
    assert_eq!((cost.upstream, cost.fee, cost.charged), (money("1.1"), money("0.11"), money("0.11")));
}

#[test]
fn a_longer_life_needs_a_larger_hold() {
    let (id, mut bill) = (SandboxId::generate(), bill("0", Terms::default(), "1.1"));
    bill.start(id, Phase::Running, at(0), None).unwrap();
    assert_eq!(bill.needed(at(200), at(50)).unwrap(), money("2.200000002"));
    bill.stop(id, at(100), None).unwrap();
    bill.start(id, Phase::Paused, at(100), None).unwrap();
    assert_eq!(
        bill.needed(at(200), at(150)).unwrap(),
        money("2.200000002"),
        "it may be resumed at any moment"
    );
}
