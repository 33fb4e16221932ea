//! `registry/` says of every built-in extension what the extension says of itself.
//! `UPDATE_DOCS=1 cargo test -p sandboxer-cli registry` writes it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::Home;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../registry/extensions")
}

/// The entry of one extension.
fn entry(view: &Value) -> String {
    let id = view["id"].as_str().unwrap();
    let name = id.strip_prefix("ext.").unwrap();
    let mut text = format!(
        "# Generated from the extension's own description: `UPDATE_DOCS=1 cargo test -p sandboxer-cli registry`.\n\
         kind: extension\nid: {id}\nbuilt_in: true\nsummary: {}\npricing: {}\ncode: extensions/{name}\ncapability:\n",
        view["summary"],
        view["pricing"].as_str().unwrap()
    );
    for (key, value) in view["capability"].as_object().unwrap() {
        // What it does not do is left out, as in a manifest of one's own.
        match value {
            Value::Bool(false) => {}
            Value::String(word) => text.push_str(&format!("  {key}: {word}\n")),
            other => text.push_str(&format!("  {key}: {other}\n")),
        }
    }
    let configuration = view["configuration"].as_object().unwrap();
    if !configuration.is_empty() {
        text.push_str("configuration:\n");
        for (key, meaning) in configuration {
            text.push_str(&format!("  {key}: {meaning}\n"));
        }
    }
    text
}

#[test]
fn every_extension_has_its_entry() {
    let home = Home::new();
    let listed: Value = serde_json::from_str(&home.run(["extensions", "list", "--json"]).ok()).unwrap();
    let views = listed["items"].as_array().unwrap();
    assert!(views.len() >= 5, "{listed:#}");
    let mut names = BTreeSet::new();
    for view in views {
        let name = format!("{}.yaml", view["id"].as_str().unwrap());
        let path = folder().join(&name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, entry(view)).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(written, entry(view), "run `UPDATE_DOCS=1 cargo test -p sandboxer-cli registry`");
        names.insert(name);
    }
    let there: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(there, names, "an entry without its extension");
}
