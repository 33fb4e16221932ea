//! The peers that are one process a run: the syscall floor, bubblewrap, crun and runc.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::bundle::Bundle;
use crate::cleanup;
use crate::contender::{Contender, Record, timed};

/// Where a program is: the distribution's own first, as the peers are meant to be those of one distribution.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        ["/usr/bin", "/usr/sbin", "/bin"].into_iter().map(PathBuf::from).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The first line of `program --version`.
pub(crate) fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

/// A helper process that does one iteration for every line that it is sent, and answers with a line.
struct Helper {
    child: Child,
    ask: Option<ChildStdin>,
    answer: BufReader<ChildStdout>,
}

impl Helper {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let ask = child.stdin.take();
        let answer = BufReader::new(child.stdout.take().context("no stdout")?);
        Ok(Self { child, ask, answer })
    }

    fn turn(&mut self, line: &str) -> Result<String> {
        self.ask.as_mut().context("no stdin")?.write_all(format!("{line}\n").as_bytes())?;
        let mut line = String::new();
        ensure!(self.answer.read_line(&mut line)? > 0, "it ended; see its message above");
        Ok(line.trim().to_owned())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Its input ends, so it removes its files and leaves; the same happens when the bench is gone.
        self.ask = None;
        let _ = self.child.wait();
    }
}

/// The runtime's example `floor`, which measures itself.
pub(crate) struct Floor {
    name: &'static str,
    helper: Helper,
}

impl Floor {
    pub(crate) fn start(program: &Path, mode: &str, name: &'static str, temp: &Path) -> Result<Self> {
        let helper = Helper::start(Command::new(program).arg(mode).env("TMPDIR", temp))?;
        Ok(Self { name, helper })
    }
}

impl Contender for Floor {
    fn name(&self) -> &'static str {
        self.name
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        record(self.name, Duration::from_nanos(self.helper.turn("")?.parse()?));
        Ok(())
    }
}

/// crun where both versions of cgroups are mounted, which it refuses: started by a shell that does not see the
/// second one. The shell is there before the clock starts and forks as we would.
pub(crate) struct ShelteredCrun {
    helper: Helper,
    turns: u64,
}

impl ShelteredCrun {
    const SCRIPT: &str = r#"umount /sys/fs/cgroup/unified || exit 1
        while read -r id; do "$@" "$id"; echo "$?"; done"#;

    pub(crate) fn start(crun: &OneShot) -> Result<Self> {
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "sh", "-c", Self::SCRIPT, "sh"]).arg(&crun.program).args(&crun.args);
        Ok(Self { helper: Helper::start(&mut shell)?, turns: 0 })
    }
}

impl Contender for ShelteredCrun {
    fn name(&self) -> &'static str {
        "crun"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        self.turns += 1;
        let id = format!("{}-crun-s{}", cleanup::name(), self.turns);
        let (status, took) = timed(|| self.helper.turn(&id))?;
        ensure!(status == "0", "crun ended with {status}; see its message above");
        record("crun", took);
        Ok(())
    }
}

/// A program that sets a sandbox up, runs `/bin/true` in it and takes it down again.
pub(crate) struct OneShot {
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
    /// Ends the arguments with a name that was not used before.
    named: bool,
    turns: u64,
}

impl OneShot {
    pub(crate) fn bwrap(program: PathBuf) -> Self {
        let mut args: Vec<String> = ["--unshare-all", "--ro-bind", "/usr", "/usr"].map(str::to_owned).into();
        for link in ["bin", "sbin", "lib", "lib64"] {
            let host = Path::new("/").join(link);
            match std::fs::read_link(&host) {
                Ok(target) => {
                    args.extend(["--symlink".into(), target.display().to_string(), format!("/{link}")])
                }
                Err(_) if host.is_dir() => {
                    args.extend(["--ro-bind".into(), format!("/{link}"), format!("/{link}")])
                }
                Err(_) => {}
            }
        }
        args.extend(["--proc", "/proc", "--dev", "/dev", "/bin/true"].map(str::to_owned));
        Self { name: "bwrap", program, args, named: false, turns: 0 }
    }

    /// `state` keeps the runtime's records out of the host's.
    pub(crate) fn oci(name: &'static str, program: PathBuf, bundle: &Bundle, state: &Path) -> Self {
        let mut args = vec!["--root".into(), state.display().to_string()];
        if name == "crun" {
            args.push("--cgroup-manager=cgroupfs".into());
        }
        args.extend(["run".into(), "--bundle".into(), bundle.path.display().to_string()]);
        Self { name, program, args, named: true, turns: 0 }
    }
}

impl Contender for OneShot {
    fn name(&self) -> &'static str {
        self.name
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        self.turns += 1;
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        if self.named {
            command.arg(format!("{}-{}-{}", cleanup::name(), self.name, self.turns));
        }
        record(self.name, run_to_end(&mut command)?);
        Ok(())
    }
}

/// From the start of a program to its successful end.
pub(crate) fn run_to_end(command: &mut Command) -> Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let (output, took) = timed(|| Ok(command.output()?))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?} ended with {}: {}", command, output.status, said.trim());
    Ok(took)
}
