//! The rules beyond types, each with its place.

use insta::assert_snapshot;

use super::*;

fn body(text: &str) -> String {
    shown(resolved(text))
}

#[test]
fn lifetimes_and_limits() {
    assert_snapshot!(body("ttl:\n  default: 30h\n"), @r"
        t.yaml:4:12: `ttl.default`: 1d6h is above `ttl.max`, 1d
        hint: lower `ttl.default` or raise `ttl.max`
        ");
    assert_snapshot!(body("ttl: {default: 4h, max: 2h}\n"), @r"
        t.yaml:3:16: `ttl.default`: 4h is above `ttl.max`, 2h
        hint: lower `ttl.default` or raise `ttl.max`
        ");
    assert_eq!(resolved("ttl:\n  max: 2h\n").unwrap().ttl.default.to_string(), "2h");
    assert_snapshot!(body("ttl: {default: 0s}\n"), @"t.yaml:3:16: `ttl.default`: it must be longer than zero");
    assert_snapshot!(body("ttl: {idle_reap: 0m}\n"), @"t.yaml:3:18: `ttl.idle_reap`: it must be longer than zero");
    assert_snapshot!(body("resources: {cpu: 0}\n"), @"t.yaml:3:18: `resources.cpu`: 0 is not between 0.01 and 1024");
    assert_snapshot!(body("resources: {cpu: 1e9}\n"), @"t.yaml:3:18: `resources.cpu`: 1000000000 is not between 0.01 and 1024");
    assert_snapshot!(body("resources: {memory_mb: 8}\n"), @"t.yaml:3:24: `resources.memory_mb`: 8 is not between 16 and 16777216");
    assert_snapshot!(body("resources: {disk_mb: 0}\n"), @"t.yaml:3:22: `resources.disk_mb`: 0 is not between 1 and 1073741824");
    assert_snapshot!(body("resources: {pids: 2}\n"), @"t.yaml:3:19: `resources.pids`: 2 is not between 8 and 4194304");
    assert_snapshot!(body("resources: {gpu: 4096}\n"), @"t.yaml:3:18: `resources.gpu`: 4096 is not between 0 and 64");
}

#[test]
fn contents() {
    assert_snapshot!(body("variables:\n  OK: 1\n  9LIVES: x\n"), @r"
        t.yaml:5:3: `variables.9LIVES`: it is not a variable name
        hint: letters, digits and `_`, not beginning with a digit
        ");
    assert_snapshot!(body("variables:\n  GITHUB_TOKEN: abc\n"), @r"
        t.yaml:4:3: `variables.GITHUB_TOKEN`: variables are visible inside and in this file; this looks like a secret
        hint: declare it under `secrets` with a `ref` instead
        ");
    assert_snapshot!(body("variables:\n  DB_PASSWORD: abc\n"), @r"
        t.yaml:4:3: `variables.DB_PASSWORD`: variables are visible inside and in this file; this looks like a secret
        hint: declare it under `secrets` with a `ref` instead
        ");
    assert_snapshot!(body("variables:\n  my_api_key: abc\n"), @r"
        t.yaml:4:3: `variables.my_api_key`: variables are visible inside and in this file; this looks like a secret
        hint: declare it under `secrets` with a `ref` instead
        ");
    assert_snapshot!(body("variables: {A: \"x\\0y\"}\n"), @"t.yaml:3:16: `variables.A`: the value is longer than 16384 bytes or contains NUL");
    assert_snapshot!(body("mounts: [{source: /a, target: work}]\n"), @r"
        t.yaml:3:31: `mounts[0].target`: `work` is not an absolute path
        hint: a target is an absolute path such as `/workspace/cache`
        ");
    assert_snapshot!(body("mounts: [{source: /a, target: /a/../b}]\n"), @r"
        t.yaml:3:31: `mounts[0].target`: `/a/../b` is not normalised: no `.`, `..`, `//` or `/` at the end
        hint: a target is an absolute path such as `/workspace/cache`
        ");
    assert_snapshot!(body("mounts: [{source: /a, target: /proc/sys}]\n"), @r"
        t.yaml:3:31: `mounts[0].target`: `/proc/sys` is in `/proc`, which belongs to the sandbox
        hint: a target is an absolute path such as `/workspace/cache`
        ");
    assert_snapshot!(body("mounts: [{source: /a, target: /}]\n"), @r"
        t.yaml:3:31: `mounts[0].target`: `/` is the root itself
        hint: a target is an absolute path such as `/workspace/cache`
        ");
    assert_snapshot!(body("mounts: [{source: ../../etc, target: /x}]\n"), @"t.yaml:3:19: `mounts[0].source`: it is too long or contains `..`");
    assert_snapshot!(body("mounts:\n  - {source: /a, target: /x}\n  - {source: /b, target: /x}\n"), @"t.yaml:5:26: `mounts[1].target`: `mounts[0]` has the same target");
    assert_snapshot!(body("setup:\n  commands: [\"true\", \"  \"]\n"), @"t.yaml:4:22: `setup.commands[1]`: the command is empty");
    assert_snapshot!(body("image: a b\n"), @r"
        t.yaml:3:8: `image`: `a b` contains a space
        hint: an image is `host`, an OCI reference or the path of a root file system tar
        ");
    assert!(resolved("variables: {TOKENIZER: x, SECRETS_DIR: /s, MONKEY: m}\n").is_ok());
}

#[test]
fn network_and_secrets() {
    assert_snapshot!(body("network: {egress: [{host: \"https://a.b\"}]}\n"), @r"
        t.yaml:3:27: `network.egress[0].host`: `https://a.b` has a scheme, only the host was expected
        hint: a host is a name such as `api.example.com`, a pattern such as `*.example.com`, an address, or a CIDR block
        ");
    assert_snapshot!(body("network: {egress: [{host: \"a.b:443\"}]}\n"), @r"
        t.yaml:3:27: `network.egress[0].host`: `a.b:443` has a port, which belongs in `ports`
        hint: a host is a name such as `api.example.com`, a pattern such as `*.example.com`, an address, or a CIDR block
        ");
    assert_snapshot!(body("network: {egress: [{host: a.b/c}]}\n"), @r"
        t.yaml:3:27: `network.egress[0].host`: `a.b/c` has a path, which belongs in `paths`
        hint: a host is a name such as `api.example.com`, a pattern such as `*.example.com`, an address, or a CIDR block
        ");
    assert_snapshot!(body("network: {egress: [{host: a b}]}\n"), @r"
        t.yaml:3:27: `network.egress[0].host`: `a b` is not a host name or pattern
        hint: a host is a name such as `api.example.com`, a pattern such as `*.example.com`, an address, or a CIDR block
        ");
    assert_snapshot!(body("network: {egress: [{host: \"a\\0b\"}]}\n"), @r"
        t.yaml:3:27: `network.egress[0].host`: `a\0b` is not a host name or pattern
        hint: a host is a name such as `api.example.com`, a pattern such as `*.example.com`, an address, or a CIDR block
        ");
    assert_snapshot!(body("network: {egress: [{host: a.b, ports: [443, 0]}]}\n"), @"t.yaml:3:45: `network.egress[0].ports[1]`: 0 is not a port");
    assert_snapshot!(body("network: {egress: [{host: a.b, methods: [get]}]}\n"), @r"
        t.yaml:3:42: `network.egress[0].methods[0]`: `get` is not a method
        hint: methods are written `GET`, `POST`, or `*` for all
        ");
    assert_snapshot!(body("network: {egress: [{host: a.b, paths: [v1]}]}\n"), @"t.yaml:3:40: `network.egress[0].paths[0]`: `v1` does not begin with `/`");
    assert_snapshot!(body("network: {egress: [{host: a.b, credential: gh}]}\n"), @r"
        t.yaml:3:44: `network.egress[0].credential`: there is no secret `gh`
        hint: a credential is the name of an entry of `secrets`
        ");
    assert_snapshot!(body("secrets: [{name: a, ref: r}]\n"), @r"
        t.yaml:3:11: `secrets[0]`: the secret `a` is never used
        hint: say how with `inject: { host, header }`, `inject: { env }` or `expose: true`
        ");
    assert_snapshot!(body("secrets: [{name: a, ref: r, expose: true}, {name: a, ref: s, expose: true}]\n"), @"t.yaml:3:51: `secrets[1].name`: `a` is there twice");
    assert_snapshot!(body("secrets: [{name: a, ref: r, inject: {env: 1A}}]\n"), @"t.yaml:3:43: `secrets[0].inject.env`: `1A` is not a variable name");
    for host in ["*", "*.a.example", "localhost", "10.0.0.0/8", "::1", "fd00::/8", "a_b.example"] {
        resolved(&format!("network: {{egress: [{{host: \"{host}\"}}]}}\n")).unwrap();
    }
    for host in ["", "*a.b", "a..b", "10.0.0.0/33", "-a.b", "a.*", "é.example"] {
        assert!(resolved(&format!("network: {{egress: [{{host: \"{host}\"}}]}}\n")).is_err(), "{host}");
    }
}

#[test]
fn routes() {
    assert_snapshot!(body("extension: native\n"), @r"
        t.yaml:3:12: `extension`: `native` is not the id of an extension: it does not begin with `ext.`
        hint: extensions are named like `ext.native` or `ext.docker`
        ");
    assert_snapshot!(body("route: {fallback: [ext.a, docker]}\n"), @r"
        t.yaml:3:27: `route.fallback[1]`: `docker` is not the id of an extension: it does not begin with `ext.`
        hint: extensions are named like `ext.native` or `ext.docker`
        ");
    assert_snapshot!(body("extension: ext.a\nroute: {fallback: [ext.a]}\n"), @"t.yaml:4:20: `route.fallback[0]`: `ext.a` is already in the route");
    assert_snapshot!(body("route: {strategy: explicit}\n"), @r"
        t.yaml:3:19: `route.strategy`: `explicit` needs an extension to use
        hint: name one in `extension`, `route.order` or `route.fallback`
        ");
    assert_snapshot!(body("route: {weights: {ext.a: 2, ext.b: x}}\n"), @"t.yaml:3:36: `route.weights.ext.b`: expected a whole number, found text `x`");
    assert_snapshot!(body("route: {strategy: lowest-cost, weights: {ext.a: 2}}\n"), @"t.yaml:3:41: `route.weights`: only the strategy `weighted` uses them");
    assert_snapshot!(body("route: {only: [ext.a], ignore: [ext.a]}\n"), @"t.yaml:3:32: `route.ignore`: `ext.a` is in `only` as well");
    assert_snapshot!(body("route: {hedge: soon}\n"), @"t.yaml:3:16: `route.hedge`: expected `true` or `false`, found text `soon`");
    assert_snapshot!(body("route: {hedge: {after: 0s}}\n"), @"t.yaml:3:24: `route.hedge.after`: it must be longer than zero");
    assert_snapshot!(body("route: {constraints: {capabilities: [snapshot, puase]}}\n"), @r"
        t.yaml:3:48: `route.constraints.capabilities[1]`: `puase` is not a capability
        hint: did you mean `pause`?
        ");
    assert_snapshot!(body("route: {constraints: {residency: [\"e u\"]}}\n"), @r"
        t.yaml:3:35: `route.constraints.residency[0]`: `e u` is not a name
        hint: letters, digits, `.`, `_` and `-`, at most 128
        ");
    let hedged = resolved("route: {hedge: {after: 2s}, weights: {ext.a: 2}, strategy: weighted}\n").unwrap();
    assert_eq!(hedged.route.hedge, Some(Hedge::After(HedgeAfter { after: crate::Dur::from_secs(2) })));
    assert_eq!(resolved("route: {hedge: true}\n").unwrap().route.hedge, Some(Hedge::Flag(true)));
    assert_snapshot!(body("requires: {region: \"e u\"}\n"), @r"
        t.yaml:3:20: `requires.region`: `e u` is not a name
        hint: letters, digits, `.`, `_` and `-`, at most 128
        ");
    assert_snapshot!(body("placement: {prefer: [a, \"\"]}\n"), @r"
        t.yaml:3:25: `placement.prefer[1]`: `` is not a name
        hint: letters, digits, `.`, `_` and `-`, at most 128
        ");
}
