//! Whatever the bench starts is stopped again: at the end, after a failure, and on Ctrl-C.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

type Step = Box<dyn FnOnce() + Send>;

/// The steps that are still to be done, the latest first.
static STEPS: Mutex<Vec<(u64, Step)>> = Mutex::new(Vec::new());
/// Held while the steps are run: whoever comes second waits until everything is stopped.
static RUNNING: Mutex<()> = Mutex::new(());
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn steps() -> MutexGuard<'static, Vec<(u64, Step)>> {
    STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that is stopped when this is dropped, or earlier if the whole bench ends.
pub(crate) struct Guard(u64);

impl Drop for Guard {
    fn drop(&mut self) {
        let step = {
            let mut steps = steps();
            steps.iter().position(|(id, _)| *id == self.0).map(|at| steps.remove(at))
        };
        if let Some((_, step)) = step {
            step();
        }
    }
}

/// Remembers how to undo what was just done.
pub(crate) fn on_end(step: impl FnOnce() + Send + 'static) -> Guard {
    let mut steps = steps();
    let id = steps.last().map_or(0, |(id, _)| id + 1);
    steps.push((id, Box::new(step)));
    Guard(id)
}

/// Undoes everything that is left.
fn run_all() {
    let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        // Taken out first: a step may take long and must not hold the list.
        let Some((_, step)) = steps().pop() else { return };
        step();
    }
}

/// Undoes everything at the usual end. An interruption says the last word: what fails because of it is no failure.
pub(crate) fn finish() {
    run_all();
    while INTERRUPTED.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Ends the bench properly when it is interrupted, and when it breaks.
pub(crate) fn watch() -> Result<()> {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        run_all();
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let number = runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => 2,
                    _ = terminate.recv() => 15,
                    _ = hangup.recv() => 1,
                }
            });
            INTERRUPTED.store(true, Ordering::SeqCst);
            crate::report::note("interrupted: stopping what was started");
            run_all();
            std::process::exit(128 + number);
        })
        .context("cannot watch for signals")?;
    Ok(())
}

/// What everything of this run is called, or begins with.
pub(crate) fn name() -> String {
    format!("sandboxer-bench-{}", std::process::id())
}

/// Container runtimes leave their empty cgroups behind, most of all when something went wrong.
pub(crate) fn remove_cgroups() {
    let children = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink()).collect()
    };
    let root = Path::new("/sys/fs/cgroup");
    for hierarchy in children(root).into_iter().chain([root.to_owned()]) {
        let ours =
            |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name()));
        let mut doomed: Vec<PathBuf> = children(&hierarchy).into_iter().filter(ours).collect();
        let mut at = 0;
        while let Some(folder) = doomed.get(at) {
            let below = children(folder);
            doomed.extend(below);
            at += 1;
        }
        // The deepest first. What is still in use stays.
        for folder in doomed.into_iter().rev() {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// A process of ours that several may look after.
#[derive(Clone)]
pub(crate) struct Managed(Arc<Mutex<Child>>);

impl Managed {
    /// Starts it in a process group of its own: a Ctrl-C reaches the bench alone, which ends things in order.
    pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        Ok(Self(Arc::new(Mutex::new(child))))
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.0.lock().unwrap_or_else(PoisonError::into_inner).try_wait(), Ok(None))
    }

    /// Asks it to end, and insists after a while.
    pub(crate) fn stop(&self, patience: Duration) {
        let pid = self.0.lock().unwrap_or_else(PoisonError::into_inner).id();
        if self.is_running()
            && let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        let end = Instant::now() + patience;
        while self.is_running() {
            if Instant::now() > end {
                let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
