//! Shows that no event is lost: `cargo run --release -p sandboxer-engine --example outbox [EVENTS [KILLS]]`.
//!
//! 10,000 events to a webhook that fails about half the time, while the process that delivers is killed ten times.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for people that may panic like a test"
)]

mod run;

use std::path::Path;
use std::process::Command;

/// Tells the child from the parent; its value is the home.
const CHILD: &str = "OUTBOX_EXAMPLE_HOME";

#[tokio::main]
async fn main() {
    if let Some(home) = std::env::var_os(CHILD) {
        return run::deliver(Path::new(&home)).await;
    }
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>().unwrap());
    let (events, kills) = (numbers.next().unwrap_or(10_000), numbers.next().unwrap_or(10));
    let figures = run::run(events, kills, |home| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(CHILD, home);
        command
    })
    .await;
    let run::Figures { events, requests, refused, repeats, kills, took } = figures;
    let per_second = events as f64 / took.as_secs_f64();
    println!("{events} events arrived, each sandbox's in order; the deliverer was killed {kills} times");
    println!("{requests} requests, {refused} refused, {repeats} repeats of events that had arrived");
    println!("{:.1} s, {per_second:.0} events per second", took.as_secs_f64());
    // For the bench. Whatever did not arrive, or out of order, has ended the run with an error before.
    println!("figure outbox_arrived {events}\nfigure outbox_events_per_second {per_second:.0}");
}
