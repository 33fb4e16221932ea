//! kill -9 between every two steps of everything that a sandbox goes through: nothing is lost, nothing leaks, no row is in
//! a wrong state, and what it cost is charged once.
//!
//! Needs the feature `fault-points`, as `make test` gives it.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]
#![cfg(feature = "fault-points")]

mod books;
mod checkpoints;
mod left;
mod life;
mod points;
mod rig;
mod routes;
mod runtime;
mod syncs;

use crate::books::assert_charged_once;
use crate::left::assert_nothing_left;
use crate::rig::Home;

/// After a restart every row is settled: usable with something behind it, paused, or destroyed. Everything is brought to
/// its end, and then nothing is there any more and everything is paid.
fn finish(home: &Home, point: &str) {
    let rows = home.rows();
    let mut destroy = vec!["destroy"];
    for row in &rows {
        let (id, state) = (row["sandbox_id"].as_str().unwrap(), row["state"].as_str().unwrap());
        assert!(["ready", "active", "paused", "destroyed"].contains(&state), "{point}: {id} is {state}");
        if ["ready", "active"].contains(&state) {
            let run = home.run(None, &["exec", id, "--", "true"]);
            assert!(run.status.success(), "{point}: {id} is {state} and does not answer: {run:?}");
        }
        // Also what is destroyed: a repeat changes nothing.
        destroy.push(id);
    }
    home.ok(&destroy);
    let rows = home.rows();
    assert_nothing_left(home, &rows, point);
    assert_charged_once(home, &rows, point);
}
