//! Which price applies, and what becomes of it.

use super::*;
use crate::duration::Dur;
use crate::tariff::{Phase, Terms};

const HOUR: Dur = Dur::from_secs(3_600);

fn hourly(book: &PriceBook, resources: &Resources) -> Money {
    let tariff = book.tariff("ext.x", "local", resources, false, now()).unwrap();
    tariff.quote(HOUR, Terms::default()).unwrap().per_hour
}

fn folder(files: &[(&str, &str)]) -> Vec<PriceFile> {
    files.iter().map(|(name, text)| PriceFile::new((*name).to_owned(), (*text).to_owned())).collect()
}

fn dated(day: &str, amount: &str) -> String {
    format!(
        "{}bundled: [memory]\nrates: [{{ meter: vcpu, amount: {amount}, per: hour, unit: vcpu }}]\n",
        HEAD.replace("2026-03-01", day)
    )
}

#[test]
fn units_are_what_they_are_called() {
    let rate = |rate: &str| {
        let rest = ["vcpu", "memory"].into_iter().filter(|meter| !rate.contains(&format!("meter: {meter}")));
        format!("{HEAD}rates:\n  - {rate}\nbundled: [{}]\n", rest.collect::<Vec<_>>().join(", "))
    };
    let hour = |text: &str| hourly(&book(&rate(text)), &resources(1.0, 2_048));
    assert_eq!(hour("{ meter: vcpu, amount: 0.000014, per: second, unit: vcpu }"), money("0.0504"));
    assert_eq!(hour("{ meter: vcpu, amount: 0.00003942, per: second, unit: core }"), money("0.070956"));
    assert_eq!(hour("{ meter: memory, amount: 0.01, per: hour, unit: gib }"), money("0.02"));
    assert_eq!(hour("{ meter: memory, amount: 0.01, per: hour, unit: gb }"), money("0.021474836"));
    assert_eq!(hour("{ meter: memory, amount: 24, per: day, unit: gib }"), money("2"));
    assert_eq!(hour("{ meter: memory, amount: 0.5, per: minute, unit: gib }"), money("60"));
    assert_eq!(hour("{ meter: disk, amount: 1, per: hour, unit: gib, free: 5 }"), Money::ZERO);
}

#[test]
fn processors_are_rounded_up_to_thousandths() {
    let text =
        format!("{HEAD}bundled: [memory]\nrates: [{{ meter: vcpu, amount: 1, per: hour, unit: vcpu }}]\n");
    let quantity = |cpu: f64| tariff_of(&text, &resources(cpu, 1)).lines[0].quantity;
    assert_eq!(quantity(1.1), 1_100, "not one more because 1.1 is not binary");
    assert_eq!(quantity(0.0001), 1);
    assert_eq!(quantity(2.0), 2_000);
    for cpu in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        let error = book(&text).tariff("ext.x", "local", &resources(cpu, 1), false, now()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{cpu}: {error}");
    }
}

#[test]
fn what_neither_profile_nor_price_says_is_not_free() {
    let text =
        format!("{HEAD}bundled: [memory]\nrates: [{{ meter: vcpu, amount: 1, per: hour, unit: vcpu }}]\n");
    let error = book(&text).tariff("ext.x", "local", &Resources::default(), false, now()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend);
    assert!(error.to_string().contains("counts vcpu"), "{error}");
    let text = format!("{text}defaults: {{ vcpu: 0.125 }}\n");
    assert_eq!(tariff_of(&text, &Resources::default()).lines[0].quantity, 125);
}

#[test]
fn a_gpu_without_a_rate_is_refused_and_the_dearest_model_counts() {
    let vcpu = "{ meter: vcpu, amount: 1, per: hour, unit: vcpu }";
    let wanted = Resources { gpu: Some(2), ..resources(1.0, 1) };
    let error = book(&format!("{HEAD}bundled: [memory]\nrates: [{vcpu}]\n"))
        .tariff("ext.x", "local", &wanted, false, now())
        .unwrap_err();
    assert!(error.to_string().contains("no `gpu` rate"), "{error}");
    let models = "{ meter: gpu, amount: 2, per: hour, model: l4 }, { meter: gpu, amount: 0.1, per: minute, model: h100 }";
    let tariff = tariff_of(&format!("{HEAD}bundled: [memory]\nrates: [{vcpu}, {models}]\n"), &wanted);
    assert_eq!(tariff.lines[1].cost(HOUR, None).unwrap().0, money("12"));
    let any =
        format!("{HEAD}bundled: [vcpu, memory]\nrates: [{models}, {{ meter: gpu, amount: 1, per: hour }}]\n");
    let any = tariff_of(&any, &wanted);
    assert_eq!(any.lines.len(), 1);
    assert_eq!(any.lines[0].cost(HOUR, None).unwrap().0, money("2"));
}

#[test]
fn a_later_price_applies_from_its_day_on() {
    let (january, december) = (dated("2026-01-01", "1"), dated("2026-12-01", "2"));
    let (book, errors) = PriceBook::parse(&[("dec.yaml", december.as_str()), ("jan.yaml", january.as_str())]);
    assert!(errors.is_empty(), "{errors:?}");
    let price = |at: &str| {
        let tariff = book.tariff("ext.x", "local", &resources(1.0, 1), false, at.parse().unwrap());
        tariff.map(|tariff| tariff.price)
    };
    assert_eq!(price("2026-11-30T23:59:59Z").unwrap(), "ext.x 2026-01-01");
    assert_eq!(price("2026-12-01T00:00:00Z").unwrap(), "ext.x 2026-12-01");
    let early = price("2025-12-31T00:00:00Z").unwrap_err();
    assert!(early.to_string().contains("begins on 2026-01-01"), "{early}");
}

#[test]
fn a_later_folder_wins_whatever_its_date() {
    let (built_in, mine) = (dated("2026-06-01", "1"), dated("2026-01-01", "2"));
    let folders = vec![folder(&[("built-in:ext.x.yaml", &built_in)]), folder(&[("mine.yaml", &mine)])];
    let book = PriceBook::of_folders(folders);
    assert_eq!(hourly(&book, &resources(1.0, 1)), money("2"));
    assert_eq!(book.current(now()).len(), 1);
    assert_eq!(
        book.cards().iter().map(|card| card.file.as_str()).collect::<Vec<_>>(),
        ["mine.yaml", "built-in:ext.x.yaml"]
    );
    let future = dated("2027-01-01", "3");
    let folders = vec![folder(&[("b.yaml", &built_in)]), folder(&[("mine.yaml", &future)])];
    assert_eq!(hourly(&PriceBook::of_folders(folders), &resources(1.0, 1)), money("1"), "until then");
}

#[test]
fn a_broken_file_leaves_no_price_and_the_rest_of_the_book() {
    let good = dated("2026-06-01", "1");
    let other = good.replace("ext.x", "ext.y");
    for broken in
        ["extension: ext.x\ncurrency: USD\n", "extension: ext.x # not YAML\n  - [\n", "currency: [\n"]
    {
        let folders = vec![
            folder(&[("built-in:x.yaml", &good), ("built-in:y.yaml", &other)]),
            folder(&[("prices/ext.x.yaml", broken)]),
        ];
        let book = PriceBook::of_folders(folders);
        let errors = book.problems();
        assert_eq!(errors.len(), 1, "{broken}");
        for is_self_hosted in [true, false] {
            let error = book.tariff("ext.x", "local", &resources(1.0, 1), is_self_hosted, now()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoBackend);
            assert!(error.to_string().contains("broken: prices/ext.x.yaml"), "{error}");
        }
        assert!(book.tariff("ext.y", "local", &resources(1.0, 1), false, now()).is_ok());
    }
}

#[test]
fn a_file_that_cannot_be_read_leaves_no_price_either() {
    let error = Error::new(ErrorKind::Denied, "prices/ext.x.yaml: permission denied");
    let unread = PriceFile { name: "prices/ext.x.yaml".into(), text: Err(error) };
    let good = dated("2026-06-01", "1");
    let book = PriceBook::of_folders(vec![folder(&[("b.yaml", &good)]), vec![unread]]);
    let errors = book.problems();
    assert_eq!(errors.len(), 1);
    let error = book.tariff("ext.x", "local", &resources(1.0, 1), false, now()).unwrap_err();
    assert!(error.to_string().ends_with("permission denied"), "{error}");
}

#[test]
fn a_file_in_another_way_of_writing_is_found_as_well() {
    let flow = "{ extension: ext.x, currency: USD, as_of: 2026-03-01, source: s, basis: metered, \
                bundled: [memory], rates: [{ meter: vcpu, amount: 3, per: hour, unit: vcpu }] }";
    assert_eq!(hourly(&book(flow), &resources(1.0, 1)), money("3"));
}

#[test]
fn the_same_day_twice_is_ambiguous() {
    let (one, two) = (dated("2026-06-01", "1"), dated("2026-06-01", "2"));
    let (book, errors) = PriceBook::parse(&[("one.yaml", one.as_str()), ("two.yaml", two.as_str())]);
    assert!(
        errors[0].to_string().contains("two.yaml: ext.x has a price as of 2026-06-01 already, in one.yaml")
    );
    assert!(book.tariff("ext.x", "local", &resources(1.0, 1), false, now()).is_err());
}

#[test]
fn a_host_is_shared_by_its_slots() {
    let text = "\
extension: ext.x
currency: USD
as_of: 2026-03-01
source: the invoice
basis: self-hosted
rates: [{ meter: host, amount: 0.50, per: hour, slots: 10 }]
hosts: { gpu-1: { amount: 2.50, slots: 4 }, big: { amount: 1 }, spare: { amount: 0 } }
";
    let book = book(text);
    let at = |host: &str| {
        let tariff =
            book.tariff("ext.x", host, &Resources { gpu: Some(1), ..Resources::default() }, true, now());
        tariff.unwrap().quote(HOUR, Terms::default()).unwrap().per_hour
    };
    assert_eq!(at("local"), money("0.05"));
    assert_eq!(at("gpu-1"), money("0.625"));
    assert_eq!(at("big"), money("0.10"));
    assert_eq!(at("spare"), Money::ZERO);
    let line = &book.tariff("ext.x", "local", &Resources::default(), true, now()).unwrap().lines[0];
    assert_eq!(line.what(), "0.1 host at 0.50 USD/h, reserved");
}

#[test]
fn without_any_price_ones_own_machines_are_free_and_others_are_refused() {
    let book = PriceBook::default();
    let tariff = book.tariff("ext.mine", "local", &Resources::default(), true, now()).unwrap();
    assert_eq!((tariff.basis.as_str(), tariff.lines.len()), ("self-hosted", 0));
    assert_eq!(tariff.quote(HOUR, Terms::default()).unwrap().amount, Money::ZERO);
    let error = book.tariff("ext.theirs", "local", &Resources::default(), false, now()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend);
    assert_eq!(error.to_string(), "ext.theirs has no price: no price file names it");
}

#[test]
fn a_pause_has_rates_of_its_own() {
    let text = format!(
        "{HEAD}rates:\n  - {{ meter: vcpu, amount: 1, per: hour, unit: vcpu }}\n  \
         - {{ meter: memory, amount: 1, per: hour, unit: gib }}\n  \
         - {{ meter: memory, amount: 0.1, per: hour, unit: gib, states: [paused] }}\n  \
         - {{ meter: create, amount: 0.5 }}\n"
    );
    let tariff = tariff_of(&text, &resources(1.0, 1_024));
    let cost = |phase, first| {
        let items = tariff.interval(phase, HOUR, None, first).unwrap();
        crate::tariff::sum(items.iter().map(|item| item.cost)).unwrap()
    };
    assert_eq!(cost(Phase::Running, true), money("2.5"));
    assert_eq!(cost(Phase::Running, false), money("2"));
    assert_eq!(cost(Phase::Paused, false), money("0.1"));
}

#[test]
fn a_card_survives_json() {
    let text = format!(
        "{HEAD}bundled: [vcpu, memory]\nminimum: 0.01\ngranularity: 1s\nrates: [{{ meter: disk, amount: 1, per: day, unit: gb, free: 5, states: [running, paused] }}]\ndefaults: {{ vcpu: 2, disk_mb: 10 }}\n"
    );
    let book = book(&text);
    let card = book.cards()[0];
    let json = serde_json::to_string(card).unwrap();
    assert_eq!(&serde_json::from_str::<PriceCard>(&json).unwrap(), card, "{json}");
}
