//! The OpenAPI document and the guide say what is.

use std::collections::BTreeSet;

use sandboxer_core::{ErrorKind, Retry};
use serde_json::Value;

const GUIDE: &str = include_str!("../../../../docs/api.md");

fn document() -> Value {
    serde_json::to_value(sandboxer_server::openapi()).unwrap()
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, item)| {
            item.as_object()
                .unwrap()
                .iter()
                .map(move |(method, operation)| (path.clone(), method.clone(), operation.clone()))
        })
        .collect()
}

#[test]
fn the_whole_document() {
    insta::assert_json_snapshot!("openapi", document());
}

#[test]
fn every_operation_is_described() {
    let document = document();
    let operations = operations(&document);
    assert!(operations.len() > 35);
    let mut ids = BTreeSet::new();
    for (path, method, operation) in &operations {
        let place = format!("{method} {path}");
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{place} has no summary");
        assert!(operation["tags"].is_array(), "{place} has no tag");
        assert!(
            ids.insert(operation["operationId"].as_str().unwrap().to_owned()),
            "{place}: the id is not unique"
        );
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with(['1', '2'])), "{place} never succeeds");
        if path.starts_with("/v1") {
            assert!(responses.contains_key("401") && responses.contains_key("5XX"), "{place} never fails");
        }
        for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            let described = operation["parameters"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["name"] == name && one["in"] == "path"));
            assert!(described, "{place} does not describe `{name}`");
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn visit(value: &Value, document: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    let place = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
                }
                map.values().for_each(|inner| visit(inner, document));
            }
            Value::Array(items) => items.iter().for_each(|inner| visit(inner, document)),
            _ => {}
        }
    }
    let document = document();
    visit(&document, &document);
}

#[test]
fn the_guide_lists_every_error() {
    let mut table = String::from("| code | status | worth a retry |\n|---|---|---|\n");
    for kind in ErrorKind::ALL {
        let retry = if kind.retry() == Retry::Temporary { "yes" } else { "no" };
        table.push_str(&format!("| `{}` | {} | {retry} |\n", kind.code(), kind.http_status()));
    }
    for (status, code, _) in sandboxer_server::EDGE_CODES {
        table.push_str(&format!("| `{code}` | {status} | no |\n"));
    }
    let start = GUIDE.find("| code | status |").expect("the guide has the table");
    let found = &GUIDE[start..];
    let end = found.find("\n\n").map_or(found.len(), |at| at + 1);
    assert_eq!(&found[..end], table, "replace the table in docs/api.md with the one that was expected");
}

#[test]
fn the_guide_names_every_path() {
    for (path, method, _) in operations(&document()) {
        let shown = path.replace("{id}", "$ID").replace("{exec}", "$EXEC");
        assert!(GUIDE.contains(&path) || GUIDE.contains(&shown), "docs/api.md does not name {method} {path}");
    }
}
