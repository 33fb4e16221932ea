//! `estimate`, and the prices that it is made from.

use crate::support::Home;

const PRICE: &str = "extension: ext.native\ncurrency: USD\nas_of: 2026-01-01\nsource: what our rack costs\n\
                     basis: self-hosted\nrates:\n  - { meter: host, amount: 0.48, per: hour, slots: 8 }\n";

fn estimates(home: &Home) {
    let told = home.run(["estimate", "--profile", "profile.saas-stub", "--duration", "1h"]).ok();
    assert!(told.contains("0.0504 USD"), "an hour of one vCPU at 0.000014 a second: {told}");
    assert!(told.contains("METER") && told.contains("1 vCPU at 0.000014 USD/s, reserved"), "{told}");
    // The lines sum to the quote.
    let json = home.run(["estimate", "--profile", "profile.saas-stub", "--duration", "1h", "--json"]).json();
    let amount = |text: &str| text.parse::<sandboxer_core::Money>().unwrap().nanos();
    let lines = told.lines().skip_while(|line| !line.starts_with("METER")).skip(1);
    let costs = lines.take_while(|line| !line.is_empty()).map(|line| {
        let cell =
            line.split("  ").map(str::trim).find(|cell| cell.ends_with(" USD") && !cell.contains("at"));
        amount(cell.unwrap())
    });
    assert_eq!(costs.sum::<i128>(), amount(json["quote"]["amount"].as_str().unwrap()), "{told}");
    assert!(told.contains("rounding up"), "{told}");
    let zero = home.run(["estimate", "--profile", "profile.saas-stub", "--duration", "0s"]).exits(2);
    assert!(zero.stderr.contains("duration above zero") && !zero.stderr.contains("TTL"), "{}", zero.stderr);
    let both = home.run(["estimate", "--profile", "profile.burst-sandbox", "--duration", "1h"]).ok();
    assert!(both.contains("OTHERWISE") && both.contains("ext.saas-stub"), "{both}");
    let only = [
        "estimate",
        "--profile",
        "profile.burst-sandbox",
        "-d",
        "1h",
        "--extension",
        "ext.saas-stub",
        "--json",
    ];
    assert_eq!(home.run(only).json()["extension"], "ext.saas-stub");
    home.run(["estimate", "--profile", "profile.e2b-burst", "--duration", "1h"]).exits(7);
    home.run(["estimate", "--profile", "profile.saas-stub", "--duration", "9d"]).exits(2).says("maximum");
    home.run(["estimate", "--profile", "profile.saas-stub"]).exits(2).says("--duration");
    assert!(home.run(["list", "--all", "--json"]).json()["items"].as_array().unwrap().is_empty());
}

#[test]
fn what_it_would_cost_embedded() {
    estimates(&Home::new());
}

#[test]
fn what_it_would_cost_through_a_server() {
    estimates(&Home::served());
}

#[test]
fn a_price_of_ones_own_is_used_and_shown() {
    let home = Home::new();
    home.file(".config/sandboxer/prices/ext.native.yaml", PRICE);
    let told = home.run(["estimate", "--duration", "10m", "--json"]).json();
    assert_eq!(told["quote"]["per_hour"], "0.06 USD", "{told:#}");
    let shown = home.run(["extensions", "show", "ext.native"]).ok();
    assert!(shown.contains("what our rack costs") && shown.contains("2026-01-01"), "{shown}");
}

#[test]
fn a_folder_of_the_configuration_is_read_too() {
    let home = Home::new();
    home.file("shared/ext.native.yaml", PRICE);
    let folder = home.path().join("shared").display().to_string();
    home.file(".config/sandboxer/config.toml", format!("prices = ['{folder}']\n"));
    let told = home.run(["estimate", "--duration", "10m", "--json"]).json();
    assert_eq!(told["quote"]["per_hour"], "0.06 USD", "{told:#}");
}

#[test]
fn a_broken_price_file_is_told() {
    let home = Home::new();
    home.file(".config/sandboxer/prices/ext.saas-stub.yaml", "extension: ext.saas-stub\nrates: 7\n");
    let doctor = home.run(["doctor"]);
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(told.contains("prices") && told.contains("ext.saas-stub.yaml"), "{told}");
    home.run(["estimate", "--profile", "profile.saas-stub", "--duration", "1h"]).exits(7);
    assert!(home.run(["extensions", "show", "ext.saas-stub"]).ok().contains("broken"));
}

/// What each way of asking for a price does: the exit code of an estimate at the pretended provider, and its stderr.
fn metered(home: &Home) -> crate::support::Ran {
    home.run(["estimate", "--profile", "profile.saas-stub", "--duration", "1h"])
}

#[test]
fn a_price_file_that_is_nobodys_stops_what_is_metered_and_is_told() {
    for (name, text) in [
        ("a.yaml", &b""[..]),
        ("a.yaml", b"garbage: ["),
        ("a.yaml", b"source: \xff\n"),
        ("a.yaml", b"extention: ext.saas-stub\n"),
        ("A.YAML", b"garbage: ["),
        ("a.yml", b"garbage: ["),
    ] {
        let home = Home::new();
        home.file(&format!(".config/sandboxer/prices/{name}"), text);
        let ran = metered(&home).exits(7).says("a price cannot be used").says(name);
        assert_eq!(ran.stderr.matches("a price cannot be used").count(), 1, "{}", ran.stderr);
        home.run(["estimate", "--duration", "1h"]).exits(0).says("a price cannot be used").says(name);
        let report = home.run(["doctor", "--json"]).json();
        let lines = report["checks"].as_array().unwrap();
        let failed = |about: &str| {
            let mut failed = lines.iter().filter(|line| line["about"] == about && line["ok"] == false);
            failed.any(|line| line["detail"].as_str().unwrap().contains(name))
        };
        assert!(failed("prices") && failed("ext.saas-stub"), "{report:#}");
        let listed = home.run(["list"]).exits(0);
        assert!(!listed.stderr.contains("price"), "it needs none: {}", listed.stderr);
    }
}

#[test]
fn a_price_of_what_is_not_registered_is_a_note() {
    let home = Home::new();
    home.file(".config/sandboxer/prices/acme.yaml", PRICE.replace("ext.native", "ext.acme"));
    assert_eq!(metered(&home).exits(0).stderr, "");
    let report = home.run(["doctor", "--json"]).json();
    let lines = report["checks"].as_array().unwrap();
    let note = lines.iter().find(|line| line["about"] == "prices").unwrap();
    assert!(note["ok"] == true && note["detail"].as_str().unwrap().contains("ext.acme"), "{note:#}");
}

#[test]
fn a_folder_of_prices_that_is_missing_stops_only_what_needs_it() {
    let home = Home::new().with("SANDBOXER_PRICES", "/nope/prices");
    let told = "/nope/prices: the folder of prices cannot be read";
    for ran in [home.run(["list"]), home.run(["events"]), home.run(["destroy", "--all", "--yes"])] {
        let ran = ran.exits(0).says(told);
        assert_eq!(ran.stderr.matches(told).count(), 1, "{}", ran.stderr);
    }
    home.run(["estimate", "--duration", "1h"]).exits(0).says(told);
    metered(&home).exits(7).says(told);
    let doctor = home.run(["doctor"]);
    assert!(String::from_utf8_lossy(&doctor.stdout).contains(told));
}
