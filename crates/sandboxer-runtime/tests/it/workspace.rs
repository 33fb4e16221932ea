//! A workspace that starts with something, and one that nobody can write.

use sandboxer_runtime::{ControlName, ErrorKind, Outcome};
use std::path::PathBuf;

use crate::common::{Fixture, sh, sh_root};

fn seed(fixture: &Fixture, name: &str, content: &[u8]) -> PathBuf {
    let path = fixture.dir.path().join("seed.tar");
    let mut builder = tar::Builder::new(std::fs::File::create(&path).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    builder.append(&header, content).unwrap();
    builder.finish().unwrap();
    path
}

#[tokio::test]
async fn a_read_only_workspace_is_seeded_and_then_closed_for_everybody() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec("workspace-ro");
    spec.seed = Some(seed(&fixture, "sub/file", b"content"));
    spec.workspace_read_only = true;
    let launched = fixture.runtime.launch(spec).await.unwrap();
    let told = launched.enforced.controls.iter().any(|control| {
        control.control == ControlName::Mounts
            && control.outcome == Outcome::Enforced
            && control.detail.contains("/workspace read-only")
    });
    assert!(told, "{:?}", launched.enforced);
    let script = "touch x; rm -r sub; chmod 777 sub/file; mount -o remount,rw /workspace; umount /workspace; cat sub/file; ls -A";
    assert_eq!(sh(&launched.control, script).await.stdout, "contentsub\n");
    // A sandbox that an ordinary user launched has no root inside.
    if rustix::process::geteuid().is_root() {
        assert_eq!(sh_root(&launched.control, script).await.stdout, "contentsub\n");
    }
    fixture.end(&launched).await;
}

#[tokio::test]
async fn a_seed_that_leads_out_or_is_not_there_ends_the_launch_and_leaves_nothing() {
    let fixture = Fixture::new();
    for path in [seed(&fixture, "../out", b"x"), fixture.dir.path().join("missing.tar")] {
        let mut spec = fixture.spec("workspace-bad");
        let id = spec.id.clone();
        spec.seed = Some(path);
        let error = fixture.runtime.launch(spec).await.expect_err("it cannot start");
        assert!(matches!(error.kind, ErrorKind::UnsafePath | ErrorKind::NotFound | ErrorKind::Io), "{error}");
        fixture.assert_nothing_left(&id);
    }
}
