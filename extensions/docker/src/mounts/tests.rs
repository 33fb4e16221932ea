#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn mount(source: &str, target: &str, access: MountAccess) -> Mount {
    Mount { source: source.into(), target: target.into(), access }
}

fn refusal(source: &str, target: &str, access: MountAccess) -> Option<String> {
    let blocklist = Blocklist::of_host(&[Path::new("/srv/engine.sock")]);
    match validate(&[mount(source, target, access)], &blocklist) {
        Ok(_) => None,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::MountRefused);
            Some(error.to_string())
        }
    }
}

#[test]
fn blocked_sources_are_refused_as_written_and_as_resolved() {
    for source in
        ["/", "/etc", "/etc/ssl", "/proc", "/root", "/var/run", "/run/docker.sock", "relative", "/root/.ssh"]
    {
        assert!(refusal(source, "/mnt/x", MountAccess::Ro).is_some(), "{source}");
    }
    assert!(refusal("/tmp/../etc", "/mnt/x", MountAccess::Ro).is_some());
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    let why = refusal(link.to_str().unwrap(), "/mnt/x", MountAccess::Ro).unwrap();
    assert!(why.contains("leads to `/etc`"), "{why}");
    let below = link.join("not-there-yet");
    assert!(refusal(below.to_str().unwrap(), "/mnt/x", MountAccess::Ro).is_some());
    let socket = folder.path().join("docker.sock");
    std::fs::write(&socket, "").unwrap();
    assert!(refusal(socket.to_str().unwrap(), "/mnt/x", MountAccess::Ro).is_some());
    assert!(refusal(folder.path().join("missing").to_str().unwrap(), "/mnt/x", MountAccess::Ro).is_some());
}

#[test]
fn the_system_may_only_be_read() {
    assert!(refusal("/usr", "/mnt/x", MountAccess::Ro).is_none());
    assert!(refusal("/usr/lib", "/mnt/x", MountAccess::Rw).is_some());
}

#[test]
fn targets_stay_out_of_what_the_sandbox_needs() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().to_str().unwrap();
    for target in
        ["/", "/etc/x", "/run/sandboxer", "/sbin", "/workspace", "/tmp", "relative", "/mnt/../etc", "/mnt/"]
    {
        assert!(refusal(source, target, MountAccess::Ro).is_some(), "{target}");
    }
    for target in ["/mnt/data", "/workspace/data", "/home/x"] {
        assert!(refusal(source, target, MountAccess::Ro).is_none(), "{target}");
    }
    let twice = [mount(source, "/mnt/x", MountAccess::Ro), mount(source, "/mnt/x", MountAccess::Ro)];
    assert!(validate(&twice, &Blocklist::of_host(&[])).is_err());
}
