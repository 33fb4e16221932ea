//! Ending process trees from inside, where every descendant can be seen.

use crate::sys::process::parent_of;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{HashMap, HashSet};

/// Rounds of looking for processes that were started while the others were being stopped.
const MAX_ROUNDS: usize = 64;

/// Signals one process; a process that has just ended is what was wanted.
pub(super) fn one(pid: i32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signal)) {
        let _ = kill_process(pid, signal);
    }
}

/// Signals everything below `root`. For `SIGKILL` all are stopped first, so that none can start another
/// one behind our back, and `last` goes last: with it the monitor leaves, and who is below it is lost.
pub(super) fn tree(root: i32, last: Option<i32>, signal: i32) {
    if signal != libc::SIGKILL {
        return descendants(root).into_iter().for_each(|pid| one(pid, signal));
    }
    for _ in 0..MAX_ROUNDS {
        let stopped = stop_all(root);
        let others: Vec<i32> =
            stopped.into_iter().filter(|pid| Some(*pid) != last && !is_zombie(*pid)).collect();
        if others.is_empty() {
            break;
        }
        others.into_iter().for_each(|pid| one(pid, libc::SIGKILL));
    }
    if let Some(last) = last {
        one(last, libc::SIGKILL);
    }
}

/// Stops everything below `root`. One that forks and ends while `/proc` is read can be overlooked, so a
/// single round without a new process proves nothing.
fn stop_all(root: i32) -> HashSet<i32> {
    let mut stopped: HashSet<i32> = HashSet::new();
    let mut quiet = 0;
    for _ in 0..MAX_ROUNDS {
        let fresh: Vec<i32> = descendants(root).into_iter().filter(|pid| stopped.insert(*pid)).collect();
        quiet = if fresh.is_empty() { quiet + 1 } else { 0 };
        if quiet == 2 {
            break;
        }
        fresh.into_iter().for_each(|pid| one(pid, libc::SIGSTOP));
    }
    stopped
}

/// Ends every child of init that is no monitor, and what is below it.
pub(super) fn orphans(monitors: &[i32]) {
    for _ in 0..MAX_ROUNDS {
        let parents = parents();
        let adopted: Vec<i32> = parents
            .iter()
            .filter(|(pid, parent)| **parent == 1 && !monitors.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        let living: Vec<i32> = adopted.into_iter().filter(|pid| !is_zombie(*pid)).collect();
        if living.is_empty() {
            return;
        }
        for pid in living {
            one(pid, libc::SIGSTOP);
            tree(pid, None, libc::SIGKILL);
            one(pid, libc::SIGKILL);
        }
    }
}

fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.iter().rposition(|b| *b == b')').and_then(|at| stat.get(at + 2).copied());
    matches!(state, None | Some(b'Z' | b'X'))
}

fn parents() -> HashMap<i32, i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

/// Every process below `root`, children of ended children included: the monitor adopts them.
fn descendants(root: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in parents() {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut queue = vec![root];
    while let Some(pid) = queue.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(&below);
        queue.extend(below);
    }
    found
}
