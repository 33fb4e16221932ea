//! When a delivery that failed is tried again, and when it is given up.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sandboxer_core::Dur;

/// How long a delivery is tried before it becomes a dead letter: long enough for a weekend.
const HORIZON: Dur = Dur::from_secs(4 * 86_400);
/// Whatever somebody asks for with `Retry-After`, they are asked again after a day.
const LONGEST_WAIT: Dur = Dur::from_secs(86_400);

/// Waits after the first, second, … try.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// In seconds. The last one is repeated.
    waits: &'static [u64],
    /// One that is old, because it stood behind others or nobody was there to deliver, still has this many tries.
    least_tries: u32,
}

/// For strangers: few tries, far apart, as Standard Webhooks recommends.
pub(super) const WEBHOOK: Schedule =
    Schedule { waits: &[5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400], least_tries: 5 };
/// For a hub of ours: soon there again after a restart, and not a burden while it is down.
pub(super) const HUB: Schedule =
    Schedule { waits: &[1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600], least_tries: 12 };

impl Schedule {
    /// How long to wait after a try that failed, or nothing when it was the last one. `tries` counts that one.
    pub(super) fn next(self, id: i64, tries: u32, age: Dur, asked: Option<Dur>) -> Option<Dur> {
        let place = (tries.max(1) as usize - 1).min(self.waits.len() - 1);
        let planned = Dur::from_secs(self.waits[place]);
        let wait = planned.max(asked.unwrap_or_default().min(LONGEST_WAIT));
        let over = age.as_millis().saturating_add(wait.as_millis()) > HORIZON.as_millis();
        (!over || tries < self.least_tries).then(|| with_jitter(wait, id, tries))
    }
}

/// Up to a fifth more, so that those that failed together do not come back together.
fn with_jitter(wait: Dur, id: i64, tries: u32) -> Dur {
    let mut hasher = DefaultHasher::new();
    (id, tries).hash(&mut hasher);
    let share = hasher.finish() % 200;
    Dur::from_millis(wait.as_millis().saturating_add(wait.as_millis().saturating_mul(share) / 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries of a delivery that always fails, and how long that takes.
    fn life(schedule: Schedule) -> (u32, Dur) {
        let (mut tries, mut age) = (1, Dur::default());
        while let Some(wait) = schedule.next(7, tries, age, None) {
            age = Dur::from_millis(age.as_millis() + wait.as_millis());
            tries += 1;
        }
        (tries, age)
    }

    #[test]
    fn a_webhook_is_tried_for_three_to_four_days() {
        let (tries, age) = life(WEBHOOK);
        assert!((9..=10).contains(&tries), "{tries}");
        assert!((2 * 86_400..=4 * 86_400).contains(&(age.as_millis() / 1_000)), "{age:?}");
        let (tries, age) = life(HUB);
        assert!(tries > 400 && age.as_millis() / 1_000 <= 4 * 86_400, "{tries} {age:?}");
    }

    #[test]
    fn waits_grow_and_differ() {
        let wait = |id, tries| WEBHOOK.next(id, tries, Dur::default(), None).unwrap().as_millis();
        for (tries, seconds) in [(1, 5), (2, 300), (3, 1_800), (4, 7_200), (9, 86_400), (u32::MAX, 86_400)] {
            let found = wait(1, tries);
            assert!((seconds * 1_000..seconds * 1_200).contains(&found), "{tries}: {found}");
        }
        assert_ne!(wait(1, 3), wait(2, 3));
    }

    #[test]
    fn whoever_asks_for_time_gets_it_within_reason() {
        let wait =
            |asked| WEBHOOK.next(1, 1, Dur::default(), Some(Dur::from_secs(asked))).unwrap().as_millis();
        assert!(wait(0) >= 5_000);
        assert!(wait(90) >= 90_000 && wait(90) < 110_000);
        assert!(wait(u64::MAX / 2_000) <= 86_400 * 1_200);
    }

    #[test]
    fn what_waited_long_before_its_first_try_is_not_given_up_at_once() {
        let old = Dur::from_secs(30 * 86_400);
        assert!(WEBHOOK.next(1, 1, old, None).is_some() && WEBHOOK.next(1, 4, old, None).is_some());
        assert!(WEBHOOK.next(1, 5, old, None).is_none());
    }
}
