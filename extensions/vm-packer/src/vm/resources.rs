//! How large a machine becomes, and whether this host can carry it. Nothing is made smaller silently.

use sandboxer_core::profile::Resources;
use sandboxer_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::image::Image;

const DEFAULT_MEMORY_MB: u64 = 512;
/// A kernel with an initial ramdisk needs about this much to start.
const LEAST_MEMORY_MB: u64 = 128;
const MB: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    pub(crate) cpus: u64,
    pub(crate) memory_mb: u64,
    pub(crate) disk_bytes: u64,
}

/// What the host has to give.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) cpus: u64,
    pub(crate) memory_mb: u64,
}

impl Room {
    pub(crate) fn here() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let available = info.lines().find_map(|line| {
            line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        Self { cpus, memory_mb: available.map_or(u64::MAX, |kb| kb / 1_024) }
    }
}

impl Size {
    pub(crate) fn fit(wanted: &Resources, image: &Image, room: Room) -> Result<Self> {
        let too_much = |what: String| {
            Error::new(ErrorKind::NoBackend, what)
                .with_hint("ask for less in the profile's `resources`, or place the machine on a larger host")
        };
        let cpus = wanted.cpu.unwrap_or(1.0).ceil().max(1.0);
        if cpus > room.cpus as f64 {
            return Err(too_much(format!(
                "the machine wants {cpus} processors and this host has {}",
                room.cpus
            )));
        }
        let memory_mb = wanted.memory_mb.unwrap_or(DEFAULT_MEMORY_MB);
        if memory_mb > room.memory_mb {
            return Err(too_much(format!(
                "the machine wants {memory_mb} MB of memory and this host has {} MB available",
                room.memory_mb
            )));
        }
        if memory_mb < LEAST_MEMORY_MB {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("no machine starts with {memory_mb} MB of memory"),
            )
            .with_hint(format!("give `resources.memory_mb` at least {LEAST_MEMORY_MB}")));
        }
        let disk_bytes = match wanted.disk_mb.map(|mb| mb.saturating_mul(MB)) {
            Some(bytes) if bytes < image.disk_bytes => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "the image's disk has {} MB, more than `resources.disk_mb`: {}",
                        image.disk_bytes.div_ceil(MB),
                        bytes / MB
                    ),
                )
                .with_hint("allow more, or let the template make a smaller disk"));
            }
            Some(bytes) => bytes,
            None => image.disk_bytes,
        };
        Ok(Self { cpus: cpus as u64, memory_mb, disk_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        Image {
            hash: "h".into(),
            folder: "/".into(),
            disk: "disk.raw".into(),
            format: "raw".into(),
            disk_bytes: 512 * MB,
            kernel: None,
            initrd: None,
            cmdline: None,
        }
    }

    fn fit(cpu: f64, memory_mb: u64, disk_mb: u64) -> Result<Size> {
        let wanted = Resources {
            cpu: Some(cpu),
            memory_mb: Some(memory_mb),
            disk_mb: Some(disk_mb),
            ..Resources::default()
        };
        Size::fit(&wanted, &image(), Room { cpus: 2, memory_mb: 4_096 })
    }

    #[test]
    fn a_machine_is_never_smaller_than_asked_for() {
        let size = fit(1.5, 1_024, 1_024).unwrap();
        assert_eq!(size, Size { cpus: 2, memory_mb: 1_024, disk_bytes: 1_024 * MB });
        for (cpu, memory, disk, kind) in [
            (8.0, 1_024, 1_024, ErrorKind::NoBackend),
            (1.0, 16_384, 1_024, ErrorKind::NoBackend),
            (1.0, 16, 1_024, ErrorKind::InvalidInput),
            (1.0, 1_024, 100, ErrorKind::InvalidInput),
        ] {
            let error = fit(cpu, memory, disk).unwrap_err();
            assert_eq!(error.kind(), kind, "{error:?}");
            assert!(error.hint().is_some());
        }
    }
}
