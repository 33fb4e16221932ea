//! What idle sandboxes cost, and whether many of them work at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};

use crate::contender::timed;
use crate::server::{Api, Server};
use crate::stats::{Samples, Summary};

/// Callers that create, ask and destroy at the same time.
const CALLERS: usize = 8;
/// Until what a create leaves behind in the background has settled.
const SETTLE: Duration = Duration::from_secs(2);

/// Figures with this many sandboxes alive.
pub(crate) struct Level {
    pub(crate) sandboxes: usize,
    /// Proportional set size of supervisor and init, per sandbox.
    pub(crate) pss_kib: f64,
    /// The same after each has run a command.
    pub(crate) pss_after_exec_kib: f64,
    /// What the machine has less available, per sandbox: also the kernel's part, and everybody else's noise.
    pub(crate) machine_kib: f64,
    /// One command in each of them, all of which must end with 0.
    pub(crate) exec: Summary,
}

impl Level {
    pub(crate) fn worst_kib(&self) -> f64 {
        self.pss_kib.max(self.pss_after_exec_kib)
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "sandboxes": self.sandboxes,
            "pss_kib_per_sandbox": self.pss_kib,
            "pss_kib_per_sandbox_after_exec": self.pss_after_exec_kib,
            "machine_kib_per_sandbox": self.machine_kib,
            "exec_in_each": self.exec.to_json(),
        })
    }
}

pub(crate) fn run(server: &Server, levels: &[usize]) -> Result<Vec<Level>> {
    let mut ids: Vec<String> = Vec::new();
    let mut out = Vec::new();
    let before = available_kib()?;
    for &level in levels {
        let missing: Vec<()> = vec![(); level.saturating_sub(ids.len())];
        ids.extend(each(server, &missing, |api, ()| api.create())?);
        std::thread::sleep(SETTLE);
        let pids = each(server, &ids, |api, id| api.processes(id))?;
        let machine_kib = (before - available_kib()?) / level as f64;
        let pss_kib = pss_of(&pids)? / level as f64;
        let execs: Samples =
            each(server, &ids, |api, id| Ok(timed(|| api.exec_true(id))?.1))?.into_iter().collect();
        std::thread::sleep(SETTLE);
        let pss_after_exec_kib = pss_of(&pids)? / level as f64;
        out.push(Level { sandboxes: level, pss_kib, pss_after_exec_kib, machine_kib, exec: execs.summary() });
    }
    each(server, &ids, |api, id| api.destroy(id))?;
    Ok(out)
}

/// Does something for every item with a few callers at once; the first failure ends it.
pub(crate) fn each<T: Sync, R: Send>(
    server: &Server,
    items: &[T],
    work: impl Fn(&mut Api, &T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let caller = || {
        let mut api = server.api()?;
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = work(&mut api, item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?;
            done.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        }
        anyhow::Ok(())
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(caller)).collect();
        callers.into_iter().try_for_each(|caller| caller.join().map_err(|_| anyhow!("a caller broke off"))?)
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The sum over all processes: a shared page counts once, split between those who share it.
fn pss_of(pids: &[[i64; 2]]) -> Result<f64> {
    let mut sum = 0.0;
    for pid in pids.iter().flatten() {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        sum += field(&text, "Pss:").with_context(|| format!("no Pss in {path}"))?;
    }
    Ok(sum)
}

fn available_kib() -> Result<f64> {
    field(&std::fs::read_to_string("/proc/meminfo")?, "MemAvailable:").context("no MemAvailable")
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_not_mistaken_for_a_longer_name() {
        let text = "Pss_Anon:  7 kB\nPss:     123 kB\n";
        assert_eq!(field(text, "Pss:"), Some(123.0));
        assert_eq!(field(text, "Swap:"), None);
    }
}
