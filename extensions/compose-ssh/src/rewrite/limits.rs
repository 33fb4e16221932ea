//! The sandbox's limits, divided among its services.

use sandboxer_core::profile::Resources;
use serde_json::{Map, Value as Json, json};

use crate::judge::Stack;

/// The engine refuses less.
const LEAST_MEMORY: u64 = 6 << 20;
const LEAST_CPUS: f64 = 0.01;
const LEAST_PIDS: u64 = 8;

/// What one container of a service gets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    pub(super) memory_bytes: Option<u64>,
    pub(super) cpus: Option<f64>,
    pub(super) pids: Option<u64>,
}

impl Share {
    pub(super) fn apply(&self, out: &mut Map<String, Json>) {
        if let Some(bytes) = self.memory_bytes {
            out.insert("mem_limit".into(), json!(bytes));
            // Equal to the limit: no swap on top of it.
            out.insert("memswap_limit".into(), json!(bytes));
        }
        if let Some(cpus) = self.cpus {
            out.insert("cpus".into(), json!((cpus * 1_000.0).round() / 1_000.0));
        }
        if let Some(pids) = self.pids {
            out.insert("pids_limit".into(), json!(pids));
        }
    }
}

/// A service that asks for a limit gets it, within the whole; the others share the rest evenly.
pub(super) fn split(stack: &Stack, whole: &Resources) -> Vec<Share> {
    let counts: Vec<u64> =
        stack.services.iter().map(|service| if service.optional { 0 } else { service.replicas }).collect();
    let memory = divide(
        &counts,
        &stack
            .services
            .iter()
            .map(|service| service.wants.memory_bytes.filter(|bytes| *bytes > 0))
            .collect::<Vec<_>>(),
        whole.memory_mb.map(|megabytes| megabytes.saturating_mul(1 << 20)),
        LEAST_MEMORY,
    );
    let pids = divide(
        &counts,
        &stack.services.iter().map(|service| service.wants.pids).collect::<Vec<_>>(),
        whole.pids,
        LEAST_PIDS,
    );
    let milli = |cpus: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
        let milli = (cpus.clamp(0.0, 1e9) * 1_000.0).round() as u64;
        milli
    };
    let cpus = divide(
        &counts,
        &stack
            .services
            .iter()
            .map(|service| service.wants.cpus.filter(|cpus| *cpus > 0.0).map(milli))
            .collect::<Vec<_>>(),
        whole.cpu.map(milli),
        milli(LEAST_CPUS),
    );
    (0..counts.len())
        .map(|index| Share {
            memory_bytes: memory[index],
            pids: pids[index],
            #[expect(clippy::cast_precision_loss, reason = "thousandths of a processor")]
            cpus: cpus[index].map(|milli| milli as f64 / 1_000.0),
        })
        .collect()
}

fn divide(counts: &[u64], wants: &[Option<u64>], whole: Option<u64>, least: u64) -> Vec<Option<u64>> {
    let Some(whole) = whole else {
        return wants.iter().map(|want| want.map(|want| want.max(least))).collect();
    };
    let asked: u64 = wants
        .iter()
        .zip(counts)
        .filter_map(|(want, count)| want.map(|want| want.saturating_mul(*count)))
        .sum();
    let all: u64 = counts.iter().sum::<u64>().max(1);
    let silent: u64 =
        wants.iter().zip(counts).filter(|(want, _)| want.is_none()).map(|(_, count)| *count).sum();
    // Whoever asks for more than there is gets an even share like everybody else.
    let fits = asked <= whole && (silent == 0 || whole - asked >= silent.saturating_mul(least));
    wants
        .iter()
        .map(|want| {
            let share = match want {
                Some(want) if fits => *want,
                None if fits => (whole - asked) / silent.max(1),
                _ => whole / all,
            };
            Some(share.clamp(least, whole.max(least)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_shared_evenly() {
        assert_eq!(divide(&[1, 1], &[None, None], Some(1_000), 1), [Some(500), Some(500)]);
        assert_eq!(divide(&[1, 3], &[Some(400), None], Some(1_000), 1), [Some(400), Some(200)]);
        assert_eq!(divide(&[1, 1], &[Some(4_000), None], Some(1_000), 1), [Some(500), Some(500)]);
        assert_eq!(divide(&[1, 1], &[Some(40), None], None, 1), [Some(40), None]);
    }
}
