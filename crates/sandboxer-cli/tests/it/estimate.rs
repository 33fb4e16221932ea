//! `estimate`, and the prices that it is made from.

use crate::support::Home;

const PRICE: &str = "extension: ext.native\ncurrency: USD\nas_of: 2026-01-01\nsource: what our rack costs\n\
                     basis: self-hosted\nrates:\n  - { meter: host, amount: 0.48, per: hour, slots: 8 }\n";

fn estimates(home: &Home) {
    let told = home.run(["estimate", "--profile", "profile.saas-stub", "--duration", "1h"]).ok();
    assert!(told.contains("0.0504 USD"), "an hour of one vCPU at 0.000014 a second: {told}");
    assert!(told.contains("METER") && told.contains("1 vCPU at 0.000014 USD/s, reserved"), "{told}");
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
