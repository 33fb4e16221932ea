use super::*;
use crate::error::Class;

fn at(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn rest(breaker: &Breaker, since: Timestamp) -> Option<i64> {
    breaker.until.map(|until| until.duration_since(since).as_secs())
}

#[test]
fn patience_depends_on_the_trouble() {
    for (class, failures, first) in [
        (Class::Auth, 1, 600),
        (Class::Payment, 1, 900),
        (Class::Quota, 1, 30),
        (Class::Capacity, 1, 30),
        (Class::Timeout, 2, 30),
        (Class::Network, 2, 30),
        (Class::Backend, 3, 30),
    ] {
        let mut breaker: Option<Breaker> = None;
        for number in 1..=failures {
            let next = Breaker::after_failure(breaker.as_ref(), class, "x", None, now());
            assert_eq!(rest(&next, now()), (number == failures).then_some(first), "{class} {number}");
            breaker = Some(next);
        }
    }
}

#[test]
fn rest_grows_with_every_try_that_fails() {
    let mut breaker = Breaker::after_failure(None, Class::Quota, "429", None, now());
    let mut rests = Vec::new();
    let mut time = now();
    for _ in 0..8 {
        rests.push(rest(&breaker, time).unwrap());
        time = breaker.until.unwrap();
        assert_eq!(breaker.state(time), BreakerState::HalfOpen);
        breaker = Breaker::after_failure(Some(&breaker), Class::Quota, "429", None, time);
    }
    assert_eq!(rests, [30, 60, 120, 240, 480, 600, 600, 600]);
}

#[test]
fn its_own_word_counts() {
    let asked = |span| Breaker::after_failure(None, Class::Backend, "503", Some(span), now());
    assert_eq!(
        rest(&asked(Dur::from_secs(7)), now()),
        Some(7),
        "sooner than we would, and at the first failure"
    );
    assert_eq!(rest(&asked(Dur::from_secs(864_000)), now()), Some(86_400), "but not for ever");
    assert_eq!(rest(&asked(Dur::ZERO), now()), Some(1));
    // Failures that were under way when it opened do not bring the end nearer.
    let long = asked(Dur::from_secs(100));
    let late = Breaker::after_failure(Some(&long), Class::Backend, "503", Some(Dur::from_secs(5)), at(1));
    assert_eq!(late.until, long.until);
}

#[test]
fn failures_far_apart_are_not_in_a_row() {
    let first = Breaker::after_failure(None, Class::Network, "no route", None, now());
    let near = Breaker::after_failure(Some(&first), Class::Network, "no route", None, at(599));
    assert_eq!((near.failures, near.state(at(599))), (2, BreakerState::Open));
    let far = Breaker::after_failure(Some(&first), Class::Network, "no route", None, at(601));
    assert_eq!((far.failures, far.state(at(601))), (1, BreakerState::Closed));
}

#[test]
fn what_is_kept_is_bounded() {
    let breaker = Breaker::after_failure(None, Class::Backend, &"ü".repeat(10_000), None, now());
    assert_eq!(breaker.reason.chars().count(), 300);
}
