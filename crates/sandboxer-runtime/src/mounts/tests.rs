use super::*;

fn blocklist() -> Blocklist {
    Blocklist::new([PathBuf::from("/home/ada")], Path::new("/tmp/state"))
}

#[test]
fn the_systems_folders_are_never_writable_and_some_are_never_seen() {
    for source in
        ["/etc", "/etc/ssl", "/var/lib", "/var/spool/cron", "/proc/1", "/root/x", "/run", "/tmp/state", "/"]
    {
        for read_only in [true, false] {
            let refused = validate_source(Path::new(source), read_only, &blocklist()).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Refused, "{source}");
        }
    }
    for source in ["/usr", "/usr/local/bin", "/bin", "/lib", "/opt"] {
        let refused = validate_source(Path::new(source), false, &blocklist()).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Refused, "{source}");
    }
    assert!(validate_source(Path::new("/usr/share"), true, &blocklist()).is_ok());
}

#[test]
fn a_home_is_not_mounted_as_a_whole() {
    for source in ["/home", "/home/ada", "/home/ada/.ssh", "/home/ada/x/../.aws"] {
        assert!(validate_source(Path::new(source), true, &blocklist()).is_err(), "{source}");
    }
    assert!(blocklist().check(Path::new("/home/ada/project"), false).is_ok());
}

#[test]
fn a_link_into_a_blocked_folder_is_seen_through() {
    let link = std::env::temp_dir().join(format!("sandboxer-link-{}", std::process::id()));
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    let refused = validate_source(&link, true, &blocklist()).unwrap_err();
    std::fs::remove_file(&link).unwrap();
    assert!(refused.message.contains("leads to `/etc`"), "{}", refused.message);
}
