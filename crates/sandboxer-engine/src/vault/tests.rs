use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

fn vault() -> (tempfile::TempDir, Vault) {
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::new(folder.path().join("secrets"));
    (folder, vault)
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_is_put_is_got_until_it_is_removed() {
    let (folder, vault) = vault();
    assert_eq!(vault.get("a").unwrap(), None);
    vault.put("a", "one").unwrap();
    vault.put("a", "two").unwrap();
    vault.put("b.c-d_E", "three").unwrap();
    assert_eq!(vault.get("a").unwrap().unwrap().expose(), "two");
    assert!(vault.remove("a").unwrap() && !vault.remove("a").unwrap());
    assert_eq!(vault.get("a").unwrap(), None);
    let left: Vec<_> = fs::read_dir(folder.path().join("secrets")).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing unfinished stays: {left:?}");
}

#[test]
fn only_the_owner_reads_it() {
    let (folder, vault) = vault();
    let secrets = folder.path().join("secrets");
    fs::create_dir(&secrets).unwrap();
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o755)).unwrap();
    vault.put("a", "one").unwrap();
    assert_eq!((mode(&secrets), mode(secrets.join("a"))), (0o700, 0o600));
    assert!(!format!("{:?}", vault.get("a").unwrap()).contains("one"));
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let (_folder, vault) = vault();
    let long = "x".repeat(129);
    for name in ["", ".", "..", "../a", "a/b", "/etc/passwd", ".hidden", "a\0b", "a b", "é", &long] {
        assert_eq!(vault.put(name, "x").unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
        assert_eq!(vault.get(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
        assert_eq!(vault.remove(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
    }
}

#[test]
fn links_and_texts_that_are_no_secrets_are_refused() {
    let (folder, vault) = vault();
    assert!(vault.put("a", "").is_err());
    assert!(vault.put("a", &"x".repeat(LONGEST_SECRET + 1)).is_err());
    vault.put("a", "one").unwrap();
    let secrets = folder.path().join("secrets");
    symlink("/etc/hostname", secrets.join("link")).unwrap();
    assert!(vault.get("link").is_err());
    fs::write(secrets.join("big"), vec![b'x'; LONGEST_SECRET + 1]).unwrap();
    assert_eq!(vault.get("big").unwrap_err().kind(), ErrorKind::TooLarge);
}
