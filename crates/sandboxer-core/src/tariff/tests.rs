use super::*;

fn line(meter: &str, quantity: u64, unit_size: u64, rate: &str, per: Option<Dur>) -> TariffLine {
    TariffLine {
        meter: meter.into(),
        charged: Charged::Reserved,
        quantity,
        free: 0,
        unit_size,
        unit: "unit".into(),
        rate: Rate { amount: rate.parse().unwrap(), per },
        phases: vec![Phase::Running],
    }
}

fn tariff(lines: Vec<TariffLine>) -> Tariff {
    Tariff { extension: "ext.x".into(), basis: "metered".into(), lines, ..Tariff::default() }
}

fn money(text: &str) -> Money {
    text.parse().unwrap()
}

#[test]
fn a_rate_by_the_hour_is_exact() {
    let line = line("vcpu", 1_000, 1_000, "0.0895", Some(HOUR));
    assert_eq!(line.cost(HOUR, None).unwrap().0, money("0.0895"));
    assert_eq!(line.cost(Dur::from_secs(1), None).unwrap().0, Money::from_nanos(24_861));
}

#[test]
fn active_processors_are_charged_by_what_they_did() {
    let mut line = line("vcpu", 2_000, 1_000, "0.00002", Some(Dur::from_secs(1)));
    line.charged = Charged::Active;
    let used = Usage { cpu_usec: Some(500_000), ..Usage::default() };
    assert_eq!(line.cost(HOUR, Some(&used)).unwrap(), (money("0.00001"), false));
    assert_eq!(
        line.cost(HOUR, None).unwrap(),
        (money("0.144"), true),
        "unknown use is what was reserved, and says so"
    );
    line.charged = Charged::MaxReservedUsed;
    assert_eq!(line.cost(HOUR, Some(&used)).unwrap(), (money("0.144"), false));
}

#[test]
fn the_first_bytes_may_be_free() {
    let mut line = line("disk", 6 << 30, 1 << 30, "0.00000003", Some(Dur::from_secs(1)));
    line.free = 5 << 30;
    assert_eq!(line.cost(Dur::from_secs(10), None).unwrap().0, Money::from_nanos(300));
    line.quantity = 1 << 30;
    assert_eq!(line.cost(Dur::from_secs(10), None).unwrap().0, Money::ZERO);
}

#[test]
fn what_is_paid_once_is_paid_in_the_first_interval() {
    let tariff = tariff(vec![line("create", 1, 1, "0.0000006", None)]);
    assert_eq!(tariff.interval(Phase::Running, HOUR, None, true).unwrap().len(), 1);
    assert_eq!(tariff.interval(Phase::Running, HOUR, None, false).unwrap().len(), 0);
    assert_eq!(tariff.quote(HOUR, Terms::default()).unwrap().per_hour, Money::ZERO);
}

#[test]
fn steps_and_minimum() {
    let mut tariff = tariff(vec![line("vcpu", 1_000, 1_000, "0.01", Some(Dur::from_secs(1)))]);
    tariff.granularity = Dur::from_secs(60);
    assert_eq!(
        tariff.interval(Phase::Running, Dur::from_secs(61), None, true).unwrap()[0].cost,
        money("1.2")
    );
    tariff.minimum = money("5");
    assert_eq!(tariff.quote(Dur::from_secs(1), Terms::default()).unwrap().amount, money("5"));
}

#[test]
fn a_key_of_ones_own_leaves_the_fee() {
    let tariff = tariff(vec![line("vcpu", 1_000, 1_000, "0.10", Some(HOUR))]);
    let own = Terms { provider_key: ProviderKey::Own, fee_basis_points: 500 };
    let quote = tariff.quote(HOUR, own).unwrap();
    assert_eq!((quote.amount, quote.fee), (money("0.005"), money("0.005")));
    assert_eq!(quote.upstream, money("0.100000001"));
    let free = Terms { provider_key: ProviderKey::Own, fee_basis_points: 0 };
    assert_eq!(tariff.quote(HOUR, free).unwrap().amount, Money::ZERO);
}

#[test]
fn a_line_reads_as_a_price_does() {
    let mut line = line("vcpu", 1_500, 1_000, "0.000014", Some(Dur::from_secs(1)));
    line.unit = "vCPU".into();
    assert_eq!(line.what(), "1.5 vCPU at 0.000014 USD/s, reserved");
}

#[test]
fn what_overflows_is_refused() {
    let line = line("memory", u64::MAX, 1, "900000000", Some(Dur::from_millis(1)));
    assert!(line.cost(Dur::from_secs(86_400), None).is_err());
}
