//! The machine under the figures; without it they mean nothing.

use std::path::Path;

use serde_json::{Value, json};

use crate::peers::{find, version};

pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) processors: usize,
    model: String,
    pub(crate) memory_gib: f64,
    root: bool,
    load_before: String,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let uname = rustix::system::uname();
        let cpu = read("/proc/cpuinfo");
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kib = read("/proc/meminfo").split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok());
        Self {
            kernel: format!("{} {}", uname.release().to_string_lossy(), uname.machine().to_string_lossy()),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            model: model.map_or_else(|| "unknown".into(), |(_, name)| name.to_owned()),
            memory_gib: kib.unwrap_or_default() / f64::from(1 << 20),
            root: rustix::process::geteuid().is_root(),
            load_before: load(),
        }
    }

    pub(crate) fn line(&self) -> String {
        let who = if self.root { "as root" } else { "as an ordinary user" };
        format!(
            "{} cores ({}), {:.0} GiB, Linux {}, {who}; load {} at the start, {} now",
            self.processors,
            self.model,
            self.memory_gib,
            self.kernel,
            self.load_before,
            load()
        )
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "kernel": self.kernel, "processors": self.processors, "model": self.model,
            "memory_gib": self.memory_gib, "root": self.root,
            "load_before": self.load_before, "load_after": load(),
        })
    }
}

/// The one-minute average, in which the bench itself is included.
fn load() -> String {
    read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// What was compared with what.
pub(crate) fn versions(binary: &Path) -> Value {
    let mut versions = serde_json::Map::new();
    versions.insert("sandboxer".into(), version(binary).into());
    for program in ["bwrap", "crun", "runc", "dockerd", "docker"] {
        versions.insert(program.into(), find(program).map_or(Value::Null, |path| version(&path).into()));
    }
    versions.into()
}
