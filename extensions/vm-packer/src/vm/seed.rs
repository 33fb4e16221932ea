//! The seed drive: a small FAT disk with the label `cidata`.
//!
//! For images with cloud-init it is the seed of its NoCloud source. For those without, the same things are in plain files:
//! `authorized_keys`, `ssh_host_ed25519_key` and `ssh_host_ed25519_key.pub`.

use std::fs::File;
use std::io::{Cursor, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use sandboxer_core::{Error, ErrorKind, Result};

use super::identity::Identity;
use crate::files::failed;

/// Room for a few keys; anything smaller would not be FAT.
const SIZE: usize = 1 << 20;

/// What the guest is told.
pub(crate) struct Seed<'a> {
    pub(crate) tag: &'a str,
    pub(crate) user: &'a str,
    pub(crate) identity: &'a Identity,
}

pub(crate) fn write(path: &Path, seed: &Seed<'_>) -> Result<()> {
    let image = image(&files(seed)).map_err(|source| {
        Error::new(ErrorKind::Internal, "the seed drive cannot be made").with_source(source)
    })?;
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(&image))
        .map_err(|source| failed("written", path, source))
}

fn files(seed: &Seed<'_>) -> Vec<(&'static str, String)> {
    let Seed { tag, user, identity } = seed;
    let Identity { authorized, host_key, host_key_private } = identity;
    // JSON is YAML, and no value can break out of it.
    let user_data = serde_json::json!({
        "disable_root": *user != "root",
        "ssh_pwauth": false,
        "ssh_deletekeys": true,
        "ssh_keys": { "ed25519_private": host_key_private, "ed25519_public": host_key },
        "users": [{
            "name": user,
            "lock_passwd": true,
            "ssh_authorized_keys": [authorized],
        }],
        "growpart": { "mode": "auto", "devices": ["/"] },
    });
    vec![
        ("meta-data", serde_json::json!({ "instance-id": tag, "local-hostname": "sandbox" }).to_string()),
        ("user-data", format!("#cloud-config\n{user_data}\n")),
        ("authorized_keys", format!("{authorized}\n")),
        ("ssh_host_ed25519_key", host_key_private.clone()),
        ("ssh_host_ed25519_key.pub", format!("{host_key}\n")),
    ]
}

fn image(files: &[(&str, String)]) -> std::io::Result<Vec<u8>> {
    let mut disk = Cursor::new(vec![0; SIZE]);
    let options = fatfs::FormatVolumeOptions::new().volume_label(*b"cidata     ");
    fatfs::format_volume(&mut disk, options)?;
    {
        let volume = fatfs::FileSystem::new(&mut disk, fatfs::FsOptions::new())?;
        let root = volume.root_dir();
        for (name, text) in files {
            let mut file = root.create_file(name)?;
            file.write_all(text.as_bytes())?;
            file.flush()?;
        }
    }
    Ok(disk.into_inner())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn the_drive_has_its_label_and_every_file() {
        let identity = Identity {
            authorized: "ssh-ed25519 AAAA".into(),
            host_key: "ssh-ed25519 BBBB".into(),
            host_key_private: "-----BEGIN\nkey\n-----END\n".into(),
        };
        let seed = Seed { tag: "sbx_1", user: "build: \"er", identity: &identity };
        let image = image(&files(&seed)).unwrap();
        let volume = fatfs::FileSystem::new(Cursor::new(image), fatfs::FsOptions::new()).unwrap();
        assert_eq!(volume.volume_label(), "cidata");
        let read = |name: &str| {
            let mut text = String::new();
            volume.root_dir().open_file(name).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(read("authorized_keys"), "ssh-ed25519 AAAA\n");
        assert_eq!(read("ssh_host_ed25519_key"), identity.host_key_private);
        let user_data = read("user-data");
        let parsed: serde_json::Value =
            serde_json::from_str(user_data.strip_prefix("#cloud-config\n").unwrap()).unwrap();
        assert_eq!(parsed["users"][0]["name"], "build: \"er", "a name stays a name");
        assert_eq!(parsed["ssh_keys"]["ed25519_private"], identity.host_key_private);
        let meta: serde_json::Value = serde_json::from_str(&read("meta-data")).unwrap();
        assert_eq!(meta["instance-id"], "sbx_1");
    }
}
