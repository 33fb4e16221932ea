mod unknown;

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use sandboxer_core::price::Basis;
use sandboxer_core::profile::Resources;
use sandboxer_core::tariff::Terms;
use sandboxer_core::{Dur, Money};

use super::*;

const HOUR: Dur = Dur::from_secs(3_600);

fn now() -> Timestamp {
    "2026-11-16T00:00:00Z".parse().unwrap()
}

/// One virtual processor and two gigabytes, the size that comparisons use, and no disk.
fn usual() -> Resources {
    Resources { cpu: Some(1.0), memory_mb: Some(2_048), disk_mb: Some(0), ..Resources::default() }
}

fn hourly(prices: &Prices, extension: &str) -> Money {
    let tariff = prices.book().tariff(extension, "local", &usual(), false, now()).unwrap();
    tariff.quote(HOUR, Terms::default()).unwrap().per_hour
}

fn own_price(amount: &str) -> String {
    format!(
        "extension: ext.e2b\ncurrency: USD\nas_of: 2026-01-01\nsource: the contract\nbasis: metered\n\
         bundled: [memory]\nrates: [{{ meter: vcpu, amount: {amount}, per: hour, unit: vcpu }}]\n"
    )
}

#[test]
fn every_built_in_file_is_there_and_whole() {
    let prices = Prices::default();
    assert!(prices.problems().is_empty(), "{:?}", prices.problems());
    let book = prices.book();
    let cards = book.current(now());
    assert_eq!(cards.len(), built_in::FILES.len());
    for card in &cards {
        assert!(!card.source.is_empty());
        assert_eq!(card.file, format!("built-in:{}.yaml", card.extension));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../registry/prices");
    let on_disk: BTreeSet<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| format!("built-in:{}", entry.unwrap().file_name().to_string_lossy()))
        .collect();
    let compiled: BTreeSet<String> = built_in::FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(on_disk, compiled);
}

#[test]
fn ones_own_machines_cost_nothing_as_they_come() {
    let prices = Prices::default();
    let book = prices.book();
    let own: Vec<&str> = book
        .current(now())
        .into_iter()
        .filter(|card| card.basis == Basis::SelfHosted)
        .map(|card| card.extension.as_str())
        .collect();
    for extension in ["ext.native", "ext.docker", "ext.ssh", "ext.compose-ssh", "ext.vm-packer"] {
        assert!(own.contains(&extension), "{extension}");
    }
    for extension in own {
        let tariff = book.tariff(extension, "local", &Resources::default(), true, now()).unwrap();
        let quote = tariff.quote(HOUR, Terms::default()).unwrap();
        assert_eq!((quote.amount, quote.basis.as_str()), (Money::ZERO, "self-hosted"), "{extension}");
    }
}

#[test]
fn an_hour_costs_what_comparisons_say() {
    let prices = Prices::default();
    for (extension, published) in [
        ("ext.e2b", "0.083"),
        ("ext.blaxel", "0.083"),
        ("ext.daytona", "0.083"),
        ("ext.cloudflare", "0.090"),
        ("ext.modal", "0.119"),
        ("ext.runloop", "0.158"),
    ] {
        let ours = hourly(&prices, extension).nanos();
        let theirs = published.parse::<Money>().unwrap().nanos();
        assert!((ours - theirs).abs() * 50 <= theirs, "{extension}: {ours} and {theirs} nano-dollars");
    }
    // Its rates give more than the comparison shows; the file says so.
    assert_eq!(hourly(&prices, "ext.vercel").to_string(), "0.1704 USD");
    for (extension, exactly) in [
        ("ext.agentcore", "0.1084 USD"),
        ("ext.northflank", "0.03333 USD"),
        ("ext.sprites", "0.1575 USD"),
        ("ext.saas-stub", "0.0828 USD"),
    ] {
        assert_eq!(hourly(&prices, extension).to_string(), exactly, "{extension}");
    }
}

#[test]
fn a_folder_of_ones_own_wins_and_a_broken_file_takes_its_price_away() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine.yaml"), own_price("0.5")).unwrap();
    fs::write(folder.path().join("notes.txt"), "not a price").unwrap();
    let missing = folder.path().join("missing");
    let prices = Prices::load(vec![missing, folder.path().to_owned()]);
    assert_eq!(hourly(&prices, "ext.e2b").to_string(), "0.50 USD");
    assert!(prices.problems().is_empty(), "{:?}", prices.problems());

    fs::write(folder.path().join("ext.modal.yaml"), "extension: ext.modal\n").unwrap();
    let prices = Prices::load(vec![folder.path().to_owned()]);
    assert_eq!(prices.problems().len(), 1);
    let error = prices.book().tariff("ext.modal", "local", &usual(), false, now()).unwrap_err();
    assert!(error.to_string().contains("ext.modal.yaml"), "{error}");
    assert_eq!(hourly(&prices, "ext.e2b").to_string(), "0.50 USD");
}

#[test]
fn a_change_is_seen_without_a_restart_and_a_look_is_kept_for_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.yaml");
    let prices = Prices::load(vec![folder.path().to_owned()]);
    assert_eq!(hourly(&prices, "ext.e2b").to_string(), "0.0828 USD");
    let first = prices.book();
    for (text, shown) in [(Some("0.5"), "0.50 USD"), (Some("0.7"), "0.70 USD"), (None, "0.0828 USD")] {
        match text {
            Some(amount) => fs::write(&file, own_price(amount)).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while hourly(&prices, "ext.e2b").to_string() != shown {
            assert!(Instant::now() < deadline, "{shown} was never seen");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert!(!Arc::ptr_eq(&first, &prices.book()));
    let again = prices.book();
    std::thread::sleep(FRESH + Duration::from_millis(50));
    assert!(Arc::ptr_eq(&again, &prices.book()), "nothing changed, so nothing is read");
}

/// The text of every example in the documentation that is a price file.
fn documented() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/prices.md");
    let page = fs::read_to_string(page).unwrap();
    page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_examples_of_the_documentation_give_the_numbers_that_it_states() {
    let examples = documented();
    assert_eq!(examples.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    for (index, text) in examples.iter().enumerate() {
        fs::write(folder.path().join(format!("{index}.yaml")), text).unwrap();
    }
    let prices = Prices::load(vec![folder.path().to_owned()]);
    assert!(prices.problems().is_empty(), "{:?}", prices.problems());
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/prices.md")).unwrap();
    let book = prices.book();
    let quote = |extension: &str, host: &str, resources: &Resources, time: Dur| {
        let tariff = book.tariff(extension, host, resources, extension == "ext.docker", now()).unwrap();
        tariff.quote(time, Terms::default()).unwrap()
    };
    let stated = |said: &str| assert!(page.contains(said), "docs/prices.md does not say: {said}");

    let here = quote("ext.docker", "local", &usual(), HOUR).per_hour;
    stated(&format!("on `local` is {here} an hour"));
    let gpu = quote("ext.docker", "gpu-1", &usual(), HOUR).per_hour;
    stated(&format!("on `gpu-1` {gpu}"));

    let asked =
        Resources { cpu: Some(2.0), memory_mb: Some(4_096), disk_mb: Some(20_480), ..Resources::default() };
    let hour = quote("ext.acme", "local", &asked, HOUR);
    for item in &hour.items {
        stated(&format!("| {} | {} | {} |", item.meter, item.what, item.cost));
    }
    stated(&format!(
        "**{}**",
        hour.items.iter().try_fold(Money::ZERO, |sum, item| sum.checked_add(item.cost)).unwrap()
    ));
    stated(&format!("{} are held", hour.amount));
    let short = quote("ext.acme", "local", &asked, Dur::from_secs(1));
    stated(&format!("A second costs {}", short.amount));
}

#[test]
fn a_provider_is_not_made_free_by_calling_its_machines_ones_own() {
    let text = "extension: ext.saas-stub\ncurrency: USD\nas_of: 2026-01-01\nsource: x\nbasis: self-hosted\n\
                rates: [{ meter: host, amount: 0, per: hour }]\n";
    let prices = Prices::of_texts(&[("mine.yaml", text)]);
    prices.are_metered(["ext.saas-stub".to_owned()]);
    let [problem] = prices.problems().try_into().unwrap();
    assert!(problem.to_string().contains("mine.yaml: `basis: self-hosted`"), "{problem}");
    assert!(problem.hint().unwrap().contains("basis: metered"));
    let refusal = prices.book().tariff("ext.saas-stub", "local", &usual(), false, now()).unwrap_err();
    assert_eq!(refusal.kind(), sandboxer_core::ErrorKind::NoBackend);
}
