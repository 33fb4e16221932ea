//! The skeleton: the lowest layer of image `host`. It is built once, from the harmless part of the
//! host's `/etc`, under a key of what it was made from, and published by a rename.

use crate::dirs::RuntimeDirs;
use crate::error::{AtStep as _, Result};
use crate::identity::{DEFAULT_UID, DEFAULT_USER, HOST_ID_BASE};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// Raised when the skeleton's making changes, so that old ones are not used.
const VERSION: u32 = 1;
/// Bounds of the copy: a host with an unusual `/etc` must not make a launch slow or large.
const MAX_FILES: usize = 20_000;
const MAX_FILE_BYTES: u64 = 8 << 20;
const MAX_DEPTH: usize = 12;

/// Below `/etc`, what is copied: what programs need to run and nothing that says something about the
/// host, its users or its network. Only files that anybody may read, whatever the list says.
const ETC_ALLOWED: &[&str] = &[
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "pki/ca-trust/extracted",
    "ca-certificates/extracted",
    "crypto-policies",
    "localtime",
    "timezone",
    "os-release",
    "lsb-release",
    "debian_version",
    "redhat-release",
    "alpine-release",
    "arch-release",
    "fedora-release",
    "system-release",
    "protocols",
    "services",
    "rpc",
    "ethertypes",
    "mime.types",
    "terminfo",
    "inputrc",
    "magic",
    "magic.mime",
    "perl",
    "fonts",
    "locale.alias",
    "locale.conf",
    "default/locale",
    "host.conf",
    "gai.conf",
    "xattr.conf",
    "groff",
    "manpath.config",
    "vim",
    "xml",
    "sgml",
    "nanorc",
    "bash_completion.d",
    "maven/m2.conf",
    "maven/logging",
    "mke2fs.conf",
    "libaudit.conf",
];
/// The same, for directories named after a version.
const ETC_ALLOWED_PREFIXES: &[&str] = &["python2", "python3", "java-"];

const DIRECTORIES: &[(&str, u32)] = &[
    ("etc", 0o755),
    ("proc", 0o755),
    ("sys", 0o755),
    ("dev", 0o755),
    ("dev/pts", 0o755),
    ("dev/shm", 0o755),
    ("tmp", 0o1777),
    ("run", 0o755),
    ("usr", 0o755),
    ("var", 0o755),
    ("var/tmp", 0o1777),
    ("var/lib", 0o755),
    ("var/cache", 0o755),
    ("var/log", 0o755),
    ("opt", 0o755),
    ("mnt", 0o755),
    ("media", 0o755),
    ("srv", 0o755),
    ("root", 0o700),
    ("home", 0o755),
];
/// Directories of the exec user.
const USER_DIRECTORIES: &[(&str, u32)] = &[("home/user", 0o755), ("workspace", 0o755)];

const FILES: &[(&str, &str)] = &[
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
    ),
    ("etc/resolv.conf", ""),
    ("etc/hostname", "sandbox\n"),
    ("etc/machine-id", "00000000000000000000000000000000\n"),
    ("etc/shells", "/bin/sh\n/bin/bash\n"),
    (
        "etc/profile",
        "umask 022\n[ -n \"$PS1\" ] && PS1='\\u@\\h:\\w\\$ '\nfor f in /etc/profile.d/*.sh; do [ -r \"$f\" ] && . \"$f\"; done; unset f\n",
    ),
    ("etc/bash.bashrc", "[ -z \"$PS1\" ] && return\nPS1='\\u@\\h:\\w\\$ '\n"),
    ("etc/fstab", ""),
    ("dev/null", ""),
    ("dev/zero", ""),
    ("dev/full", ""),
    ("dev/random", ""),
    ("dev/urandom", ""),
    ("dev/tty", ""),
];

const LINKS: &[(&str, &str)] = &[
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
    ("dev/ptmx", "pts/ptmx"),
    ("etc/mtab", "/proc/self/mounts"),
    ("var/run", "/run"),
    ("var/lock", "/run/lock"),
];

/// Directories that are links into `/usr` on most hosts, and trees of their own on the others.
const SYSTEM: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// The image `host`, ready to be mounted.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    /// The lowest layer of the sandbox's root.
    pub(crate) skeleton: PathBuf,
    /// Directories of the host's root that are shown as they are, read-only. They belong to the host's
    /// root, who is nobody inside, so a writable layer over them could not be written anyway.
    pub(crate) system: Vec<&'static str>,
}

impl Base {
    /// Whether the skeleton is still there; somebody may have cleaned the state directory.
    pub(crate) fn is_complete(&self) -> bool {
        self.skeleton.is_dir()
    }
}

/// The image for this state directory; builds the skeleton if it is not there.
pub(crate) fn prepare(dirs: &RuntimeDirs, mapped: bool) -> Result<Base> {
    let skeleton = dirs.base().join(key(mapped));
    if !skeleton.is_dir() {
        build_and_publish(dirs, &skeleton, mapped)
            .at("base", format!("cannot build the base layer in {}", dirs.base().display()))?;
    }
    let is_tree = |name: &&str| {
        let path = Path::new("/").join(name);
        path.is_dir() && !path.is_symlink()
    };
    let system = std::iter::once("usr").chain(SYSTEM.iter().copied()).filter(is_tree).collect();
    Ok(Base { skeleton, system })
}

/// Changes whenever something changes that the skeleton is made from.
fn key(mapped: bool) -> String {
    let mut hasher = DefaultHasher::new();
    (VERSION, mapped, HOST_ID_BASE).hash(&mut hasher);
    for name in SYSTEM {
        fs::read_link(Path::new("/").join(name)).ok().hash(&mut hasher);
    }
    for path in sources() {
        if let Ok(meta) = fs::metadata(&path) {
            (&path, meta.len(), meta.mtime(), meta.mtime_nsec(), meta.mode()).hash(&mut hasher);
        }
    }
    format!("host-{:016x}", hasher.finish())
}

fn sources() -> Vec<PathBuf> {
    let etc = Path::new("/etc");
    let mut paths: Vec<PathBuf> = ETC_ALLOWED.iter().map(|name| etc.join(name)).collect();
    let versioned = |name: &str| ETC_ALLOWED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if let Ok(entries) = fs::read_dir(etc) {
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        paths.extend(names.filter(|name| versioned(name)).map(|name| etc.join(name)));
    }
    paths.sort();
    paths
}

fn build_and_publish(dirs: &RuntimeDirs, skeleton: &Path, mapped: bool) -> io::Result<()> {
    fs::create_dir_all(dirs.base())?;
    fs::set_permissions(&dirs.root, fs::Permissions::from_mode(0o700))?;
    let work = dirs.base().join(format!(".building-{}", std::process::id()));
    let _ = fs::remove_dir_all(&work);
    let built = build(&work, mapped).and_then(|()| fs::rename(&work, skeleton));
    if built.is_err() {
        let _ = fs::remove_dir_all(&work);
    }
    match built {
        // Somebody else was faster, with the same result.
        Err(_) if skeleton.is_dir() => Ok(()),
        other => other,
    }
}

fn build(root: &Path, mapped: bool) -> io::Result<()> {
    make_dir(root, 0o755)?;
    for (name, mode) in DIRECTORIES.iter().chain(USER_DIRECTORIES) {
        make_dir(&root.join(name), *mode)?;
    }
    let mut budget = MAX_FILES;
    for source in sources() {
        let target = root.join(source.strip_prefix("/").unwrap_or(&source));
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        copy_public(&source, &target, MAX_DEPTH, &mut budget)?;
    }
    for (name, content) in FILES {
        let path = root.join(name);
        // A copied link must not be written through.
        let _ = fs::remove_file(&path);
        fs::write(&path, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    }
    for (name, target) in LINKS {
        symlink(target, root.join(name))?;
    }
    for name in SYSTEM {
        let host = Path::new("/").join(name);
        match fs::read_link(&host) {
            Ok(target) => symlink(target, root.join(name))?,
            Err(_) if host.is_dir() => make_dir(&root.join(name), 0o755)?,
            Err(_) => {}
        }
    }
    if mapped { give_to_mapped_ids(root) } else { Ok(()) }
}

fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Copies what anybody may read. Links are copied as links: where they lead to is looked up inside.
fn copy_public(source: &Path, target: &Path, depth: usize, budget: &mut usize) -> io::Result<()> {
    let Ok(meta) = fs::symlink_metadata(source) else { return Ok(()) };
    if *budget == 0 || depth == 0 {
        return Ok(());
    }
    *budget -= 1;
    if meta.is_symlink() {
        let link = fs::read_link(source)?;
        return match symlink(link, target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
    }
    if meta.mode() & 0o004 == 0 {
        return Ok(());
    }
    if meta.is_file() && meta.len() <= MAX_FILE_BYTES {
        fs::copy(source, target)?;
        return fs::set_permissions(target, fs::Permissions::from_mode(0o644 | (meta.mode() & 0o111)));
    }
    if meta.is_dir() {
        fs::create_dir_all(target)?;
        for entry in fs::read_dir(source)?.flatten() {
            copy_public(&entry.path(), &target.join(entry.file_name()), depth - 1, budget)?;
        }
    }
    Ok(())
}

/// As root, the skeleton belongs to the ids that are root and `user` inside.
fn give_to_mapped_ids(root: &Path) -> io::Result<()> {
    give_tree(root, HOST_ID_BASE)?;
    for (name, _) in USER_DIRECTORIES {
        give_tree(&root.join(name), HOST_ID_BASE + DEFAULT_UID)?;
    }
    debug_assert!(FILES[0].1.contains(DEFAULT_USER));
    Ok(())
}

fn give_tree(path: &Path, id: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(id), Some(id))?;
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path)? {
            give_tree(&entry?.path(), id)?;
        }
    }
    Ok(())
}
