//! The worked example of `docs/payments.md`: its figures are what the price book and the bill give.

use jiff::Timestamp;
use sandboxer_core::bill::Bill;
use sandboxer_core::ledger::Payer;
use sandboxer_core::tariff::{Phase, Terms};
use sandboxer_core::{Actor, Dur, SandboxId};
use sandboxer_engine::catalog::{Catalog, CatalogSources};
use sandboxer_engine::prices::Prices;

#[test]
fn the_worked_example_is_right() {
    let page = include_str!("../../../../docs/payments.md");
    let begin = page.find("## A worked example").unwrap();
    let page = &page[begin..begin + page[begin..].find("## Accounts").unwrap()];
    let catalog = Catalog::load(&CatalogSources::default());
    let resources = catalog.get("profile.agent-dev").unwrap().profile.resources.clone();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let tariff = Prices::default().book().tariff("ext.saas-stub", "local", &resources, false, now).unwrap();

    let quote = tariff.quote(Dur::from_secs(3_600), Terms::default()).unwrap();
    for item in &quote.items {
        let row = format!("| {} |", item.meter);
        let row = page.lines().find(|line| line.starts_with(&row)).unwrap_or_else(|| panic!("no row {row}"));
        assert!(row.ends_with(&format!("| {} |", item.cost)), "{row}: {}", item.cost);
    }
    assert!(page.contains(&format!("| {} |", quote.amount)), "{}", quote.amount);
    let running = tariff.lines.iter().filter(|line| line.phases.contains(&Phase::Running));
    let rates: Vec<String> = running.map(|line| line.rate.amount.to_string()).collect();
    for rate in &rates {
        assert!(page.contains(rate.as_str()), "the rate {rate} is not on the page");
    }

    let payer = Payer {
        organisation: "default".into(),
        workspace: "default".into(),
        key: None,
        actor: Actor::Adm,
        profile: "profile.agent-dev".into(),
    };
    let (id, mut bill) = (SandboxId::generate(), Bill::new(payer, Terms::default(), tariff, &quote).unwrap());
    bill.start(id, Phase::Running, now, None).unwrap();
    bill.stop(id, Dur::from_secs(600).after(now), None).unwrap();
    let cost = bill.settle().unwrap().1;
    let parts: Vec<String> =
        cost.items.iter().map(|item| item.cost.to_string().trim_end_matches(" USD").to_owned()).collect();
    assert!(
        page.contains(&format!("{} = {}", parts.join(" + "), cost.charged)),
        "{parts:?} {}",
        cost.charged
    );
    let back = sandboxer_core::Money::from_nanos(-cost.difference.nanos());
    assert!(page.contains(&format!("{back} go back")), "{back}");
}
