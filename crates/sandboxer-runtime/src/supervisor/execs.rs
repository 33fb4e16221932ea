//! The execs of one sandbox: running ones, and a bounded memory of finished ones.

use super::background::Background;
use super::serve::boot_ms;
use crate::error::{ErrorKind, Result, RuntimeError};
use crate::report::{ExecExit, ExecInfo, ExecState};
use crate::spec::{ExecSpec, unix_ms};
use rustix::event::PollFlags;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

const MAX_RUNNING: usize = 512;
const MAX_FINISHED: usize = 256;
/// Of a long command line, this much is remembered.
const MAX_SHOWN_ARGV: usize = 4096;

pub(super) struct Exec {
    pub(super) info: ExecInfo,
    /// The connection that waits for it.
    pub(super) client: Option<u64>,
    pub(super) deadline_ms: Option<u64>,
    pub(super) timed_out: bool,
    /// How often the memory limit had killed before.
    pub(super) oom_before: u64,
    pub(super) background: Option<Background>,
    /// A builtin of a file operation, not shown in lists.
    pub(super) hidden: bool,
}

pub(super) struct Execs {
    all: BTreeMap<u64, Exec>,
    running: usize,
    pub(super) total: u64,
    pub(super) oom_seen: u64,
    logs: PathBuf,
}

impl Execs {
    pub(super) fn new(sandbox: &Path) -> Self {
        Self {
            all: BTreeMap::new(),
            running: 0,
            total: 0,
            oom_seen: 0,
            logs: sandbox.join(crate::dirs::LOGS),
        }
    }

    pub(super) fn moved_to(&mut self, sandbox: &Path) {
        self.logs = sandbox.join(crate::dirs::LOGS);
    }

    pub(super) fn logs(&self) -> &Path {
        &self.logs
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Refuses what would be one too many, or a name that is taken.
    pub(super) fn check(&self, spec: &ExecSpec) -> Result<()> {
        if self.running >= MAX_RUNNING {
            let message = format!("{MAX_RUNNING} execs are running already");
            return Err(
                RuntimeError::new(ErrorKind::Busy, "exec", message).with_hint("wait until some have ended")
            );
        }
        if !spec.id.is_empty() && self.find(&spec.id).is_some() {
            return Err(RuntimeError::new(
                ErrorKind::Exists,
                "exec",
                format!("there is an exec `{}` already", spec.id),
            ));
        }
        Ok(())
    }

    pub(super) fn add(
        &mut self,
        number: u64,
        spec: &ExecSpec,
        client: u64,
        background: Option<Background>,
        hidden: bool,
    ) {
        let mut shown = 0;
        let fits = |arg: &&String| {
            shown += arg.len();
            shown <= MAX_SHOWN_ARGV
        };
        let info = ExecInfo {
            id: if spec.id.is_empty() { format!("exec-{number}") } else { spec.id.clone() },
            argv: spec.argv.iter().take_while(fits).cloned().collect(),
            background: spec.background,
            state: ExecState::Running,
            pid: None,
            started_unix_ms: unix_ms(),
            ended_unix_ms: None,
            exit: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
        };
        let deadline_ms = spec.timeout_ms.map(|timeout| boot_ms().saturating_add(timeout));
        let oom_before = self.oom_seen;
        let exec = Exec {
            info,
            client: Some(client),
            deadline_ms,
            timed_out: false,
            oom_before,
            background,
            hidden,
        };
        self.all.insert(number, exec);
        self.running += 1;
        self.total += u64::from(!hidden);
    }

    pub(super) fn get(&mut self, number: u64) -> Option<&mut Exec> {
        self.all.get_mut(&number)
    }

    pub(super) fn find(&self, id: &str) -> Option<u64> {
        self.all.iter().find(|(_, exec)| exec.info.id == id && !exec.hidden).map(|(number, _)| *number)
    }

    pub(super) fn by_id(&mut self, id: &str) -> Result<(u64, &mut Exec)> {
        let missing = || RuntimeError::new(ErrorKind::NotFound, "exec", format!("there is no exec `{id}`"));
        let number = self.find(id).ok_or_else(missing)?;
        self.all.get_mut(&number).map(|exec| (number, exec)).ok_or_else(missing)
    }

    pub(super) fn infos(&self) -> Vec<ExecInfo> {
        self.all.values().filter(|exec| !exec.hidden).map(Exec::info).collect()
    }

    /// Removes an exec that never started.
    pub(super) fn forget(&mut self, number: u64) -> Option<Exec> {
        let exec = self.all.remove(&number)?;
        if exec.info.state == ExecState::Running {
            self.running -= 1;
        }
        if let Some(background) = &exec.background {
            background.remove_logs();
        }
        Some(exec)
    }

    /// Marks an exec as ended and forgets the oldest one if there are too many.
    pub(super) fn finish(&mut self, number: u64, exit: ExecExit) {
        let Some(exec) = self.all.get_mut(&number) else { return };
        if exec.info.state == ExecState::Exited {
            return;
        }
        exec.info.state = ExecState::Exited;
        exec.info.exit = Some(exit);
        exec.info.ended_unix_ms = Some(unix_ms());
        exec.deadline_ms = None;
        if let Some(background) = &mut exec.background {
            background.finish();
        }
        self.running -= 1;
        if exec.hidden {
            self.all.remove(&number);
        }
        while self.all.len() - self.running > MAX_FINISHED {
            let oldest = self
                .all
                .iter()
                .find(|(_, exec)| exec.info.state == ExecState::Exited)
                .map(|(number, _)| *number);
            match oldest {
                Some(oldest) => drop(self.forget(oldest)),
                None => break,
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.all.values().filter_map(|exec| exec.deadline_ms).min()
    }

    /// Execs whose time is up; each is named once.
    pub(super) fn overdue(&mut self, now: u64) -> Vec<u64> {
        let mut overdue = Vec::new();
        for (number, exec) in &mut self.all {
            if exec.deadline_ms.is_some_and(|deadline| now >= deadline) {
                exec.deadline_ms = None;
                exec.timed_out = true;
                overdue.push(*number);
            }
        }
        overdue
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = (u64, usize, BorrowedFd<'_>, PollFlags)> {
        self.all.iter().flat_map(|(number, exec)| {
            let streams = exec.background.iter().flat_map(Background::descriptors);
            streams.map(move |(stream, fd, flags)| (*number, stream, fd, flags))
        })
    }

    pub(super) fn pump(&mut self, number: u64, stream: usize) {
        if let Some(background) = self.all.get_mut(&number).and_then(|exec| exec.background.as_mut()) {
            background.pump(stream);
        }
    }
}

impl Exec {
    pub(super) fn info(&self) -> ExecInfo {
        let mut info = self.info.clone();
        if let Some(background) = &self.background {
            (info.stdout_bytes, info.stderr_bytes) = background.totals();
        }
        info
    }
}
