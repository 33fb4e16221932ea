//! What a user gets to see for a mistake: file, line, column, what, and what to do.

use insta::assert_snapshot;

use super::*;

fn whole(text: &str) -> String {
    shown(ProfileFile::parse(text, "t.yaml"))
}

fn body(text: &str) -> String {
    shown(file(text))
}

#[test]
fn unknown_keys() {
    assert_snapshot!(body("resources:\n  cpu: 1\n  memroy_mb: 5\n"), @r"
        t.yaml:5:3: unknown key `memroy_mb` in `resources`
        hint: did you mean `memory_mb`?
        ");
    assert_snapshot!(body("extnds: profile.base\n"), @r"
        t.yaml:3:1: unknown key `extnds`
        hint: did you mean `extends`?
        ");
    assert_snapshot!(body("colour: red\n"), @r"
        t.yaml:3:1: unknown key `colour`
        hint: known keys here are `id`, `version`, `description`, `extends`, `extension`, `image`, `persistence`, `isolation`, `network`, `workspace`, `scope_default`, `ttl`, `resources`, `variables`, `secrets`, `secret_refs`, `mounts`, `setup`, `requires`, `route`, `placement`, `docker`, `compose`, `packer`, `dangerously_allow`, `reachability`, `metadata`
        ");
    assert_snapshot!(body("env: {A: b}\n"), @r"
        t.yaml:3:1: unknown key `env`
        hint: did you mean `variables`?
        ");
    assert_snapshot!(body("idle_reap: 5m\n"), @r"
        t.yaml:3:1: unknown key `idle_reap`
        hint: `idle_reap` belongs in `ttl`
        ");
    assert_snapshot!(body("network:\n  egress:\n    - host: a.b\n    - host: c.d\n      prots: [1]\n"), @r"
        t.yaml:7:7: unknown key `prots` in `network.egress[1]`
        hint: did you mean `ports`?
        ");
    assert_snapshot!(body("network: {default: deny, egres: []}\n"), @r"
        t.yaml:3:26: unknown key `egres` in `network`
        hint: did you mean `egress`?
        ");
    assert_snapshot!(body("secrets:\n  - name: x\n    ref: y\n    inject: {envv: Z}\n"), @r"
        t.yaml:6:14: unknown key `envv` in `secrets[0].inject`
        hint: did you mean `env`?
        ");
    assert_snapshot!(body("route:\n  constraints:\n    zone: eu\n"), @r"
        t.yaml:5:5: unknown key `zone` in `route.constraints`
        hint: known keys here are `max_cost_per_hour`, `max_cost_total`, `require_isolation`, `region`, `capabilities`, `max_latency`, `residency`
        ");
}

#[test]
fn wrong_types() {
    assert_snapshot!(body("resources:\n  memory_mb: lots\n"), @"t.yaml:4:14: `resources.memory_mb`: expected a whole number, found text `lots`");
    assert_snapshot!(body("resources:\n  memory_mb: \"512\"\n"), @r"
        t.yaml:4:14: `resources.memory_mb`: expected a whole number, found text `512`
        hint: leave the quotes out: `512`
        ");
    assert_snapshot!(body("resources:\n  memory_mb: -1\n"), @"t.yaml:4:14: `resources.memory_mb`: `-1` is not a whole number that fits here");
    assert_snapshot!(body("resources:\n  memory_mb: 1.5\n"), @"t.yaml:4:14: `resources.memory_mb`: `1.5` is not a whole number that fits here");
    assert_snapshot!(body("resources:\n  cpu: .nan\n"), @"t.yaml:4:8: `resources.cpu`: expected a number, found text `.nan`");
    assert_snapshot!(body("resources:\n  cpu: .inf\n"), @"t.yaml:4:8: `resources.cpu`: expected a number, found text `.inf`");
    assert_snapshot!(body("resources: [1]\n"), @r"
        t.yaml:3:12: `resources`: expected a mapping, found a list
        hint: its keys are `cpu`, `memory_mb`, `disk_mb`, `pids`, `gpu`
        ");
    assert_snapshot!(body("mounts: {source: /a}\n"), @"t.yaml:3:9: `mounts`: expected a list, found a mapping");
    assert_snapshot!(body("setup:\n  commands:\n    - echo ok\n    - {run: x}\n"), @"t.yaml:6:7: `setup.commands[1]`: expected text, found a mapping");
    assert_snapshot!(body("description: 5\n"), @r#"
        t.yaml:3:14: `description`: expected text, found a number `5`
        hint: put it in quotes: `"5"`
        "#);
    assert_snapshot!(body("requires:\n  gpu: yes\n"), @"t.yaml:4:8: `requires.gpu`: expected `true` or `false`, found text `yes`");
    assert_snapshot!(body("network:\n  egress:\n    - host: a.b\n      ports: [443, 70000]\n"), @"t.yaml:6:20: `network.egress[0].ports[1]`: `70000` is not a whole number that fits here");
    assert_snapshot!(body("variables:\n  A: [1]\n"), @"t.yaml:4:6: `variables.A`: expected text, found a list");
    assert_snapshot!(body("mounts:\n  - source: /a\n"), @"t.yaml:4:5: the key `target` is missing in `mounts[0]`");
}

#[test]
fn wrong_values() {
    assert_snapshot!(body("ttl:\n  default: 5x\n"), @r"
        t.yaml:4:12: `ttl.default`: `5x` is not a duration: the unit is unknown
        hint: durations are written `90s`, `30m`, `2h`, `1d` or combined as `1h30m`
        ");
    assert_snapshot!(body("ttl: { max: 10 }\n"), @r"
        t.yaml:3:13: `ttl.max`: `10` is not a duration: the unit is missing
        hint: durations are written `90s`, `30m`, `2h`, `1d` or combined as `1h30m`
        ");
    assert_snapshot!(body("workspace:\n  mode: mirorr\n"), @r"
        t.yaml:4:9: `mirorr` is not a value of `workspace.mode`
        hint: did you mean `mirror`?
        ");
    assert_snapshot!(body("scope_default: everyone\n"), @r"
        t.yaml:3:16: `everyone` is not a value of `scope_default`
        hint: its values are `session`, `agent`, `shared`
        ");
    assert_snapshot!(body("network:\n  default: allow\n"), @r"
        t.yaml:4:12: `allow` is not a value of `network.default`
        hint: its only value is `deny`
        ");
    assert_snapshot!(body("route:\n  constraints:\n    max_cost_per_hour: 1e3\n"), @r"
        t.yaml:5:24: `route.constraints.max_cost_per_hour`: `1e3` is not an amount: a decimal number was expected
        hint: amounts are decimal dollars such as `12.50` or `0.000014`, with at most nine decimals
        ");
    assert_snapshot!(body("secrets:\n  - name: x\n    ref: y\n    inject: {env: A, host: b}\n"), @"t.yaml:6:13: `inject` is either `{ host, header }` or `{ env }`");
    assert_snapshot!(body("extends: base\n"), @r"
        t.yaml:3:10: `base` is not the name of a profile: it does not begin with `profile.`
        hint: names begin with `profile.`: `profile.base`?
        ");
}

#[test]
fn broken_files() {
    assert_snapshot!(whole(""), @r"
        t.yaml:1:1: the file is empty
        hint: a profile needs at least `id` and `version`
        ");
    assert_snapshot!(whole("# only a comment\n"), @r"
        t.yaml:2:1: the file is empty
        hint: a profile needs at least `id` and `version`
        ");
    assert_snapshot!(whole("just text\n"), @r"
        t.yaml:1:1: the file: expected a mapping, found text
        hint: its keys are `id`, `version`, `description`, `extends`, `extension`, `image`, `persistence`, `isolation`, `network`, `workspace`, `scope_default`, `ttl`, `resources`, `variables`, `secrets`, `secret_refs`, `mounts`, `setup`, `requires`, `route`, `placement`, `docker`, `compose`, `packer`, `dangerously_allow`, `reachability`, `metadata`
        ");
    assert_snapshot!(whole("id: profile.t\n"), @"t.yaml:1:1: the key `version` is missing");
    assert_snapshot!(whole("id: profile.T\nversion: \"1.0.0\"\n"), @r"
        t.yaml:1:5: `profile.T` is not an id: the name does not begin with a lower-case letter or a digit
        hint: an id is `profile.` and a name of lower-case letters, digits, `-` and `.`, such as `profile.agent-dev`
        ");
    assert_snapshot!(whole("id: profile.t\nversion: 1.0\n"), @r#"
        t.yaml:2:10: `1.0` is not a version: MAJOR.MINOR.PATCH was expected
        hint: write it as `version: "1.0.0"`
        "#);
    assert_snapshot!(whole("id: profile.t\nversion: \"1.0\"\n"), @r#"
        t.yaml:2:10: `1.0` is not a version: MAJOR.MINOR.PATCH was expected
        hint: write it as `version: "1.0.0"`
        "#);
    assert_snapshot!(body("ttl: {}\nttl: {}\n"), @"t.yaml:4:1: duplicate key `ttl`");
    assert_snapshot!(body("\"ttl\": {}\nttl: {}\n"), @"t.yaml:4:1: duplicate key `ttl`");
    assert_snapshot!(body("variables:\n  A: x\n  B: y\n  A: z\n"), @"t.yaml:6:3: duplicate key `A`");
    assert_snapshot!(body("---\nid: profile.u\n"), @"t.yaml:3:1: a file holds one document, this one has more");
    assert_snapshot!(body("ttl:\n  default: [1\n"), @"t.yaml:4:12: not valid YAML: unclosed bracket '['");
    assert_snapshot!(body("ttl:\n\tdefault: 1h\n"), @"t.yaml:4:2: not valid YAML: tabs disallowed within this context (block indentation)");
    assert_snapshot!(body("description: 'open\n"), @"t.yaml:4:1: not valid YAML: invalid indentation in multiline quoted scalar");
    assert_snapshot!(body("description: *nobody\n"), @"t.yaml:3:14: an alias names an anchor that is not defined");
    assert_snapshot!(body("<<: {a: 1}\n"), @"t.yaml:3:1: merge keys (`<<`) are not supported; use `extends`");
    assert_snapshot!(body("description: !include /etc/passwd\n"), @"t.yaml:3:23: the tag `!include` is not supported");
    assert_snapshot!(body("[a, b]: c\n"), @"t.yaml:3:1: not valid here: string scalar was expected");
}

#[test]
fn too_much() {
    assert_snapshot!(body(&format!("description: {}\n", "x".repeat(MAX_FILE_BYTES))), @"t.yaml: the file is larger than 256 KiB");
    assert_snapshot!(body(&format!("variables: {}{}\n", "[".repeat(40), "]".repeat(40))), @"t.yaml:3:27: the nesting is deeper than 16 levels");
    assert_snapshot!(body(&format!("setup:\n  commands: [{}]\n", "a, ".repeat(30_000))), @"t.yaml:4:59987: the file has too many parts");
    let many: String = (0..600).map(|n| format!("  K{n}: v\n")).collect();
    assert_snapshot!(body(&format!("variables:\n{many}")), @"t.yaml:516:3: a mapping has more than 512 keys");
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let list = vec![format!("*a{}", level - 1); 6].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    assert_snapshot!(body(&bomb), @"t.yaml:8:10: the aliases expand to too much");
    assert_snapshot!(body("variables: &v {A: *v}\n"), @"t.yaml:3:19: an anchor contains itself");
}

#[test]
fn what_is_accepted() {
    let profile =
        resolved("variables: {PORT: 8080, ZIP: 00501, ON: true, YES: yes, V: 1.10, INF: .inf}\n").unwrap();
    let expected =
        [("INF", ".inf"), ("ON", "true"), ("PORT", "8080"), ("V", "1.10"), ("YES", "yes"), ("ZIP", "00501")];
    assert_eq!(profile.variables.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
    assert!(resolved("resources:\nttl:\n  idle_reap: null\nmounts: ~\n").is_ok());
    let aliases = resolved("secret_refs: &list [a, b]\nplacement: {prefer: *list}\n").unwrap();
    assert_eq!(aliases.placement.prefer, ["a", "b"]);
    let money = resolved("route: {constraints: {max_cost_per_hour: 0.10}}\n").unwrap();
    assert_eq!(money.route.constraints.max_cost_per_hour.unwrap().to_string(), "0.10 USD");
}
