//! One behavioural suite for every extension; its cases are chosen by the declared capability.
//!
//! A case runs when everything that it needs is declared, and must pass then. What is not declared must answer with a
//! typed `unsupported`, which is a case of its own. Cases share one sandbox where they do not harm it and have their
//! own where they do; whatever a run made is removed at its end, and a leftover is a failure too.
//!
//! Inside, the cases need a POSIX `sh` with what busybox or coreutils have: `cat`, `dd`, `head`, `id`, `ln`, `mkdir`,
//! `printf`, `sleep`, `stty`, `test`, `tr`, `wc`, `setsid`.

mod cases;
mod report;
mod rig;
mod sandbox;

use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::Extension;
use sandboxer_core::host::LOCAL;
use sandboxer_core::spec::SandboxSpec;

pub use cases::{Case, NOT_TESTED, all};
pub use report::{Report, Row, Verdict};

/// Makes an instance that shares nothing with earlier ones but the backend: as good as a new process.
pub type Make = Arc<dyn Fn() -> Arc<dyn Extension> + Send + Sync>;

/// What is tested, and what its sandboxes are like.
#[derive(Clone)]
pub struct Subject {
    pub make: Make,
    /// The host that sandboxes are placed on.
    pub host: String,
    /// What every sandbox of the run is made from. Cases that are about limits or access change their copy.
    pub spec: SandboxSpec,
    /// How long one provision may take.
    pub deadline: Duration,
    /// The life of a sandbox that must end by itself; longer than a provision takes.
    pub short_ttl: Duration,
    /// How long after its deadline a sandbox may still be there.
    pub slack: Duration,
    /// A user inside that commands can run as.
    pub user: String,
    /// A command that echoes what it gets on the port `{port}` of its loopback. The default tries Python, then `nc`.
    pub listener: Vec<String>,
    /// A memory limit under which a small command runs, and one that needs `memory_mb` plus 200 MiB does not.
    pub memory_mb: u64,
    /// In how many places a provision is broken off.
    pub crashes: usize,
    /// How many cases run at a time.
    pub jobs: usize,
    /// Only cases whose name starts with one of these; all when empty.
    pub only: Vec<String>,
}

impl Subject {
    /// A subject on this machine for a backend that provisions within seconds.
    pub fn new(make: impl Fn() -> Arc<dyn Extension> + Send + Sync + 'static, spec: SandboxSpec) -> Self {
        Self {
            make: Arc::new(make),
            host: LOCAL.to_owned(),
            spec,
            deadline: Duration::from_secs(30),
            short_ttl: Duration::from_secs(5),
            slack: Duration::from_secs(10),
            user: "nobody".to_owned(),
            listener: vec!["/bin/sh".to_owned(), "-c".to_owned(), LISTENER.to_owned()],
            memory_mb: 64,
            crashes: 5,
            jobs: 4,
            only: Vec::new(),
        }
    }

    #[must_use]
    pub fn on(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// Keeps the cases whose name starts with one of these.
    #[must_use]
    pub fn only(mut self, names: &[&str]) -> Self {
        self.only = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    fn wants(&self, case: &Case) -> bool {
        self.only.is_empty() || self.only.iter().any(|start| case.name.starts_with(start.as_str()))
    }
}

/// Echoes on the loopback with whatever is there.
const LISTENER: &str = r#"
if command -v python3 >/dev/null; then
exec python3 -c '
import socket, threading
def echo(c):
    while True:
        d = c.recv(65536)
        if not d: break
        c.sendall(d)
    c.close()
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", {port})); s.listen(16)
while True: threading.Thread(target=echo, args=(s.accept()[0],), daemon=True).start()
'
elif command -v busybox >/dev/null; then exec busybox nc -lk -p {port} -s 127.0.0.1 -e cat
else exec nc -lk -p {port} -s 127.0.0.1 -e cat
fi"#;

/// The whole suite. It makes, breaks and ends sandboxes, and uses up their limits: for tests.
pub async fn run(subject: &Subject) -> Report {
    rig::run(subject, all().into_iter().filter(|case| subject.wants(case)).collect()).await
}

/// The part that is safe on a machine that somebody needs: one small sandbox, a few commands and files, its end.
pub async fn run_safe(subject: &Subject) -> Report {
    rig::run(subject, all().into_iter().filter(|case| case.safe && subject.wants(case)).collect()).await
}

#[cfg(test)]
mod tests;
