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
fn a_host_that_is_asked_for_keeps_services_elsewhere_out() {
    let home = Home::new();
    let explain = ["route", "explain", "--profile", "profile.burst-sandbox", "--host", "local", "--json"];
    let told = home.run(explain).json();
    let offers = told["route"]["offers"].as_array().unwrap();
    let stub = offers.iter().find(|offer| offer["extension"] == "ext.saas-stub").unwrap();
    assert_eq!(stub["accepted"], false, "{stub}");
    assert!(stub["reason"].as_str().unwrap().contains("host `local` was asked for"), "{stub}");
    // Whoever names the service as well means it.
    let both =
        home.run(["route", "explain", "--extension", "ext.saas-stub", "--host", "local", "--json"]).json();
    assert_eq!(both["extension"], "ext.saas-stub", "{both}");
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

const BURST: [&str; 6] =
    ["create", "--profile", "profile.burst-sandbox", "--ttl", "10m", "--order=ext.saas-stub"];

#[test]
fn a_fallback_is_told_and_kept() {
    let home = Home::new().with("SANDBOXER_STUB", "create=500");
    home.run(["credits", "add", "10"]).ok();
    let made = home.run(BURST).exits(0).says("ext.native was taken after ext.saas-stub: ");
    let id = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let shown = home.run(["get", &id]).ok();
    assert!(shown.contains("tried:") && shown.contains("ext.saas-stub: "), "{shown}");
    let events = home.run(["events", &id]).ok();
    assert!(events.contains("from=ext.saas-stub") && events.contains("why="), "{events}");
    home.run(["destroy", &id]).ok();
}

#[test]
fn the_slower_of_two_does_not_hold_up_the_shell() {
    let home = Home::new().with("SANDBOXER_STUB", "latency=20s");
    home.run(["credits", "add", "10"]).ok();
    let told = home
        .run([
            "route",
            "explain",
            "--profile",
            "profile.burst-sandbox",
            "--order",
            "ext.saas-stub",
            "--hedge=50ms",
        ])
        .ok();
    assert!(told.contains("a second one on ext.native if the first is not ready after 50ms"), "{told}");
    let started = std::time::Instant::now();
    let mut command = home.command(BURST);
    let made = command.arg("--hedge=50ms").output().unwrap();
    let took = started.elapsed();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(took < std::time::Duration::from_secs(4), "{took:?}");
    let id = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let home = home.with("SANDBOXER_STUB", "latency=0s");
    let shown = home.run(["get", &id]).ok();
    assert!(shown.contains("ext.native was kept instead of ext.saas-stub"), "{shown}");
    assert!(!shown.contains("still to be removed"), "the next look cleans up: {shown}");
    home.run(["destroy", &id]).ok();
}

#[test]
fn what_the_configuration_cannot_mean_is_refused() {
    let home = Home::new();
    let config = |text: &str| home.file(".config/sandboxer/config.toml", text);
    config("[route]\nonly = ['native']\n");
    home.run(["list"]).exits(2).says("route.only[0]").says("ext.native");
    config("[route]\nignore = ['ext.ntaive']\n");
    let told = home.run(["doctor"]);
    let shown = String::from_utf8(told.stdout).unwrap();
    assert!(shown.contains("route.ignore") && shown.contains("did you mean `ext.native`?"), "{shown}");
    config("");
    home.run(["route", "explain", "--ignore", "ext.ntaive"]).exits(2).says("did you mean `ext.native`?");
}

#[test]
fn what_is_known_is_shown_when_the_provider_cannot_be_asked() {
    let home = Home::new();
    home.run(["credits", "add", "10"]).ok();
    let id = home.run(["create", "--profile", "profile.saas-stub", "--ttl", "10m"]).ok().trim().to_owned();
    let home = home.with("SANDBOXER_STUB", "status=500");
    let shown = home.run(["get", &id, "--json"]).exits(0).says("could not be asked").json();
    assert_eq!((&shown["sandbox_id"], &shown["state"]), (&id.as_str().into(), &"ready".into()));
    home.with("SANDBOXER_STUB", "status=ok").run(["destroy", &id]).ok();
}

/// The whole promise of the burst profile on a real machine: here first, elsewhere when full, back when there is room.
#[test]
fn a_full_machine_bursts_and_a_hedge_keeps_one_of_two() {
    let home = Home::new();
    home.file(".config/sandboxer/config.toml", "[extensions.\"ext.native\"]\nmax_sandboxes = 1\n");
    let run = |args: &[&str]| {
        let output = home.command([args[0]]).args(&args[1..]).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let place = |id: &str| {
        let sandbox: serde_json::Value = serde_json::from_str(&run(&["get", id, "--json"])).unwrap();
        assert_eq!(sandbox["state"], "ready", "{sandbox}");
        sandbox["extension"].as_str().unwrap().to_owned()
    };
    let create = |args: &[&str]| {
        let all = [&["create", "--profile", "profile.burst-sandbox", "--ttl", "5m"], args].concat();
        run(&all).trim().to_owned()
    };
    run(&["credits", "add", "10"]);
    let first = create(&[]);
    let second = create(&[]);
    assert_eq!((place(&first).as_str(), place(&second).as_str()), ("ext.native", "ext.saas-stub"));
    run(&["exec", &second, "--", "true"]);
    run(&["destroy", &first, &second]);

    // Both run for a moment on the same machine under the same tag; the end of one is not the end of the other.
    let slow = ["--order", "ext.saas-stub", "--hedge=100ms", "--input", "stub=ready_latency=30s"];
    let hedged = create(&slow);
    assert_eq!(place(&hedged), "ext.native");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    loop {
        let sandbox: serde_json::Value = serde_json::from_str(&run(&["get", &hedged, "--json"])).unwrap();
        if sandbox["route"]["hedge"].is_null() {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the slower one is still named: {sandbox}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    run(&["exec", &hedged, "--", "true"]);
    run(&["destroy", &hedged]);
    run(&["credits", "audit"]);
    assert!(run(&["inspect", "stale", "--json"]).contains("\"remains\": []"));
}
