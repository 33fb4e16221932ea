//! Ends a command's tree from outside, where this process is root on the engine's machine.
//!
//! It needs no process inside, so it works when the command has used up all that the sandbox may have, and it takes no
//! round trip. Where it is not possible the script inside does the work.

use std::collections::BTreeMap;

use rustix::process::{Pid, Signal, kill_process};

use crate::exec::MARK;

/// Rounds in which the tree is stopped before it is ended, and ended before it is given up.
const ROUNDS: usize = 20;

/// Ends everything below the init with this number on the machine. `false` when it is not ours to see or to end.
pub(crate) fn end(init: i64, mark: &str) -> bool {
    let Some(init) = i32::try_from(init).ok().filter(|pid| *pid > 1) else { return false };
    if !is_marked(init, mark) {
        return false;
    }
    let mut before = Vec::new();
    for _ in 0..ROUNDS {
        let members = family(init);
        if members == before {
            break;
        }
        if !members.iter().all(|pid| send(*pid, Signal::STOP)) {
            return false;
        }
        before = members;
    }
    for _ in 0..ROUNDS {
        let members = family(init);
        if members.is_empty() {
            break;
        }
        for pid in members {
            send(pid, Signal::KILL);
        }
    }
    // The init ends with its command; one that was stopped, or whose command was not there yet, does not.
    if is_marked(init, mark) && family(init).is_empty() {
        send(init, Signal::KILL);
    }
    true
}

/// Numbers are given away again, so the mark decides whose it is.
fn is_marked(pid: i32, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

/// Whether the signal was sent, or there was nobody left to get it.
fn send(pid: i32, signal: Signal) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return true };
    !matches!(kill_process(pid, signal), Err(error) if error == rustix::io::Errno::PERM)
}

/// All descendants, by the parents that the kernel tells.
fn family(root: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name in parentheses may contain anything; what follows the last one does not.
        let mut fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ')).into_iter().flatten();
        let (state, parent) = (fields.next(), fields.next().and_then(|parent| parent.parse().ok()));
        if let (Some(state), Some(parent)) = (state, parent)
            && state != "Z"
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut members = Vec::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            members.push(child);
            next.push(child);
        }
    }
    members.sort_unstable();
    members
}
