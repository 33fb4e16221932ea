//! Who holds a lease: this process, named so that another one can tell whether it still lives.

use std::fs;

/// `machine/boot/pid-namespace/pid/start-time`. Equal only for the very same process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(String);

impl Owner {
    pub fn of_this_process() -> Self {
        let pid = std::process::id();
        Self(format!("{}/{pid}/{}", place(), start_time(pid).unwrap_or_default()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The owner is certainly gone: it was a process of this very machine, boot and pid namespace, and is no more.
    /// Of anybody else nothing is known, and the lease alone decides.
    pub fn is_gone(owner: &str) -> bool {
        let Some((rest, start)) = owner.rsplit_once('/') else { return false };
        let Some((owner_place, pid)) = rest.rsplit_once('/') else { return false };
        let Ok(pid) = pid.parse::<u32>() else { return false };
        owner_place == place() && start_time(pid).as_deref() != Some(start)
    }
}

/// Machine, boot and pid namespace: within one of these, pids mean the same.
fn place() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let namespace =
        fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default();
    format!("{}/{namespace}", read("/proc/sys/kernel/random/boot_id"))
}

/// When a process started, in clock ticks since boot: pids are used again, this pair is not. A zombie is no process.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, brackets included; fields are counted from the last one.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    (state != "Z" && state != "X").then(|| fields.nth(18).map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_gone_and_a_finished_one_is() {
        let me = Owner::of_this_process();
        assert!(!Owner::is_gone(me.as_str()));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let theirs = format!("{}/{}/{}", place(), child.id(), start_time(child.id()).unwrap());
        assert!(!Owner::is_gone(&theirs));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Owner::is_gone(&theirs));
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let other = format!("{}/{}/{}", place(), std::process::id(), 1);
        assert!(Owner::is_gone(&other));
    }

    #[test]
    fn of_strangers_nothing_is_known() {
        for owner in ["", "elsewhere", "other-boot/pid:[1]/1/1", "a/b/c"] {
            assert!(!Owner::is_gone(owner), "{owner}");
        }
    }
}
