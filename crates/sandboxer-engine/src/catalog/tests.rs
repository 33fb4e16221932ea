use std::fs;

use super::*;

struct Folders {
    root: tempfile::TempDir,
}

impl Folders {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// A profile with this id, version and further lines.
    fn profile(&self, path: &str, id: &str, version: &str, rest: &str) -> PathBuf {
        self.write(path, &format!("id: {id}\nversion: \"{version}\"\n{rest}"))
    }

    fn sources(&self) -> CatalogSources {
        let at = |name: &str| self.root.path().join(name);
        CatalogSources { user: Some(at("user")), project: Some(at("project")), extra: Vec::new() }
    }

    fn load(&self) -> Catalog {
        Catalog::load(&self.sources())
    }
}

fn built_in() -> Catalog {
    Catalog::load(&CatalogSources::default())
}

#[test]
fn every_built_in_profile_is_embedded_and_sound() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles");
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, built_in::FILES.iter().map(|(name, _)| *name).collect::<Vec<_>>());

    let catalog = built_in();
    assert!(catalog.problems().is_empty(), "{:?}", catalog.problems());
    for (name, text) in built_in::FILES {
        assert!(scan::name(text).is_some(), "{name} is written in a way that the quick look understands");
    }
    for entry in catalog.list() {
        assert!(entry.profile.description.is_some(), "{}", entry.profile.id);
        assert_eq!(entry.origin.to_string(), "built-in");
    }
}

#[test]
fn a_resolved_built_in_profile_is_read_back_as_it_was() {
    for entry in built_in().list() {
        let text = entry.profile.to_yaml().unwrap();
        let again = ProfileFile::parse(&text, "again").and_then(|file| resolve([&file])).unwrap();
        assert_eq!(again, entry.profile, "{text}");
    }
}

#[test]
fn the_promised_profiles() {
    let catalog = built_in();
    let profile = |name: &str| &catalog.get(name).unwrap().profile;
    let canary = profile(sandboxer_core::request::DEFAULT_PROFILE);
    assert_eq!((canary.ttl.default.to_string(), canary.ttl.max.to_string()), ("10m".into(), "1h".into()));
    assert_eq!(canary.extension.as_deref(), Some("ext.native"));
    let agent = profile("profile.agent-dev@1.0.0");
    assert_eq!(agent.ttl.idle_reap.unwrap().to_string(), "30m");
    assert!(agent.network.egress.is_empty());
    let build = profile("profile.build@1");
    assert!(build.ttl.idle_reap.is_none() && build.resources.pids > agent.resources.pids);
    assert_eq!(profile("profile.compose-checkpoint").extension.as_deref(), Some("ext.compose-ssh"));
    assert_eq!(profile("profile.modal-gpu").resources.gpu, Some(1));
}

#[test]
fn later_folders_win_and_say_what_they_replace() {
    let folders = Folders::new();
    let user = folders.profile("user/a.yaml", "profile.agent-dev", "1.0.0", "description: user\n");
    let project = folders.profile("project/b.yml", "profile.agent-dev", "1.0.0", "description: project\n");
    let extra = folders.profile("extra/c.yaml", "profile.agent-dev", "1.2.0", "description: extra\n");
    let mut sources = folders.sources();
    sources.extra.push(folders.root.path().join("extra"));
    let catalog = Catalog::load(&sources);

    let newest = catalog.get("profile.agent-dev").unwrap();
    assert_eq!((newest.profile.version.as_str(), &newest.origin), ("1.2.0", &Origin::File(extra)));
    assert!(newest.shadows.is_empty());
    let pinned = catalog.get("profile.agent-dev@1.0").unwrap();
    assert_eq!(pinned.origin, Origin::File(project));
    assert_eq!(pinned.shadows, [Origin::File(user), Origin::BuiltIn("agent-dev.yaml")]);
    assert!(pinned.text.contains("description: project"));
}

#[test]
fn versions_compare_as_numbers() {
    let folders = Folders::new();
    for version in ["1.9.0", "1.10.0", "0.11.0"] {
        folders.profile(&format!("user/{version}.yaml"), "profile.x", version, "");
    }
    let catalog = folders.load();
    for (name, version) in [
        ("profile.x", "1.10.0"),
        ("profile.x@1", "1.10.0"),
        ("profile.x@1.9", "1.9.0"),
        ("profile.x@0", "0.11.0"),
    ] {
        assert_eq!(catalog.get(name).unwrap().profile.version, version, "{name}");
    }
    let error = catalog.get("profile.x@2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProfileNotFound);
    assert_eq!(error.hint(), Some("its versions are 0.11.0, 1.9.0, 1.10.0"));
    assert_eq!(catalog.get("profile.x@v1").unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn strangers_are_not_found_with_a_suggestion() {
    let catalog = built_in();
    for (name, hint) in [
        ("profile.agnet-dev", "did you mean `profile.agent-dev`?"),
        ("agent-dev", "did you mean `profile.agent-dev`?"),
        ("profile.biuld@1.0.0", "did you mean `profile.build`?"),
        ("kubernetes", "`sandboxer profiles list` shows what there is"),
        ("", "`sandboxer profiles list` shows what there is"),
    ] {
        let error = catalog.get(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ProfileNotFound, "{name}");
        assert_eq!(error.hint(), Some(hint), "{name}");
    }
}

#[test]
fn a_broken_file_is_reported_and_takes_no_other_down() {
    let folders = Folders::new();
    folders.profile("user/good.yaml", "profile.good", "1.0.0", "");
    let bad = folders.profile("user/bad.yaml", "profile.bad", "1.0.0", "resources:\n  memroy_mb: 5\n");
    folders.write("user/no-version.yaml", "id: profile.agent-dev\n");
    folders.write("user/junk.yaml", "]]]");
    folders.write("user/empty.yaml", "");
    fs::write(folders.root.path().join("user/latin.yaml"), b"id: profile.l\n# caf\xe9\n").unwrap();
    folders.write("user/.hidden.yaml", "]]]");
    folders.write("user/readme.md", "]]]");
    fs::create_dir(folders.root.path().join("user/folder.yaml")).unwrap();
    let catalog = folders.load();

    assert!(catalog.get("profile.good").is_ok());
    let error = catalog.get("profile.bad").unwrap_err();
    let place = format!("{}:4:3: unknown key `memroy_mb` in `resources`", bad.display());
    assert_eq!(error.to_string(), place);
    assert_eq!(error.hint(), Some("did you mean `memory_mb`?"));
    let error = catalog.get("profile.agent-dev").unwrap_err();
    assert!(error.to_string().contains("`version` is missing"), "{error}");
    assert!(catalog.get("profile.agent-dev@1.0.0").is_ok(), "named exactly, the built-in one is still there");
    let mut problems: Vec<String> =
        catalog.problems().iter().map(|problem| problem.origin.to_string()).collect();
    problems.sort();
    let names: Vec<&str> = problems.iter().map(|path| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(
        names,
        ["bad.yaml", "empty.yaml", "folder.yaml", "junk.yaml", "latin.yaml", "no-version.yaml"]
    );
    let latin =
        catalog.problems().into_iter().find(|problem| problem.origin.to_string().ends_with("latin.yaml"));
    assert!(latin.unwrap().error.to_string().ends_with("latin.yaml:2:6: not UTF-8 text"));
}

#[test]
fn the_same_version_twice_in_a_folder_is_a_problem() {
    let folders = Folders::new();
    let first = folders.profile("user/a.yaml", "profile.x", "1.0.0", "description: first\n");
    folders.profile("user/b.yaml", "profile.x", "1.0.0", "description: second\n");
    let catalog = folders.load();
    assert_eq!(catalog.get("profile.x").unwrap().origin, Origin::File(first));
    assert!(catalog.problems()[0].error.to_string().contains("is already defined by"));
}

#[test]
fn extends_crosses_folders() {
    let folders = Folders::new();
    folders.profile(
        "user/a.yaml",
        "profile.a",
        "1.0.0",
        "extends: profile.agent-dev\nresources: {pids: 99}\n",
    );
    folders.profile("project/b.yaml", "profile.b", "1.0.0", "extends: profile.a@1\nresources: {cpu: 3}\n");
    let catalog = folders.load();
    let resources = &catalog.get("profile.b").unwrap().profile.resources;
    assert_eq!((resources.cpu, resources.pids, resources.memory_mb), (Some(3.0), Some(99), Some(2048)));
}

#[test]
fn extends_that_leads_nowhere_or_in_a_circle() {
    let folders = Folders::new();
    folders.profile("user/a.yaml", "profile.a", "1.0.0", "extends: profile.b\n");
    folders.profile("user/b.yaml", "profile.b", "1.0.0", "extends: profile.a\n");
    folders.profile("user/c.yaml", "profile.c", "1.0.0", "extends: profile.c\n");
    folders.profile("user/d.yaml", "profile.d", "1.0.0", "description: d\nextends: profile.agent-dve\n");
    folders.profile("user/e.yaml", "profile.e", "1.0.0", "extends: profile.f\n");
    folders.profile("user/f.yaml", "profile.f", "1.0.0", "colour: red\n");
    let catalog = folders.load();
    let message = |name: &str| catalog.get(name).unwrap_err().to_string();
    assert!(message("profile.a").ends_with(
        "b.yaml:3:10: a profile cannot extend itself: profile.a@1.0.0 → profile.b@1.0.0 → profile.a"
    ));
    assert!(message("profile.c").contains("c.yaml:3:10: a profile cannot extend itself"));
    assert!(message("profile.d").ends_with("d.yaml:4:10: there is no profile `profile.agent-dve` to extend"));
    assert_eq!(catalog.get("profile.d").unwrap_err().hint(), Some("did you mean `profile.agent-dev`?"));
    assert!(message("profile.e").contains("f.yaml:3:1: unknown key `colour`"));
}

#[test]
fn a_chain_has_a_longest_length() {
    let folders = Folders::new();
    folders.profile("user/p0.yaml", "profile.p0", "1.0.0", "");
    for n in 1..=MAX_CHAIN {
        let extends = format!("extends: profile.p{}\n", n - 1);
        folders.profile(&format!("user/p{n}.yaml"), &format!("profile.p{n}"), "1.0.0", &extends);
    }
    let catalog = folders.load();
    assert!(catalog.get(&format!("profile.p{}", MAX_CHAIN - 1)).is_ok());
    let error = catalog.get(&format!("profile.p{MAX_CHAIN}")).unwrap_err();
    assert!(error.to_string().contains("longer than 8 profiles"), "{error}");
}

#[test]
fn folders_and_files_have_bounds() {
    let folders = Folders::new();
    for n in 0..folder::MAX_FILES + 3 {
        folders.profile(&format!("user/{n:05}.yaml"), &format!("profile.n{n}"), "1.0.0", "");
    }
    folders.write("project/large.yaml", &"#".repeat(300 * 1024));
    let catalog = folders.load();
    let problems = catalog.problems();
    let messages: Vec<String> = problems.iter().map(|problem| problem.error.to_string()).collect();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[0].ends_with("more than 1000 profile files, 3 were not read"));
    assert!(messages[1].ends_with("large.yaml: the file is larger than 256 KiB"));
}

#[test]
fn a_given_folder_must_exist_and_a_usual_one_need_not() {
    let folders = Folders::new();
    assert!(folders.load().problems().is_empty());
    let mut sources = folders.sources();
    sources.extra.push(folders.root.path().join("nowhere"));
    let catalog = Catalog::load(&sources);
    assert!(catalog.problems()[0].error.to_string().ends_with("nowhere: the folder cannot be read"));
}

#[test]
fn links_lead_to_regular_files_only() {
    let folders = Folders::new();
    let real = folders.profile("elsewhere/real.yaml", "profile.real", "1.0.0", "");
    fs::create_dir_all(folders.root.path().join("user")).unwrap();
    std::os::unix::fs::symlink(real, folders.root.path().join("user/link.yaml")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folders.root.path().join("user/zero.yaml")).unwrap();
    std::os::unix::fs::symlink("gone", folders.root.path().join("user/dangling.yaml")).unwrap();
    let catalog = folders.load();
    assert!(catalog.get("profile.real").is_ok());
    let mut messages: Vec<String> = catalog.problems().iter().map(|p| p.error.to_string()).collect();
    messages.sort();
    assert!(messages[0].ends_with("dangling.yaml: there is no such file"), "{messages:?}");
    assert!(messages[1].ends_with("zero.yaml: not a regular file"), "{messages:?}");
}

#[test]
fn a_hostile_file_name_is_made_inert() {
    let folders = Folders::new();
    folders.write("user/\u{1b}[31m.yaml", "]]]");
    let problem = &folders.load().problems()[0];
    assert!(!problem.error.to_string().contains('\u{1b}') && !problem.origin.to_string().contains('\u{1b}'));
}

#[test]
fn unusual_ways_of_writing_are_left_to_the_parser() {
    let folders = Folders::new();
    folders.write("user/flow.yaml", "{id: profile.flow, version: \"1.0.0\"}\n");
    folders.write("user/quoted.yaml", "\"id\": profile.quoted\nversion: '1.0.0' # first\n");
    folders.write("user/crlf.yaml", "id: profile.crlf\r\nversion: \"1.0.0\"\r\n");
    let catalog = folders.load();
    assert!(catalog.problems().is_empty(), "{:?}", catalog.problems());
    for name in ["profile.flow", "profile.quoted", "profile.crlf"] {
        assert_eq!(catalog.get(name).unwrap().profile.id, name);
    }
}

#[test]
fn one_file_is_validated_against_the_catalog() {
    let folders = Folders::new();
    let good = folders.profile("work/good.yaml", "profile.good", "1.0.0", "extends: profile.build\n");
    let bad = folders.profile("work/bad.yaml", "profile.bad", "1.0.0", "ttl: {default: 5h, max: 1h}\n");
    let catalog = built_in();
    assert_eq!(catalog.validate_file(&good).unwrap().resources.memory_mb, Some(8192));
    let error = catalog.validate_file(&bad).unwrap_err();
    assert!(
        error.to_string().ends_with("bad.yaml:3:16: `ttl.default`: 5h is above `ttl.max`, 1h"),
        "{error}"
    );
    assert_eq!(catalog.validate_file(Path::new("/nowhere.yaml")).unwrap_err().kind(), ErrorKind::NotFound);
}

/// Every example of the page is a profile, and every key of the schema is on it.
#[test]
fn the_documentation_is_true() {
    let page = include_str!("../../../../docs/profiles.md");
    let catalog = built_in();
    let mut examples = 0;
    for block in page.split("```yaml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        let file = ProfileFile::parse(text, "docs/profiles.md").unwrap();
        catalog.resolve(&file).unwrap();
        examples += 1;
    }
    assert!(examples >= 2);
    for (section, keys) in sandboxer_core::profile::known_keys() {
        for key in keys {
            let path = if section.is_empty() { (*key).to_owned() } else { format!("{section}.{key}") };
            assert!(page.contains(&format!("| `{path}` |")), "`{path}` is not in docs/profiles.md");
        }
    }
}
