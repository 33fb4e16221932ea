//! The surface: help, mistakes on the command line, colour, completions.

use crate::support::Home;

const COMMANDS: [&str; 32] = [
    "create",
    "get",
    "list",
    "destroy",
    "recreate",
    "exec",
    "shell",
    "cp",
    "sync",
    "logs",
    "port",
    "pause",
    "resume",
    "snapshot",
    "restore",
    "fork",
    "snapshots",
    "extend-ttl",
    "expire",
    "profiles",
    "extensions",
    "route",
    "estimate",
    "credits",
    "meters",
    "events",
    "webhooks",
    "doctor",
    "inspect",
    "serve",
    "keys",
    "completions",
];

#[test]
fn the_overview_is_as_reviewed() {
    let help = Home::new().run(["--help"]).ok();
    insta::assert_snapshot!(help);
}

#[test]
fn create_help_is_as_reviewed() {
    insta::assert_snapshot!(Home::new().run(["create", "--help"]).ok());
}

#[test]
fn exec_help_is_as_reviewed() {
    insta::assert_snapshot!(Home::new().run(["exec", "--help"]).ok());
}

#[test]
fn every_command_has_help_with_examples() {
    let home = Home::new();
    let nested = [
        ["profiles", "list"],
        ["profiles", "show"],
        ["profiles", "validate"],
        ["extensions", "list"],
        ["extensions", "show"],
        ["extensions", "check"],
        ["snapshots", "list"],
        ["snapshots", "get"],
        ["snapshots", "delete"],
        ["hosts", "list"],
        ["hosts", "add"],
        ["hosts", "remove"],
        ["hosts", "check"],
        ["inspect", "host"],
        ["inspect", "stale"],
        ["inspect", "sandbox"],
        ["keys", "create"],
        ["keys", "list"],
        ["keys", "revoke"],
        ["route", "explain"],
        ["credits", "show"],
        ["credits", "add"],
        ["credits", "history"],
        ["credits", "export"],
        ["credits", "limit"],
        ["credits", "audit"],
        ["credits", "reconcile"],
        ["meters", "list"],
        ["events", "replay"],
        ["events", "dead"],
        ["webhooks", "list"],
        ["webhooks", "get"],
        ["webhooks", "add"],
        ["webhooks", "remove"],
        ["webhooks", "rotate"],
        ["webhooks", "enable"],
        ["webhooks", "disable"],
        ["webhooks", "test"],
    ];
    let groups = [
        "profiles",
        "extensions",
        "hosts",
        "inspect",
        "keys",
        "snapshots",
        "route",
        "credits",
        "meters",
        "webhooks",
    ];
    for command in COMMANDS.into_iter().filter(|command| !groups.contains(command)) {
        let help = home.run([command, "--help"]).ok();
        assert!(
            help.contains("Examples:\n  sandboxer") || help.contains("Examples:\n  "),
            "{command}: {help}"
        );
        assert!(help.contains("--json"), "{command}");
    }
    for [group, command] in nested {
        let help = home.run([group, command, "--help"]).ok();
        assert!(help.contains("Examples:"), "{group} {command}: {help}");
    }
    for [group, command] in [
        ["budget", "set"],
        ["budget", "list"],
        ["budget", "remove"],
        ["provider-keys", "list"],
        ["provider-keys", "set"],
        ["provider-keys", "remove"],
    ] {
        let help = home.run(["credits", group, command, "--help"]).ok();
        assert!(help.contains("Examples:"), "credits {group} {command}: {help}");
    }
}

#[test]
fn the_overview_lists_every_command_and_no_hidden_one() {
    let help = Home::new().run(["--help"]).ok();
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command} ")), "{command}");
    }
    assert!(!help.contains("__"), "{help}");
}

#[test]
fn slips_are_mended_and_exit_with_2() {
    let home = Home::new();
    home.run(["craete"]).exits(2).says("'create'");
    home.run(["create", "--profil", "x"]).exits(2).says("'--profile'");
    home.run(["create", "--scope", "sesion"]).exits(2).says("'session'");
    home.run(["list", "--state", "reddy"]).exits(2).says("'ready'");
    home.run(["exec", "sbx_x", "--cwdd", "/", "--", "ls"]).exits(2).says("'--cwd'");
    home.run([]).exits(2);
}

#[test]
fn commands_of_later_are_unknown() {
    let home = Home::new();
    for command in ["policy", "mcp"] {
        home.run([command]).exits(2).says("unrecognized subcommand");
    }
}

#[test]
fn impossible_values_are_refused_before_anything_is_done() {
    let home = Home::new();
    for ttl in ["5", "2 hours", "-1h", "1h1h", "9999999999d", ""] {
        home.run(["create", "--ttl", ttl]).exits(2);
    }
    home.run(["create", "--ttl", "5 parsecs"]).exits(2).says("durations are written `90s`");
    home.run(["create", "--label", "novalue"]).exits(2).says("key=value");
    home.run(["create", "--max-cost", "NaN"]).exits(2);
    home.run(["exec", "sbx_x"]).exits(2);
    home.run(["destroy"]).exits(2);
    home.run(["destroy", "--all"]).exits(2).says("--yes");
    home.run(["list", "--limit", "0"]).exits(2);
    home.run(["serve", "--listen", "nowhere"]).exits(2);
    home.run(["-q", "-v", "list"]).exits(2);
    assert!(!home.state().exists(), "nothing was made");
}

#[test]
fn nothing_but_a_terminal_gets_control_codes() {
    let home = Home::new();
    for args in [["--help"], ["list"], ["doctor"], ["nonsense"]] {
        let ran = home.run(args);
        assert!(!ran.stdout.contains(&0x1b) && !ran.stderr.contains('\u{1b}'), "{args:?}");
    }
    let colored = home.run(["--color", "always", "get", "sbx_x"]).exits(3);
    assert!(colored.stderr.contains("\u{1b}["));
}

#[test]
fn completions_for_every_shell() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.run(["completions", shell]).ok();
        assert!(script.contains("extend-ttl") && !script.is_empty(), "{shell}");
    }
    assert_eq!(home.run(["completions", "bash", "--json"]).json()["shell"], "bash");
    assert!(!home.state().exists(), "nothing was made");
}

#[test]
fn the_version_is_told() {
    let told = Home::new().run(["--version"]).ok();
    assert_eq!(told.trim(), format!("sandboxer {}", env!("CARGO_PKG_VERSION")));
}
