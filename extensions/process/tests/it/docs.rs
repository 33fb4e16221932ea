//! The page that authors of extensions read says what the code does.

use std::collections::BTreeSet;
use std::path::Path;

use sandboxer_core::capability::Capability;
use sandboxer_ext_process::{Manifest, PROTOCOL, load};

use crate::common;

const PAGE: &str = include_str!("../../../../docs/extension-sdk.md");

/// Every method that the code asks for: the first word in quotes after one of the functions that ask.
fn methods() -> BTreeSet<String> {
    let sources = [
        include_str!("../../src/backend.rs"),
        include_str!("../../src/exec.rs"),
        include_str!("../../src/keeper.rs"),
    ]
    .concat();
    let mut found = BTreeSet::new();
    for word in sources.split('"').skip(1).step_by(2) {
        let asks = [
            "ask(",
            "ask_within(",
            "tell(",
            "stream(",
            "feed(",
            "call(",
            "call_with(",
            "open(&connection, ",
            "open(connection, ",
        ];
        if asks.iter().any(|ask| sources.contains(&format!("{ask}\"{word}\""))) {
            found.insert(word.to_owned());
        }
    }
    found
}

#[test]
fn every_method_is_documented() {
    let methods = methods();
    assert!(
        methods.len() > 25 && methods.contains("provision") && methods.contains("describe"),
        "{methods:?}"
    );
    for method in methods {
        assert!(PAGE.contains(&format!("`{method}`")), "docs/extension-sdk.md does not mention `{method}`");
    }
    assert!(PAGE.contains(&format!("version {PROTOCOL}")));
}

#[test]
fn the_example_is_a_whole_manifest_and_declares_what_its_script_says() {
    let (extensions, problems) = load(&[Path::new(common::EXAMPLE).parent().unwrap().to_owned()]);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(
        extensions.iter().map(|extension| extension.describe().id).collect::<Vec<_>>(),
        ["ext.example"]
    );
    let manifest = Manifest::read(&Path::new(common::EXAMPLE).join("example.yaml")).unwrap();
    let script = std::fs::read_to_string(Path::new(common::EXAMPLE).join("example.py")).unwrap();
    // A flag that is added to the contract is added to the script, which names them all.
    let fields = serde_json::to_value(Capability::default()).unwrap();
    for field in fields.as_object().unwrap().keys() {
        assert!(script.contains(field.as_str()), "example.py does not know `{field}`");
    }
    assert!(manifest.capability.exec && !manifest.capability.pause);
    for file in ["example.yaml", "example.py", "protocol.py"] {
        assert!(PAGE.contains(&format!("examples/registry/extensions/{file}")), "{file}");
    }
}

#[test]
fn later_folders_win_and_what_is_broken_is_left_out() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = std::fs::read_to_string(Path::new(common::EXAMPLE).join("example.yaml")).unwrap();
    for (folder, summary) in [(&first, "the first"), (&second, "the second")] {
        std::fs::create_dir(folder.path().join("extensions")).unwrap();
        let text = text.replace("A folder on this machine", summary);
        std::fs::write(folder.path().join("extensions/example.yaml"), text).unwrap();
    }
    std::fs::write(second.path().join("extensions/broken.yaml"), "kind: extension\n").unwrap();
    std::fs::write(second.path().join("extensions/ours.yaml"), "kind: extension\nbuilt_in: true\n").unwrap();
    let folders = [first.path().to_owned(), second.path().to_owned(), "/there/is/none".into()];
    let (extensions, problems) = load(&folders);
    assert_eq!(extensions.len(), 1);
    assert!(extensions[0].describe().summary.starts_with("the second"));
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().contains("broken.yaml"), "{problems:?}");
}
