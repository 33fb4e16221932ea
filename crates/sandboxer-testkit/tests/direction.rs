//! The direction of dependencies: `core ← {store, runtime, extensions} ← engine ← {server, cli}`.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]

use std::collections::{BTreeMap, BTreeSet};

/// What each crate may use of the workspace, outside its tests. A crate that is not here has no place in the house yet.
fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("sandboxer-core", &[] as &[_]),
        ("sandboxer-runtime", &[]),
        ("sandboxer-store", &["sandboxer-core"]),
        ("sandboxer-remote", &["sandboxer-core"]),
        ("sandboxer-workspace", &["sandboxer-core"]),
        ("sandboxer-ext-native", &["sandboxer-core", "sandboxer-runtime", "sandboxer-workspace"]),
        ("sandboxer-ext-docker", &["sandboxer-core"]),
        ("sandboxer-ext-ssh", &["sandboxer-core", "sandboxer-remote"]),
        ("sandboxer-ext-compose-ssh", &["sandboxer-core", "sandboxer-remote", "sandboxer-workspace"]),
        ("sandboxer-ext-vm-packer", &["sandboxer-core", "sandboxer-remote"]),
        ("sandboxer-ext-saas-stub", &["sandboxer-core"]),
        ("sandboxer-ext-process", &["sandboxer-core"]),
        ("sandboxer-engine", &["sandboxer-core", "sandboxer-store", "sandboxer-workspace"]),
        ("sandboxer-server", &["sandboxer-core", "sandboxer-store", "sandboxer-engine"]),
        (
            "sandboxer-cli",
            &[
                "sandboxer-core",
                "sandboxer-store",
                "sandboxer-engine",
                "sandboxer-server",
                "sandboxer-runtime",
                "sandboxer-remote",
                "sandboxer-workspace",
                "sandboxer-testkit",
                "sandboxer-ext-native",
                "sandboxer-ext-docker",
                "sandboxer-ext-ssh",
                "sandboxer-ext-compose-ssh",
                "sandboxer-ext-vm-packer",
                "sandboxer-ext-saas-stub",
                "sandboxer-ext-process",
            ],
        ),
        ("sandboxer-testkit", &["sandboxer-core", "sandboxer-store", "sandboxer-engine"]),
        ("sandboxer-bench", &["sandboxer-testkit"]),
    ])
}

/// The edges of the workspace that are not in the table.
fn wrong_edges(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let allowed = allowed();
    let mut wrong = Vec::new();
    for (from, targets) in edges {
        let Some(may_use) = allowed.get(from.as_str()) else {
            wrong.push(format!("{from} has no place in the table"));
            continue;
        };
        wrong.extend(
            targets.iter().filter(|to| !may_use.contains(&to.as_str())).map(|to| format!("{from} -> {to}")),
        );
    }
    wrong
}

fn workspace_edges() -> BTreeMap<String, BTreeSet<String>> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let metadata = cargo_metadata::MetadataCommand::new().manifest_path(manifest).no_deps().exec().unwrap();
    let members: BTreeSet<String> =
        metadata.packages.iter().map(|package| package.name.to_string()).collect();
    metadata
        .packages
        .iter()
        .map(|package| {
            let used = package.dependencies.iter();
            let used =
                used.filter(|dependency| dependency.kind != cargo_metadata::DependencyKind::Development);
            let used = used.map(|dependency| dependency.name.clone()).filter(|name| members.contains(name));
            (package.name.to_string(), used.collect())
        })
        .collect()
}

#[test]
fn no_edge_points_the_wrong_way() {
    assert_eq!(wrong_edges(&workspace_edges()), Vec::<String>::new());
}

#[test]
fn a_reversed_edge_is_found() {
    let mut edges = workspace_edges();
    edges.get_mut("sandboxer-core").unwrap().insert("sandboxer-engine".into());
    edges.get_mut("sandboxer-ext-native").unwrap().insert("sandboxer-store".into());
    edges.insert("sandboxer-stranger".into(), BTreeSet::new());
    assert_eq!(
        wrong_edges(&edges),
        [
            "sandboxer-core -> sandboxer-engine",
            "sandboxer-ext-native -> sandboxer-store",
            "sandboxer-stranger has no place in the table"
        ]
    );
}

#[test]
fn only_the_runtime_may_be_unsafe() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut found = Vec::new();
    let mut folders = vec![
        std::path::PathBuf::from(root).join("crates"),
        std::path::PathBuf::from(root).join("extensions"),
    ];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("sandboxer-runtime") && !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                // Spelled in two parts, so that this file does not find itself.
                if text.contains(concat!("allow(unsafe", "_code)")) {
                    found.push(path);
                }
            }
        }
    }
    assert_eq!(found, Vec::<std::path::PathBuf>::new());
}
