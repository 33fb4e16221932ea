//! The client process that holds the connection to a host. It goes to the background by itself, outlives the command
//! that started it, and ends when nobody has used it for a while.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sandboxer_core::host::SshAccess;
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::process::Command;

use super::mux::Client;
use super::{errors, known, paths};

/// How long an unused connection stays.
const PERSIST_SECONDS: u32 = 90;
/// How long a host may take until it answers.
const CONNECT_SECONDS: u32 = 10;
/// Authentication included.
const START_LIMIT: Duration = Duration::from_secs(30);

/// One connection to a host.
pub(crate) struct Master {
    name: String,
    access: SshAccess,
    socket: PathBuf,
    known_hosts: PathBuf,
    lock: PathBuf,
}

impl Master {
    /// Nothing is connected yet. What the connection depends on is in its name, so that a changed key, user or pin is
    /// never served by an old one.
    pub(crate) fn new(name: &str, access: &SshAccess, state_dir: &Path, slot: usize) -> Result<Self> {
        check(access)?;
        let identity = serde_json::to_string(&(access, state_dir)).map_err(|source| {
            Error::new(ErrorKind::Internal, "a host cannot be written down").with_source(source)
        })?;
        let key = &sandboxer_core::hash::sha256_hex(identity.as_bytes())[..16];
        let file = format!("{key}-{slot}.sock");
        let dir = paths::socket_dir(state_dir, &file)?;
        Ok(Self {
            name: name.to_owned(),
            access: access.clone(),
            socket: dir.join(file),
            known_hosts: dir.join(format!("{key}.known")),
            lock: dir.join(format!("{key}-{slot}.lock")),
        })
    }

    /// A line to the connection, which is made if there is none.
    pub(crate) async fn client(&self) -> Result<Client> {
        if let Ok(client) = Client::connect(&self.socket).await {
            return Ok(client);
        }
        let _lock = self.lock().await?;
        // Somebody else may have made it meanwhile.
        if let Ok(client) = Client::connect(&self.socket).await {
            return Ok(client);
        }
        self.start().await?;
        Client::connect(&self.socket).await.map_err(|source| {
            Error::new(ErrorKind::Unreachable, format!("the connection to {} ended at once", self.name))
                .with_source(source)
        })
    }

    pub(crate) async fn close(&self) {
        if let Ok(client) = Client::connect(&self.socket).await {
            client.terminate().await;
        }
        let _ = std::fs::remove_file(&self.socket);
    }

    /// One process at a time makes the connection.
    async fn lock(&self) -> Result<File> {
        let path = self.lock.clone();
        let locked = tokio::task::spawn_blocking(move || {
            let file = File::options().create(true).append(true).open(&path)?;
            file.lock()?;
            Ok::<_, std::io::Error>(file)
        });
        let failed =
            || Error::new(ErrorKind::StoreFailed, format!("{} cannot be locked", self.lock.display()));
        locked
            .await
            .map_err(|source| failed().with_source(source))?
            .map_err(|source| failed().with_source(source))
    }

    async fn start(&self) -> Result<()> {
        let broken = |source: std::io::Error| {
            Error::new(ErrorKind::BackendFailed, "the SSH client cannot be started")
                .with_source(source)
                .with_hint("install OpenSSH's `ssh`")
        };
        std::fs::write(&self.known_hosts, known::file(&self.access)?).map_err(broken)?;
        let _ = std::fs::remove_file(&self.socket);
        // The background process keeps its stderr, so that a pipe would not end.
        let mut words = tempfile::tempfile().map_err(broken)?;
        let mut child = Command::new("ssh")
            .args(self.arguments())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(words.try_clone().map_err(broken)?)
            .kill_on_drop(true)
            .spawn()
            .map_err(broken)?;
        let Ok(status) = tokio::time::timeout(START_LIMIT, child.wait()).await else {
            return Err(errors::classify(&self.name, &self.access, "Connection timed out"));
        };
        if status.map_err(broken)?.success() {
            return Ok(());
        }
        let mut text = Vec::new();
        words.rewind().map_err(broken)?;
        words.take(64 << 10).read_to_end(&mut text).map_err(broken)?;
        Err(errors::classify(&self.name, &self.access, &String::from_utf8_lossy(&text)))
    }

    /// The user's own configuration is not read: what a host is reached by is what was registered, and nothing else.
    fn arguments(&self) -> Vec<String> {
        let mut options: Vec<(&str, String)> = vec![
            ("ControlMaster", "yes".into()),
            ("ControlPersist", PERSIST_SECONDS.to_string()),
            ("BatchMode", "yes".into()),
            ("StrictHostKeyChecking", "yes".into()),
            ("UserKnownHostsFile", quoted(&self.known_hosts)),
            ("GlobalKnownHostsFile", "/dev/null".into()),
            ("HostKeyAlias", known::ALIAS.into()),
            ("UpdateHostKeys", "no".into()),
            ("VerifyHostKeyDNS", "no".into()),
            ("CheckHostIP", "no".into()),
            ("PreferredAuthentications", "publickey".into()),
            ("ForwardAgent", "no".into()),
            ("ForwardX11", "no".into()),
            ("PermitLocalCommand", "no".into()),
            ("ConnectTimeout", CONNECT_SECONDS.to_string()),
            ("ServerAliveInterval", "8".into()),
            ("ServerAliveCountMax", "3".into()),
            ("LogLevel", "ERROR".into()),
        ];
        if self.access.identity_file.is_some() {
            options.push(("IdentitiesOnly", "yes".into()));
        }
        let mut args: Vec<String> = ["-F", "/dev/null", "-N", "-f", "-T"].map(str::to_owned).into();
        args.extend(["-S".into(), self.socket.display().to_string()]);
        args.extend(options.iter().flat_map(|(name, value)| ["-o".to_owned(), format!("{name}={value}")]));
        if let Some(file) = &self.access.identity_file {
            args.extend(["-i".into(), file.clone()]);
        }
        args.extend(["-l".into(), self.access.user.clone(), "-p".into(), self.access.port.to_string()]);
        args.extend(["--".into(), self.access.address.clone()]);
        args
    }
}

/// A path for the client's option parser, which splits at white space.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display())
}

/// What no registered host can have: it would be an option or a token to the client.
fn check(access: &SshAccess) -> Result<()> {
    let plain = |text: &str, extra: &str| {
        !text.is_empty()
            && !text.starts_with('-')
            && text.chars().all(|c| c.is_alphanumeric() || extra.contains(c))
    };
    if !plain(&access.address, ".-_:%") || !plain(&access.user, ".-_@+$\\") {
        let endpoint = sandboxer_core::suggest::printable(&format!("{}@{}", access.user, access.address));
        return Err(Error::new(ErrorKind::InvalidInput, format!("`{endpoint}` is not a user at an address")));
    }
    Ok(())
}
