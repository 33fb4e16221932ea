use super::*;

fn two(base: &str, over: &str) -> Result<Profile, Error> {
    let base = ProfileFile::parse(&format!("id: profile.base\nversion: \"1.0.0\"\n{base}"), "base.yaml")?;
    resolve([&base, &file(over)?])
}

#[test]
fn scalars_override_mappings_merge_and_lists_replace() {
    let profile = two(
        "description: of the base\nextension: ext.a\nttl: {default: 1h, max: 2h}\nresources: {cpu: 2, pids: 64}\n\
         variables: {A: base, B: base}\nsecret_refs: [a, b]\nroute: {strategy: lowest-cost, constraints: {region: eu}}\n",
        "extends: profile.base\nttl: {default: 30m}\nresources: {pids: 32}\nvariables: {B: over, C: over}\n\
         secret_refs: [c]\nroute: {constraints: {require_isolation: microvm}}\n",
    )
    .unwrap();
    assert_eq!((profile.id.as_str(), profile.description.as_deref()), ("profile.t", None));
    assert_eq!(profile.extends.as_deref(), Some("profile.base"));
    assert_eq!(profile.extension.as_deref(), Some("ext.a"));
    assert_eq!((profile.ttl.default.to_string(), profile.ttl.max.to_string()), ("30m".into(), "2h".into()));
    assert_eq!((profile.resources.cpu, profile.resources.pids), (Some(2.0), Some(32)));
    assert_eq!(profile.variables.values().collect::<Vec<_>>(), ["base", "over", "over"]);
    assert_eq!(profile.secret_refs, ["c"]);
    assert_eq!(profile.route.strategy, Some(Strategy::LowestCost));
    assert_eq!(profile.route.constraints.region.as_deref(), Some("eu"));
}

#[test]
fn null_takes_a_value_back_and_an_empty_section_changes_nothing() {
    let base = "resources: {cpu: 2, pids: 64}\nvariables: {A: x, B: y}\nsecret_refs: [a]\nttl: {max: 48h, idle_reap: 5m}\n";
    let profile = two(
        base,
        "resources:\n  cpu: null\nvariables: {A: null}\nsecret_refs: null\nttl: {idle_reap: null}\nsetup:\n",
    )
    .unwrap();
    assert_eq!((profile.resources.cpu, profile.resources.pids), (None, Some(64)));
    assert_eq!(profile.variables.keys().collect::<Vec<_>>(), ["B"]);
    assert!(profile.secret_refs.is_empty() && profile.ttl.idle_reap.is_none());
    assert_eq!(two(base, "resources:\nttl:\n").unwrap().resources.cpu, Some(2.0));
}

#[test]
fn a_broken_rule_points_into_the_file_that_wrote_the_value() {
    let error = two("resources:\n  pids: 2\n", "resources: {cpu: 1}\n").unwrap_err();
    assert_eq!(error.to_string(), "base.yaml:4:9: `resources.pids`: 2 is not between 8 and 4194304");
    let error = two("ttl: {max: 1h}\n", "ttl:\n  default: 2h\n").unwrap_err();
    assert_eq!(error.to_string(), "t.yaml:4:12: `ttl.default`: 2h is above `ttl.max`, 1h");
}

#[test]
fn rules_hold_for_the_whole_and_not_for_each_file() {
    assert!(two("ttl: {max: 96h}\n", "ttl: {default: 48h}\n").is_ok());
    assert!(resolve([] as [&ProfileFile; 0]).is_err());
}
