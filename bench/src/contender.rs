//! Contenders take turns, so that whatever else the machine does hits all of them alike.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::stats::Samples;

/// One turn may give several samples, such as a create and the first command after it.
pub(crate) type Record<'a> = &'a mut dyn FnMut(&'static str, Duration);

pub(crate) trait Contender {
    /// For messages.
    fn name(&self) -> &'static str;
    /// Does the thing once.
    fn turn(&mut self, record: Record<'_>) -> Result<()>;
    /// Takes part in every such round; more than one for what takes long.
    fn every(&self) -> usize {
        1
    }
    /// Idle time afterwards: what the kernel still cleans up after this turn is not the next one's business.
    fn rest(&self) -> Duration {
        Duration::from_millis(5)
    }
}

/// Samples by the name of what was measured.
pub(crate) type Table = BTreeMap<&'static str, Samples>;

/// Runs `rounds` rounds after `warm_up` ones that are not counted, each in another order.
pub(crate) fn take_turns(
    contenders: &mut [Box<dyn Contender>],
    warm_up: usize,
    rounds: usize,
) -> Result<Table> {
    let mut table = Table::new();
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    let mut chance = Chance::new();
    for round in 0..warm_up + rounds {
        let counted = round.checked_sub(warm_up);
        chance.shuffle(&mut order);
        for &index in &order {
            let contender = &mut contenders[index];
            if counted.unwrap_or(0) % contender.every() != 0
                || (counted.is_none() && round > 0 && contender.every() > 1)
            {
                continue;
            }
            let mut record = |name, sample| {
                if counted.is_some() {
                    table.entry(name).or_default().push(sample);
                }
            };
            contender
                .turn(&mut record)
                .with_context(|| format!("{} failed in round {round}", contender.name()))?;
            std::thread::sleep(contender.rest());
        }
    }
    Ok(table)
}

pub(crate) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let value = work()?;
    Ok((value, start.elapsed()))
}

/// The same order in every run: a xorshift generator with a fixed start.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    fn shuffle(&mut self, order: &mut [usize]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(&'static str, usize);

    impl Contender for Counting {
        fn name(&self) -> &'static str {
            self.0
        }
        fn every(&self) -> usize {
            self.1
        }
        fn rest(&self) -> Duration {
            Duration::ZERO
        }
        fn turn(&mut self, record: Record<'_>) -> Result<()> {
            record(self.0, Duration::from_millis(1));
            Ok(())
        }
    }

    #[test]
    fn the_slow_take_part_less_often_and_warm_up_is_not_counted() {
        let mut contenders: Vec<Box<dyn Contender>> =
            vec![Box::new(Counting("fast", 1)), Box::new(Counting("slow", 4))];
        let table = take_turns(&mut contenders, 3, 20).unwrap();
        assert_eq!((table["fast"].len(), table["slow"].len()), (20, 5));
    }
}
