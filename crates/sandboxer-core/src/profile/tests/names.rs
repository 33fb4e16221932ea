use super::*;

#[test]
fn references() {
    let version = |text: &str| text.parse::<Version>().unwrap();
    let any = ProfileRef::parse("profile.x").unwrap();
    assert!(any.version.is_none() && any.matches("profile.x", version("0.0.1")));
    for (text, yes, no) in [
        ("profile.x@1.2.0", "1.2.0", "1.2.1"),
        ("profile.x@1.2", "1.2.9", "1.3.0"),
        ("profile.x@1", "1.9.0", "10.0.0"),
    ] {
        let reference = ProfileRef::parse(text).unwrap();
        assert_eq!(reference.to_string(), text);
        assert!(reference.matches("profile.x", version(yes)), "{text}");
        assert!(!reference.matches("profile.x", version(no)), "{text}");
        assert!(!reference.matches("profile.y", version(yes)), "{text}");
    }
}

#[test]
fn versions_are_ordered_as_numbers() {
    let mut versions: Vec<Version> =
        ["1.10.0", "1.9.9", "0.20.0", "2.0.0"].map(|text| text.parse().unwrap()).to_vec();
    versions.sort();
    let sorted: Vec<String> = versions.iter().map(ToString::to_string).collect();
    assert_eq!(sorted, ["0.20.0", "1.9.9", "1.10.0", "2.0.0"]);
}

#[test]
fn names_that_are_refused() {
    for text in [
        "",
        "profile.",
        "agent-dev",
        "profile.A",
        "profile.-a",
        "profile.a b",
        "profile.x@",
        "profile.x@v1",
        "profile.x@1.2.3.4",
        "profile.x@01.2.3",
        "profile.x@1.2.0-rc1",
        "profile.x@+1",
        "profile.ä",
    ] {
        assert!(ProfileRef::parse(text).is_err(), "{text}");
    }
    assert!(ProfileRef::parse(&format!("profile.{}", "a".repeat(64))).is_err());
    assert!(ProfileRef::parse(&format!("profile.{}", "a".repeat(63))).is_ok());
}
