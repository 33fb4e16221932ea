//! Kills whoever reaches a fault point, at every one of them, and looks for what is left.
//! Needs `--features fault-points`.
#![cfg(feature = "fault-points")]
#![allow(unsafe_code, reason = "the fault is chosen by a variable of this process")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod common;

use common::{Fixture, eventually, process_exists, sh};
use sandboxer_runtime::{Launched, LauncherExe, Runtime, SandboxSpec, fault};
use std::time::Duration;

fn processes_in_cgroup(id: &str) -> Vec<i32> {
    let name = format!("sandboxer-{id}");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(&name))
    })
    .collect()
}

/// The supervisor of a warm sandbox dies while it gets its identity: under either name what is left can be swept.
fn crash_while_adopting(
    executor: &tokio::runtime::Runtime,
    fixture: &Fixture,
    runtime: &Runtime,
    warm: Launched,
    id: &str,
    point: &str,
) {
    let (init, adopted) = (warm.init_pid, format!("{id}-adopted"));
    executor.block_on(async {
        let spec = SandboxSpec::new(&adopted, Duration::from_secs(60));
        assert!(runtime.adopt(warm, spec).await.is_err(), "{point} was not reached");
        eventually("its processes end", || !process_exists(init)).await;
        for name in [id, &adopted] {
            assert!(runtime.stop(name).await.unwrap().is_clean(), "{point}");
        }
    });
    fixture.assert_nothing_left(id);
    fixture.assert_nothing_left(&adopted);
}

#[test]
fn a_crash_at_any_point_leaves_nothing_that_cannot_be_swept() {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fixture = Fixture::new();
    for (number, point) in fault::POINTS.iter().enumerate() {
        let id = common::id(&format!("fault-{number}"));
        // SAFETY: this test is the only one of its binary, and no other thread reads the environment now.
        unsafe { std::env::set_var(fault::VARIABLE, point) };
        let runtime = Runtime::new(fixture.runtime.dirs().clone(), LauncherExe::Path(common::launcher()));
        let mut spec = SandboxSpec::new(&id, Duration::from_secs(60));
        spec.warm = point.contains(".adopt.");
        let launched = executor.block_on(runtime.launch(spec));
        // From here on only the processes of the sandbox have it, not this one, which sweeps.
        // SAFETY: as above.
        unsafe { std::env::remove_var(fault::VARIABLE) };
        assert!(launched.is_ok() || !point.contains(".stop."), "{point} was reached during launch");
        if point.contains(".adopt.") {
            crash_while_adopting(&executor, &fixture, &runtime, launched.unwrap(), &id, point);
            continue;
        }
        if let Ok(launched) = &launched {
            executor.block_on(async {
                assert_eq!(sh(&launched.control, "echo up").await.stdout, "up\n", "{point}");
                let _ = runtime.stop(&id).await;
                eventually("its processes end", || !process_exists(launched.init_pid)).await;
            });
        }
        drop(runtime);
        let after = Runtime::new(fixture.runtime.dirs().clone(), LauncherExe::Path(common::launcher()));
        executor.block_on(async {
            eventually("nothing runs on", || processes_in_cgroup(&id).is_empty()).await;
            eventually("nobody holds the lock", || after.list().unwrap().iter().all(|found| !found.alive))
                .await;
            assert!(after.stop(&id).await.unwrap().is_clean(), "{point}");
        });
        fixture.assert_nothing_left(&id);
    }
}
