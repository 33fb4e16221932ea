//! The reference pages say what the code does. `UPDATE_DOCS=1 cargo test -p sandboxer-cli docs` writes the generated ones.

use std::path::PathBuf;

use sandboxer_core::ErrorKind;
use sandboxer_core::env_vars::EnvVars;

use crate::support::Home;

fn page(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn environment() -> String {
    let mut text = String::from(
        "# Environment variables\n\n\
         Generated from `crates/sandboxer-core/src/env_vars.rs`; do not edit. A flag wins over a variable, a variable \
         over `config.toml`. A variable that is set to nothing counts as not set, except `SANDBOXER_SERVER`, which \
         then means the local store.\n\n\
         | variable | meaning |\n|---|---|\n",
    );
    for (name, meaning) in EnvVars::ALL {
        text.push_str(&format!("| `{name}` | {} |\n", meaning.trim()));
    }
    text.push_str(
        "\nAlso respected: `NO_COLOR`, `TERM` and `COLORTERM`, `XDG_CONFIG_HOME`, `XDG_DATA_HOME`, `HOME`.\n",
    );
    text
}

#[test]
fn the_environment_page_is_up_to_date() {
    let path = page("environment.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, environment()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, environment(), "run `UPDATE_DOCS=1 cargo test -p sandboxer-cli docs`");
}

#[test]
fn the_exit_codes_are_documented() {
    let text = std::fs::read_to_string(page("cli.md")).unwrap();
    for kind in ErrorKind::ALL {
        let row = text.lines().find(|line| line.contains(&format!("`{}`", kind.code())));
        let row = row.unwrap_or_else(|| panic!("docs/cli.md has no row with `{}`", kind.code()));
        let code = row.trim_start_matches('|').split('|').next().unwrap().trim();
        assert_eq!(code, kind.exit_code().to_string(), "{row}");
    }
}

#[test]
fn every_command_and_flag_is_documented() {
    let text = std::fs::read_to_string(page("cli.md")).unwrap();
    let home = Home::new();
    let commands = [
        &["create"][..],
        &["get"],
        &["list"],
        &["destroy"],
        &["recreate"],
        &["exec"],
        &["shell"],
        &["cp"],
        &["sync"],
        &["logs"],
        &["port"],
        &["pause"],
        &["resume"],
        &["snapshot"],
        &["restore"],
        &["fork"],
        &["snapshots", "list"],
        &["snapshots", "get"],
        &["snapshots", "delete"],
        &["extend-ttl"],
        &["expire"],
        &["profiles", "list"],
        &["profiles", "show"],
        &["profiles", "validate"],
        &["extensions", "list"],
        &["extensions", "show"],
        &["extensions", "check"],
        &["route", "explain"],
        &["estimate"],
        &["credits", "show"],
        &["credits", "add"],
        &["credits", "adjust"],
        &["credits", "history"],
        &["credits", "export"],
        &["credits", "limit"],
        &["credits", "budget", "set"],
        &["credits", "budget", "list"],
        &["credits", "budget", "remove"],
        &["credits", "audit"],
        &["credits", "reconcile"],
        &["credits", "provider-keys", "list"],
        &["credits", "provider-keys", "set"],
        &["credits", "provider-keys", "remove"],
        &["meters", "list"],
        &["events"],
        &["events", "replay"],
        &["events", "dead"],
        &["webhooks", "list"],
        &["webhooks", "get"],
        &["webhooks", "add"],
        &["webhooks", "remove"],
        &["webhooks", "rotate"],
        &["webhooks", "enable"],
        &["webhooks", "disable"],
        &["webhooks", "test"],
        &["doctor"],
        &["hosts", "list"],
        &["hosts", "add"],
        &["hosts", "remove"],
        &["hosts", "check"],
        &["inspect", "host"],
        &["inspect", "stale"],
        &["reap-stale"],
        &["inspect", "sandbox"],
        &["serve"],
        &["keys", "create"],
        &["keys", "list"],
        &["keys", "revoke"],
        &["completions"],
    ];
    for command in commands {
        let name = command.join(" ");
        assert!(text.contains(&format!("`{name}")), "docs/cli.md does not mention `{name}`");
        let help = home.bare().args(command).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let flags = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
        // `--hedge[=<AFTER>]` is the flag `--hedge`.
        let flags = flags.map(|word| word.split('[').next().unwrap_or(word));
        for flag in flags.map(|flag| flag.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-')) {
            assert!(text.contains(flag), "docs/cli.md does not mention {flag} of `{name}`");
        }
    }
}
