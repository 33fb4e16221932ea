use proptest::prelude::*;

use super::{Profile, ProfileFile, file, resolve};
use crate::profile::merge::merge;
use crate::profile::node::{Node, Value};

/// A tree without its places.
fn bare(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(_, text) | Value::Number(text) | Value::Text(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(bare).collect(),
        Value::Map(entries) => {
            let mut entries: Vec<_> =
                entries.iter().map(|entry| (entry.key.clone(), bare(&entry.node))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.into_iter().collect::<serde_json::Map<_, _>>().into()
        }
    }
}

/// One line of YAML for each key, from a few values that all types of merge can be seen on.
fn bodies() -> impl Strategy<Value = String> {
    let lines = vec![
        prop_oneof![Just(""), Just("description: d1\n"), Just("description: d2\n")].boxed(),
        prop_oneof![Just(""), Just("extension: ext.a\n"), Just("extension: ext.b\n"), Just("extension: ~\n")]
            .boxed(),
        prop_oneof![
            Just(""),
            Just("ttl:\n"),
            Just("ttl: {default: 1h}\n"),
            Just("ttl: {max: 3d, default: ~}\n")
        ]
        .boxed(),
        prop_oneof![Just(""), Just("resources: {cpu: 1.5}\n"), Just("resources: {cpu: ~, pids: 64}\n")]
            .boxed(),
        prop_oneof![Just(""), Just("variables: {A: a, B: b}\n"), Just("variables: {A: ~, C: 3}\n")].boxed(),
        prop_oneof![
            Just(""),
            Just("secret_refs: [x]\n"),
            Just("secret_refs: []\n"),
            Just("secret_refs: ~\n")
        ]
        .boxed(),
        prop_oneof![
            Just(""),
            Just("route: {constraints: {region: eu}}\n"),
            Just("route: {strategy: lowest-cost, constraints: ~}\n")
        ]
        .boxed(),
        prop_oneof![Just(""), Just("mounts: [{source: /a, target: /b}]\n")].boxed(),
        prop_oneof![
            Just(""),
            Just("secrets: [{name: k, ref: vault/k, inject: {host: a.b, header: X-Key}}]\n"),
            Just("secrets: [{name: k, ref: vault/k, inject: {env: K}, expose: true}]\n")
        ]
        .boxed(),
        prop_oneof![
            Just(""),
            Just("setup: {instructions: \"a: #b\\n'c\", commands: [\"echo 'x'\", \"true\"]}\n")
        ]
        .boxed(),
        prop_oneof![Just(""), Just("image: debian:12\n"), Just("workspace: {mode: mirror, access: ro}\n")]
            .boxed(),
    ];
    lines.prop_map(|lines| lines.concat())
}

fn files() -> impl Strategy<Value = ProfileFile> {
    bodies().prop_map(|body| file(&body).unwrap())
}

/// Pieces that come close to being YAML.
fn nearly_yaml() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("id: profile.t\n"),
        Just("version: \"1.0.0\"\n"),
        Just("ttl:"),
        Just("\n"),
        Just("  "),
        Just("\t"),
        Just("- "),
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(","),
        Just(": "),
        Just("&a "),
        Just("*a"),
        Just("!!int "),
        Just("|\n"),
        Just(">"),
        Just("\""),
        Just("'"),
        Just("#"),
        Just("---\n"),
        Just("...\n"),
        Just("? "),
        Just("<<"),
        Just("resources"),
        Just("5"),
        Just("é"),
        Just("\u{feff}"),
        Just("%YAML 1.2\n"),
        Just("null"),
        Just("1e999"),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        let _ = ProfileFile::parse(&text, "t").map(|file| resolve([&file]));
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = ProfileFile::parse(&String::from_utf8_lossy(&bytes), "t");
    }

    #[test]
    fn nothing_near_yaml_makes_the_parser_panic(text in nearly_yaml()) {
        let _ = ProfileFile::parse(&text, "t").map(|file| resolve([&file]));
        let _ = file(&text);
    }

    #[test]
    fn merging_is_associative(a in files(), b in files(), c in files()) {
        let (left, right) = (merge(&merge(&a, &b), &c), merge(&a, &merge(&b, &c)));
        prop_assert_eq!(bare(&left.root), bare(&right.root));
    }

    #[test]
    fn merging_with_itself_changes_nothing(a in files()) {
        prop_assert_eq!(bare(&merge(&a, &a).root), bare(&a.root));
    }

    #[test]
    fn an_empty_base_or_extension_changes_nothing_but_its_own_words(a in files()) {
        let empty = file("").unwrap();
        prop_assert_eq!(resolve([&empty, &a]).unwrap(), resolve([&a]).unwrap());
        let mut expected = resolve([&a]).unwrap();
        expected.description = None;
        prop_assert_eq!(resolve([&a, &empty]).unwrap(), expected);
    }

    #[test]
    fn a_resolved_profile_is_read_back_as_it_was(a in files(), b in files()) {
        let profile = resolve([&a, &b]).unwrap();
        let text = profile.to_yaml().unwrap();
        let again = resolve([&ProfileFile::parse(&text, "again").unwrap()]).unwrap();
        prop_assert_eq!(&again, &profile, "{}", text);
        // The parser and serde agree on names and defaults.
        let json = serde_json::to_string(&profile).unwrap();
        prop_assert_eq!(serde_json::from_str::<Profile>(&json).unwrap(), profile);
    }
}
