//! Many creates at the same moment, each timed until its first command has ended with 0.

use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use crate::server::{Api, Server};
use crate::stats::{Samples, Summary};

/// What leaderboards cut off at each end.
const TRIM_PERCENT: usize = 5;

pub(crate) struct Burst {
    pub(crate) asked: usize,
    samples: Samples,
    pub(crate) failures: Vec<String>,
    /// From the first request to the last answer.
    pub(crate) wall: Duration,
}

impl Burst {
    pub(crate) fn trimmed(&self) -> Summary {
        self.samples.trimmed(TRIM_PERCENT).summary()
    }

    pub(crate) fn success_percent(&self) -> f64 {
        100.0 * self.samples.len() as f64 / self.asked.max(1) as f64
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "asked": self.asked,
            "success_percent": self.success_percent(),
            "trimmed": self.trimmed().to_json(),
            "untrimmed": self.samples.summary().to_json(),
            "wall_ms": self.wall.as_secs_f64() * 1e3,
            "failures": self.failures,
        })
    }
}

/// `count` callers, each with a connection of its own, all let go at once. The clock of every caller starts when they
/// are let go, so that none hides the time in which it had to wait for a processor.
pub(crate) fn run(server: &Server, count: usize) -> Result<Burst> {
    let gate = Barrier::new(count + 1);
    let start = OnceLock::new();
    let began = || *start.get_or_init(Instant::now);
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let caller = || {
            gate.wait();
            Outcome::of(server, began())
        };
        let callers: Vec<_> = (0..count).map(|_| scope.spawn(caller)).collect();
        began();
        gate.wait();
        let lost = || Outcome { id: None, tti: Err(anyhow::anyhow!("the caller broke off")), until: began() };
        callers.into_iter().map(|caller| caller.join().unwrap_or_else(|_| lost())).collect()
    });
    let wall = outcomes.iter().map(|outcome| outcome.until.duration_since(began())).max().unwrap_or_default();
    let mut burst = Burst { asked: count, samples: Samples::default(), failures: Vec::new(), wall };
    let mut api = server.api()?;
    for outcome in outcomes {
        if let Some(id) = outcome.id {
            api.destroy(&id)?;
        }
        match outcome.tti {
            Ok(tti) => burst.samples.push(tti),
            Err(error) => burst.failures.push(format!("{error:#}")),
        }
    }
    Ok(burst)
}

struct Outcome {
    id: Option<String>,
    tti: Result<Duration>,
    until: Instant,
}

impl Outcome {
    fn of(server: &Server, start: Instant) -> Self {
        let mut id = None;
        let tti = server.api().and_then(|mut api: Api| {
            let made = id.insert(api.create()?);
            api.exec_true(made)?;
            Ok(start.elapsed())
        });
        Self { id, tti, until: Instant::now() }
    }
}
