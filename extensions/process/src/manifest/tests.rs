use super::*;

const GOOD: &str = "kind: extension
id: ext.mine
summary: Mine
command: [python3, mine.py]
capability: { isolation: network, exec: true, self_hosted: true }
timeouts: { provision: 5m }
";

fn parse(text: &str) -> Result<Manifest> {
    Manifest::parse(text, Path::new("mine.yaml"))
}

#[test]
fn what_is_named_is_declared_and_the_rest_is_not() {
    let manifest = parse(GOOD).unwrap();
    assert!(manifest.capability.exec && manifest.capability.self_hosted && !manifest.capability.files);
    assert_eq!(manifest.timeouts.provision, Dur::from_secs(300));
    assert_eq!(manifest.timeouts.default, Dur::from_secs(30));
    assert_eq!(manifest.description().pricing, "self-hosted");
}

#[test]
fn what_is_wrong_has_its_place() {
    for (old, new, words) in [
        ("kind: extension", "kind: profile", "mine.yaml:1:7: `profile` is not `extension`"),
        ("id: ext.mine", "id: Mine", "mine.yaml:2:5: `Mine` is not an id"),
        ("exec: true", "exek: true", "mine.yaml:5:35: there is no capability `exek`"),
        ("exec: true", "exec: maybe", "`exec` has another type"),
        ("isolation: network", "isolation: magic", "unknown variant `magic`"),
        ("provision: 5m", "provision: soon", "mine.yaml:6:24: `soon` is not a duration"),
        ("provision: 5m", "provide: 5m", "there is no time-out `provide`"),
        ("summary: Mine", "summary: Mine\nshell: yes", "mine.yaml:4:"),
        ("command: [python3, mine.py]", "command: []", "the command is empty"),
        ("summary: Mine", "summary: Mine\nenv: ['A B']", "is not a variable name"),
        ("summary: Mine", "summary: Mine\nmax_message_bytes: 12", "max_message_bytes is from"),
    ] {
        let error = parse(&GOOD.replace(old, new)).unwrap_err();
        assert!(error.to_string().contains(words), "{new}: {error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    assert!(parse("").is_err());
    assert!(parse(&GOOD.replace("exec: true", "exek: true")).unwrap_err().hint().unwrap().contains("exec"));
}

#[test]
fn a_file_that_anybody_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.yaml");
    std::fs::write(&file, GOOD).unwrap();
    assert!(Manifest::read(&file).is_ok());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(Manifest::read(&file).unwrap_err().to_string().contains("somebody else may write it"));
}
