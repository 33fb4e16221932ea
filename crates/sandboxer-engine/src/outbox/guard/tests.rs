use super::*;

fn none() -> PrivateTargets {
    PrivateTargets::default()
}

#[test]
fn private_addresses_are_told_from_public_ones() {
    for address in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.9.9.9",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a00:1",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2002:c0a8:101::",
        "2001::1",
        "2001:db8::1",
        "3fff::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "100::1",
        "5f00::1",
        "4000::1",
    ] {
        assert!(!is_public(address.parse().unwrap()), "{address}");
    }
    for address in [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "198.17.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00::1",
        "64:ff9b::101:101",
        "2002:101:101::1",
        "::ffff:1.1.1.1",
    ] {
        assert!(is_public(address.parse().unwrap()), "{address}");
    }
}

#[test]
fn networks_are_allowed_by_name() {
    let some: PrivateTargets = "10.1.0.0/16, 127.0.0.1,fd00::/8".parse().unwrap();
    for (address, allowed) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("10.2.0.1", false),
        ("127.0.0.1", true),
        ("127.0.0.2", false),
        ("fd12::1", true),
        ("fe80::1", false),
        ("8.8.8.8", true),
    ] {
        assert_eq!(some.allows(address.parse().unwrap()), allowed, "{address}");
    }
    let all: PrivateTargets = "all".parse().unwrap();
    assert!(all.allows("169.254.169.254".parse().unwrap()));
    assert!("0.0.0.0/0".parse::<PrivateTargets>().unwrap().allows("10.0.0.1".parse().unwrap()));
    for text in ["everything", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1"] {
        assert_eq!(text.parse::<PrivateTargets>().unwrap_err().kind(), ErrorKind::InvalidInput, "{text}");
    }
}

#[test]
fn a_url_is_refused_with_the_reason() {
    for (url, why) in [
        ("", "relative"),
        ("example.com/x", "relative"),
        ("ftp://example.com/", "https"),
        ("file:///etc/passwd", "https"),
        ("http://example.com/", "https"),
        ("https://user@example.com/", "credentials"),
        ("https://user:pass@example.com/", "credentials"),
        ("https://example.com/#part", "fragment"),
        ("https://example.com:0/", "no host"),
        ("https://127.0.0.1/", "private"),
        ("https://127.1/", "private"),
        ("https://2130706433/", "private"),
        ("https://0x7f.0.0.1/", "private"),
        ("https://0177.0.0.1/", "private"),
        ("https://[::1]/", "private"),
        ("https://[::ffff:127.0.0.1]/", "private"),
        ("https://[::ffff:a9fe:a9fe]/latest/meta-data", "private"),
        ("https://169.254.169.254/latest", "private"),
    ] {
        let error = none().check_url(url).unwrap_err();
        assert!(error.to_string().contains(why), "{url}: {error}");
    }
    assert!(none().check_url(&format!("https://example.com/{}", "x".repeat(3_000))).is_err());
    assert!(none().check_url("https://example.com:8443/hook?a=b").is_ok());
    let local: PrivateTargets = "127.0.0.0/8".parse().unwrap();
    assert!(local.check_url("http://127.0.0.1:8080/hook").is_ok());
    assert!(local.check_url("http://10.0.0.1/hook").is_err());
}

#[tokio::test]
async fn a_name_that_leads_home_is_refused_at_creation_and_at_connection() {
    let url: Url = "https://localhost/hook".parse().unwrap();
    assert_eq!(none().check_name(&url).await.unwrap_err().kind(), ErrorKind::Refused);
    let refused =
        Guarded { targets: none(), plain: false }.resolve("localhost".parse().unwrap()).await.err().unwrap();
    assert!(refused.to_string().contains("private address"), "{refused}");
    let local: PrivateTargets = "127.0.0.0/8,::1".parse().unwrap();
    local.check_name(&url).await.unwrap();
    for plain in [true, false] {
        let guarded = Guarded { targets: local.clone(), plain };
        assert!(guarded.resolve("localhost".parse().unwrap()).await.is_ok());
    }
}

#[test]
fn plain_http_never_goes_to_a_public_address() {
    for text in ["127.0.0.1", "all", "0.0.0.0/0,::/0", "1.1.1.1"] {
        let targets: PrivateTargets = text.parse().unwrap();
        for url in ["http://1.1.1.1/", "http://[2606:4700::1111]/x", "http://[::ffff:1.1.1.1]/"] {
            let error = targets.check_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused, "{text} {url}");
            assert!(error.to_string().contains("https"), "{error}");
        }
        assert!(targets.check_url("https://1.1.1.1/").is_ok(), "{text}");
        let (public, private) = ("1.1.1.1".parse().unwrap(), "127.0.0.1".parse().unwrap());
        // A name is checked in the same way, on the addresses that it leads to.
        assert!(targets.check(public, true).is_err() && targets.check(public, false).is_ok(), "{text}");
        assert_eq!(targets.check(private, true).is_ok(), text != "1.1.1.1", "{text}");
    }
}
