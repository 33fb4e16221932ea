//! The suite covers the capability, field by field.

use std::collections::BTreeSet;

use sandboxer_core::capability::Capability;

use super::{NOT_TESTED, all};

fn fields() -> BTreeSet<String> {
    let capability = serde_json::to_value(Capability::default()).expect("a capability is plain data");
    capability.as_object().expect("a struct").keys().cloned().collect()
}

fn tested() -> BTreeSet<String> {
    all()
        .iter()
        .flat_map(|case| case.needs.iter().chain(case.about))
        .map(|field| (*field).to_owned())
        .collect()
}

#[test]
fn every_field_has_a_case_or_a_reason() {
    let reasons: BTreeSet<String> = NOT_TESTED.iter().map(|(field, _)| (*field).to_owned()).collect();
    let covered: BTreeSet<String> = tested().union(&reasons).cloned().collect();
    assert_eq!(
        fields().difference(&covered).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "fields without a case"
    );
    assert_eq!(covered.difference(&fields()).collect::<Vec<_>>(), Vec::<&String>::new(), "no such fields");
    assert_eq!(tested().intersection(&reasons).collect::<Vec<_>>(), Vec::<&String>::new(), "both at once");
}

#[test]
fn names_are_unique() {
    let cases = all();
    let names: BTreeSet<_> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len());
    assert!(NOT_TESTED.iter().all(|(_, reason)| !reason.is_empty()));
}

#[test]
fn the_safe_part_harms_nothing() {
    for case in all().iter().filter(|case| case.safe) {
        let harmful =
            ["crash.", "limits.", "ttl", "exec.timeout", "mounts", "pause", "snapshot", "restore", "fork"];
        assert!(!harmful.iter().any(|start| case.name.starts_with(start)), "{} is marked as safe", case.name);
    }
}
