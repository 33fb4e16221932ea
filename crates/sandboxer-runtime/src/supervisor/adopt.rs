//! A warm sandbox becomes somebody's: it gets its id, its deadlines and its variables. Nothing of its isolation changes.

use super::serve::Supervisor;
use crate::error::{AtStep as _, ErrorKind, Result, RuntimeError};
use crate::fault;
use crate::spec::SandboxSpec;
use rustix::fs::{CWD, RenameFlags, renameat_with};

impl Supervisor {
    /// The rename is the moment: before it the sandbox is nobody's and ends with its launcher's connection, after it
    /// it is found by its id and lives until its deadline.
    pub(super) fn adopt(&mut self, spec: SandboxSpec) -> Result<()> {
        spec.validate()?;
        let current = &self.sandbox.spec;
        if !current.warm || spec.warm || !current.has_shape_of(&spec) || self.execs.total > 0 {
            return Err(RuntimeError::invalid("the sandbox is not a warm one of this shape"));
        }
        let (from, to) = (self.sandbox.dirs.sandbox(&current.id), self.sandbox.dirs.sandbox(&spec.id));
        fault::point("runtime.adopt.before_rename");
        match renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => {
                let message = format!("there is a sandbox `{}` already", spec.id);
                return Err(RuntimeError::new(ErrorKind::Exists, "adopt", message));
            }
            renamed => renamed.at("adopt", "cannot rename the sandbox's directory")?,
        }
        fault::point("runtime.adopt.after_rename");
        super::name(&spec.id);
        self.execs.moved_to(&to);
        self.set_deadline(spec.deadline_unix_ms);
        self.sandbox.started_unix_ms = crate::spec::unix_ms();
        self.sandbox.spec = spec;
        self.touch();
        Ok(())
    }
}
