//! Each way in which the pretended provider fails, on real sandboxes of the native runtime.
//!
//! The test has its own `main`: the native runtime starts this very binary as its launcher.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]
#![allow(clippy::print_stdout, reason = "it is its own harness")]

mod books;
mod calls;
mod create;
mod kill;
mod life;
mod rig;

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;

/// A name, and something to wait for.
type Case = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()> + Send>>);

/// Names the functions of a module and makes cases of them.
macro_rules! cases {
    ($($module:ident: $($name:ident),+;)+) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), || Box::pin($module::$name())),)+)+]
    };
}

const CASES: &[Case] = cases! {
    create: too_many_requests, payment, unauthorized, server_error, capacity, timeout_before, timeout_after,
        server_error_after, times, rate, full, key_required, latency, cheap, words_are_checked, mounts_are_refused;
    life: death, lost, deadline, extend_not_beyond_death, nothing_behind, pause_where_it_can;
    calls: teardown_fails_so_often, teardown_hangs, status_fails, list_fails, priority;
    books: record_and_key, accounts, export, export_once_after_a_crash, ends_of_its_own_are_billed_to_their_moment, apart;
    kill: any_moment;
};

fn main() -> ExitCode {
    sandboxer_runtime::run_if_launcher();
    if kill::is_child() {
        return kill::child();
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let failed = runtime.block_on(async {
        let chosen =
            CASES.iter().filter(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(word)));
        // A few at a time, since some look at the clock.
        let turns = Arc::new(Semaphore::new(3));
        let running: Vec<_> = chosen
            .map(|(name, run)| {
                let turns = turns.clone();
                let case = async move {
                    let _turn = turns.acquire_owned().await;
                    let start = Instant::now();
                    run().await;
                    start.elapsed()
                };
                (name, tokio::spawn(case))
            })
            .collect();
        let mut failed = 0_usize;
        for (name, case) in running {
            match case.await {
                Ok(took) => println!("ok     {name} ({} ms)", took.as_millis()),
                Err(_) => {
                    failed += 1;
                    println!("FAILED {name}");
                }
            }
        }
        failed
    });
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
