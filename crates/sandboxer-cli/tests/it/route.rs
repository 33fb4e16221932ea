//! `route explain`, `create --dry-run` and the options that decide a route.

use crate::support::Home;

#[test]
fn every_backend_is_explained() {
    let home = Home::new();
    let args = ["route", "explain", "--profile", "profile.burst-sandbox", "--ttl", "1h"];
    let told = home.run(args).ok();
    assert!(told.contains("RANK  EXTENSION"), "{told}");
    let plan =
        home.run(["route", "explain", "--profile", "profile.burst-sandbox", "--ttl", "1h", "--json"]).json();
    let dry = home
        .run(["create", "--dry-run", "--profile", "profile.burst-sandbox", "--ttl", "1h", "--json"])
        .json();
    assert_eq!(plan, dry, "the same answer");
    let ranked: Vec<&str> = plan["route"]["offers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|offer| offer["accepted"] == true)
        .map(|offer| offer["extension"].as_str().unwrap())
        .collect();
    assert_eq!(ranked, ["ext.native", "ext.saas-stub"]);
    assert!(home.run(["list", "--all", "--json"]).json()["items"].as_array().unwrap().is_empty());
}

#[test]
fn wishes_decide_and_constraints_hold() {
    let home = Home::new();
    let first = |args: &[&str]| {
        let mut command = home.command(["route", "explain", "--profile", "profile.burst-sandbox", "--json"]);
        let output = command.args(args).output().unwrap();
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), plan["extension"].as_str().unwrap_or("none").to_owned())
    };
    let told = |code: i32, name: &str| (code, name.to_owned());
    assert_eq!(first(&["--order", "ext.saas-stub"]), told(0, "ext.saas-stub"));
    assert_eq!(first(&["--ignore", "ext.native"]), told(0, "ext.saas-stub"));
    assert_eq!(first(&["--only", "ext.saas-stub"]), told(0, "ext.saas-stub"));
    assert_eq!(first(&["--strategy", "lowest-cost"]), told(0, "ext.native"));
    assert_eq!(first(&["--only", "ext.saas-stub", "--max-cost-per-hour", "0.01"]), told(7, "none"));
    assert_eq!(first(&["--only", "ext.saas-stub", "--max-cost", "0.01"]), told(7, "none"));
    assert_eq!(first(&["--require-isolation", "microvm"]), told(7, "none"));
    assert_eq!(first(&["--region", "mars"]), told(7, "none"));
    assert_eq!(first(&["--hedge=2s", "--hedge=3s"][..1]), told(0, "ext.native"));
    // A create refuses with the same reasons and makes nothing.
    let create = [
        "create",
        "--profile",
        "profile.burst-sandbox",
        "--ignore",
        "ext.native",
        "--max-cost-per-hour",
        "0.01",
    ];
    home.run(create).exits(7).says("ext.saas-stub");
    home.run(["route", "explain", "--strategy", "cheapest"]).exits(2).says("lowest-cost");
    home.run(["route", "explain", "--require-isolation", "strong"]).exits(2).says("microvm");
    home.run(["route", "explain", "--profile", "profile.nothing"]).exits(3);
}

#[test]
fn the_configuration_has_its_say() {
    let home = Home::new();
    home.file(
        ".config/sandboxer/config.toml",
        "[route]\nignore = ['ext.native']\n[extensions.\"ext.saas-stub\"]\nmax_sandboxes = 1\n",
    );
    let explain = ["route", "explain", "--profile", "profile.burst-sandbox", "--json"];
    assert_eq!(home.run(explain).json()["extension"], "ext.saas-stub");
    home.run(["credits", "add", "10"]).ok();
    home.run(["create", "--profile", "profile.burst-sandbox", "--ttl", "10m"]).ok();
    let full = home.run(explain).exits(7).json();
    assert!(full["route"]["offers"].to_string().contains("1 of 1 sandbox"), "{full:#}");
}
