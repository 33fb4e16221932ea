//! Credits from outside: paid in once, held, charged, told; with a server and without the same.

use serde_json::Value;

use crate::support::Home;

const STUB: [&str; 5] = ["create", "--profile", "profile.saas-stub", "--ttl", "15m"];

fn balance(home: &Home) -> (String, String) {
    let shown = home.run(["credits", "show", "--json"]).json();
    let account = &shown["accounts"][0];
    let text = |name: &str| account[name].as_str().unwrap().trim_end_matches(" USD").to_owned();
    (text("balance"), text("held"))
}

fn nanos(money: &Value) -> i128 {
    let text = money.as_str().unwrap().trim_end_matches(" USD");
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, decimals) = text.split_once('.').unwrap();
    sign * (whole.parse::<i128>().unwrap() * 1_000_000_000
        + format!("{decimals:0<9}").parse::<i128>().unwrap())
}

fn a_life_with_money(home: &Home) {
    home.run(STUB).exits(6).says("hint: ");
    assert!(home.run(["list", "--all", "--json"]).json()["items"].as_array().unwrap().is_empty());
    for _ in 0..2 {
        let added = home.run(["credits", "add", "10", "--memo", "=1+1", "--id", "a-1", "--json"]).json();
        assert_eq!(added["account"]["balance"], "10.00 USD");
    }
    home.run(["credits", "add", "11", "--id", "a-1"]).exits(4).says("with another content");
    assert_eq!(balance(home), ("10.00".into(), "0.00".into()));

    let made = home.run(STUB).exits(0).says("are held for 15m");
    let id = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert_eq!(balance(home), ("9.985274997".into(), "0.014725003".into()));
    assert!(home.run(["get", &id]).ok().contains("0.014725003 USD (metered, held, 0.0585 USD an hour)"));
    let running = home.run(["meters", "list", "--sandbox", &id, "--json"]).json();
    assert!(running["items"].as_array().unwrap().iter().all(|meter| meter.get("ended_at").is_none()));

    home.run(["destroy", &id]).exits(0).says("given back").says("  vcpu ");
    let ended = home.run(["get", &id, "--json"]).json();
    let cost = &ended["cost"];
    assert_eq!(nanos(&cost["charged"]) - nanos(&cost["quoted"]), nanos(&cost["difference"]));
    assert!(home.run(["get", &id]).ok().contains("charged of 0.014725003 USD held"));
    assert_eq!(balance(home).1, "0.00");
    let again = home.run(["destroy", &id, "--json"]).json();
    assert_eq!(again["items"][0]["cost"], *cost, "charged once");

    let month = &ended["created_at"].as_str().unwrap()[..7];
    let statement = home.run(["credits", "export", "--month", month, "--format", "json"]).json();
    let sum: i128 =
        statement["entries"].as_array().unwrap().iter().map(|entry| nanos(&entry["amount"])).sum();
    assert_eq!(nanos(&statement["opening"]) + sum, nanos(&statement["closing"]));
    assert_eq!(statement["charged"], cost["charged"]);
    assert_eq!(nanos(&statement["closing"]), 10_000_000_000 - nanos(&cost["charged"]));
    let csv = home.run(["credits", "export", "--month", month]).ok();
    assert!(csv.contains(",'=1+1\r\n"), "no formula: {csv}");
    assert!(csv.lines().last().unwrap().starts_with("closing,"), "{csv}");

    let usage = format!("tag,seconds,cost\n{id},1,{}\nsbx_other,5,1\n", nanos(&cost["charged"]) as f64 / 1e9);
    home.file("usage.csv", usage);
    let compare = ["credits", "reconcile", "--extension", "ext.saas-stub", "usage.csv", "--json"];
    let report = home.run(compare).exits(1).json();
    assert_eq!(
        (&report["matched"], &report["only_theirs"][0]["tag"]),
        (&1.into(), &"sbx_other".into()),
        "{report:#}"
    );
    home.run(["credits", "audit"]).exits(0);
    assert!(home.run(["credits", "history", "--sandbox", &id]).ok().contains("provider:ext.saas-stub"));
}

#[test]
fn a_life_with_money_embedded() {
    a_life_with_money(&Home::new());
}

#[test]
fn a_life_with_money_through_a_server() {
    a_life_with_money(&Home::served());
}

#[test]
fn amounts_that_cannot_be_are_usage_errors_that_say_why() {
    let home = Home::new();
    for (amount, why) in [
        ("0", "above zero"),
        ("-3", "above zero"),
        ("NaN", "a decimal number was expected"),
        ("inf", "a decimal number was expected"),
        ("1e3", "a decimal number was expected"),
        ("5 EUR", "accounts are kept in USD"),
        ("0.0000000001", "more than nine decimals"),
        ("99999999999999999999999", "too large"),
        ("1000000001", "the most is"),
    ] {
        home.run(["credits", "add", amount]).exits(2).says(why);
    }
    home.run(["credits", "export", "--month", "2026-13"]).exits(2).says("months are written");
    home.run(["credits", "history", "--from", "yesterday"]).exits(2).says("times are written");
    home.run(["credits", "limit", "org:acme"]).exits(2).says("--overdraft");
    home.run(["credits", "budget", "set", "actor:agt", "--per", "week", "--limit", "1"])
        .exits(2)
        .says("month");
    assert!(!home.state().exists(), "nothing was made");
    home.run(["credits", "add", "1", "--account", "world"]).exits(2).says("accounts are written");
    home.run(["credits", "limit", "org:acme", "--overdraft=-1"]).exits(2).says("is not a limit");
    home.run(["credits", "limit", "org:acme", "--overdraft", "-1"]).exits(2).says("is not a limit");
    home.run(["create", "--max-cost", "-1"]).exits(2).says("is not a limit");
    home.run(["credits", "reconcile", "--extension", "ext.e2b", "--tolerance", "-1", "usage.csv"])
        .exits(2)
        .says("is not a limit");
    home.run(["credits", "adjust", "0", "--account", "org:acme", "--memo", "x"]).exits(2).says("zero");
    home.run(["credits", "adjust", "-1", "--account", "org:acme"]).exits(2).says("--memo");
    home.run(["credits", "adjust", "-1", "--account", "org:acme", "--memo", "x"]).exits(3);
    home.run(["credits", "history", "--account", "org:nobody"]).exits(3).says("was not opened yet");
    home.run(["credits", "export", "--month", "2026-11", "--account", "org:nobody"]).exits(3);
    home.run(["credits", "show", "org:nobody"]).exits(3).says("was not opened yet");
    home.run(["credits", "history", "--from", "2026-02-01", "--until", "2026-01-01"])
        .exits(2)
        .says("nothing lies");
    home.run(["credits", "reconcile", "--extension", "ext.x", "usage.txt"]).exits(2).says(".csv");
    home.run(["credits", "reconcile", "--extension", "ext.x", "usage.csv"]).exits(3);
    let pipe = home.path().join("pipe.csv");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    home.run(["credits", "reconcile", "--extension", "ext.e2b", "pipe.csv"]).exits(2).says("regular file");
}

fn put_right(home: &Home) {
    home.run(["credits", "add", "10"]).ok();
    let right = |amount: &str| {
        home.run([
            "credits",
            "adjust",
            amount,
            "--account",
            "workspace:default",
            "--memo",
            "twice",
            "--id",
            "r-1",
            "--json",
        ])
    };
    for _ in 0..2 {
        assert_eq!(right("-7.5").json()["account"]["balance"], "2.50 USD");
    }
    right("-7").exits(4);
    let told = home.run(["credits", "adjust", "-2.51", "--account", "workspace:default", "--memo", "x"]);
    told.exits(6).says("2.50 USD to spend");
    assert!(home.run(["credits", "history"]).ok().contains("adjustment"), "told as what it is");
    home.run(["credits", "show"]).says("workspace:default/default pays for what you create");
    let id = home.run(STUB).ok().trim().to_owned();
    home.run(["extend-ttl", &id, "--duration", "40m"]).exits(0).says(" more are held, ");
    let same = home.run(["extend-ttl", &id, "--duration", "1m"]).ok();
    assert!(same.contains("as before"), "{same}");
    home.run(["credits", "audit"]).exits(0);
}

#[test]
fn a_mistake_is_put_right_and_a_longer_life_tells_its_price() {
    put_right(&Home::new());
    put_right(&Home::served());
}

#[test]
fn budgets_stop_a_create() {
    let home = Home::new();
    home.run(["credits", "add", "10"]).ok();
    home.run(["credits", "budget", "set", "profile:profile.saas-stub", "--per", "day", "--limit", "0.02"])
        .ok();
    let id = home.run(STUB).ok();
    home.run(STUB).exits(6).says("budget");
    let listed = home.run(["credits", "budget", "list"]).ok();
    assert!(listed.contains("profile:default/profile.saas-stub  day  0.02 USD  0.014725003 USD"), "{listed}");
    home.run(["destroy", id.trim()]).ok();
    home.run(["credits", "budget", "remove", "profile:profile.saas-stub", "--per", "day"]).ok();
    home.run(["credits", "budget", "remove", "profile:profile.saas-stub", "--per", "day"]).exits(3);
    home.run(STUB).ok();
}

fn own_key(home: &Home) {
    let set = ["credits", "provider-keys", "set", "--workspace", "default", "--extension", "ext.saas-stub"];
    home.run(set).exits(2).says("has no key");
    home.run([set[0], set[1], set[2], set[3], set[4], "--extension", "ext.native"]).exits(2);
    let secret = home.file("key.txt", "hush-hush-hush\n");
    let kept = home.feed(set, b"hush-hush\n").exits(0);
    let shown = String::from_utf8(kept.stdout).unwrap() + &kept.stderr;
    assert!(shown.contains("SHA256:") && !shown.contains("hush"), "{shown}");
    let mut command = home.command(set);
    command.args(["--from-file", secret.to_str().unwrap(), "--fee-percent", "10"]);
    assert!(command.output().unwrap().status.success());
    // Another key is no reason to change the fee.
    home.feed(set, b"hush-hush-hush\n").exits(0);
    let listed = home.run(["credits", "provider-keys", "list", "--json"]).ok();
    assert!(listed.contains("\"fee_percent\": \"10\"") && !listed.contains("hush"), "{listed}");
    // Only the fee is quoted here: the provider bills the rest.
    let estimate =
        home.run(["estimate", "--profile", "profile.saas-stub", "--duration", "15m", "--json"]).json();
    let quote = &estimate["quote"];
    assert_eq!((&quote["provider_key"], &quote["amount"]), (&"own".into(), &quote["fee"]), "{quote:#}");
    assert_eq!(nanos(&quote["fee"]), nanos(&quote["upstream"]) / 10);
    let told = home.run(["estimate", "--profile", "profile.saas-stub", "--duration", "15m"]).ok();
    assert!(told.contains("to the workspace; ") && told.contains(" fee is charged here"), "{told}");
    // A whole life in the workspace's account at the provider, and no way to lose the key of what lives there.
    home.run(["credits", "add", "1"]).ok();
    let id = home.run(STUB).ok().trim().to_owned();
    assert_eq!(home.run(["exec", &id, "--", "echo", "here"]).ok(), "here\n");
    let inspected = home.run(["inspect", "sandbox", &id, "--json"]).json();
    let account = inspected["backend"]["detail"]["key"].as_str().unwrap();
    assert!(account.starts_with("own:"), "{inspected:#}");
    home.run(["extend-ttl", &id, "--duration", "20m"]).ok();
    let remove =
        ["credits", "provider-keys", "remove", "--workspace", "default", "--extension", "ext.saas-stub"];
    home.run(remove).exits(4).says(&id);
    home.run(["destroy", &id]).ok();
    let ended = home.run(["get", &id, "--json"]).json();
    assert!(ended["cleanup"]["removed"].to_string().contains("at the provider"), "{ended:#}");
    home.run(remove).ok();
    home.run(remove).exits(3);
}

#[test]
fn a_workspaces_own_key() {
    own_key(&Home::new());
    own_key(&Home::served());
}

#[test]
fn keys_belong_to_a_workspace() {
    let home = Home::new();
    home.run([
        "keys",
        "create",
        "--name",
        "bot",
        "--actor",
        "agt",
        "--org",
        "acme",
        "--workspace",
        "research",
    ])
    .ok();
    assert!(home.run(["keys", "list"]).ok().contains("acme/research"));
    home.run(["keys", "create", "--name", "bot", "--org", "Acme Inc"])
        .exits(2)
        .says("not the name of an organisation");
}
