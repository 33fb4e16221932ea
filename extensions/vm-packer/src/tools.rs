//! The programs that this extension calls, and one way to call the short ones.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sandboxer_core::{Error, ErrorKind, Result};
use tokio::process::Command;

use crate::Settings;

/// No short call takes longer.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// A program, and the Debian package that has it.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    path: Option<PathBuf>,
}

impl Tool {
    fn find(name: &'static str, package: &'static str, given: Option<&PathBuf>) -> Self {
        let path = match given {
            Some(path) => Some(path.clone()).filter(|path| path.is_file()),
            None => which(name),
        };
        Self { name, package, path }
    }

    pub(crate) fn found(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Its path, or what to install.
    pub(crate) fn path(&self) -> Result<&Path> {
        self.found().ok_or_else(|| {
            Error::new(ErrorKind::NoBackend, format!("{} is not on this machine", self.name))
                .with_hint(self.hint())
        })
    }

    pub(crate) fn hint(&self) -> String {
        format!("install the package {} (apt-get install {})", self.package, self.package)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Tools {
    pub(crate) packer: Tool,
    pub(crate) qemu: Tool,
    pub(crate) qemu_img: Tool,
    pub(crate) ssh_keygen: Tool,
    pub(crate) setpriv: Tool,
    pub(crate) setsid: Tool,
}

impl Tools {
    /// Looked up on every use: what was missing may have been installed since.
    pub(crate) fn find(settings: &Settings) -> Self {
        Self {
            packer: Tool::find("packer", "packer", settings.packer.as_ref()),
            qemu: Tool::find("qemu-system-x86_64", "qemu-system-x86", settings.qemu.as_ref()),
            qemu_img: Tool::find("qemu-img", "qemu-utils", None),
            ssh_keygen: Tool::find("ssh-keygen", "openssh-client", None),
            setpriv: Tool::find("setpriv", "util-linux", None),
            setsid: Tool::find("setsid", "util-linux", None),
        }
    }
}

/// The first executable of this name in `PATH`, then where ordinary users do not look.
fn which(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let given = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&given)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| {
            path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
        })
}

/// Runs a program that ends by itself within seconds and gives what it said; its own words are in the error.
pub(crate) async fn call(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).kill_on_drop(true);
    let failed = |what: String| Error::new(ErrorKind::BackendFailed, format!("{name} {what}"));
    let output = match tokio::time::timeout(CALL_LIMIT, command.output()).await {
        Ok(output) => output.map_err(|source| failed("cannot be started".into()).with_source(source))?,
        Err(_) => return Err(failed(format!("did not end within {} s", CALL_LIMIT.as_secs()))),
    };
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let kind = match said.contains("No space left") {
        true => ErrorKind::NoSpace,
        false => ErrorKind::BackendFailed,
    };
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(Error::new(kind, format!("{name} failed: {}", last.trim())))
}

/// The first line of `program --version` or its like.
pub(crate) async fn version(tool: &Tool, argument: &str) -> Option<String> {
    let output = call(Command::new(tool.found()?).arg(argument).env("CHECKPOINT_DISABLE", "1")).await.ok()?;
    let line = String::from_utf8_lossy(&output).lines().next()?.trim().to_owned();
    Some(line).filter(|line| !line.is_empty())
}
