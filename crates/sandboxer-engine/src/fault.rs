//! Places where a test may end the process: between every two steps of what is done with a sandbox.
//!
//! Without the feature `fault-points` a point is nothing at all.

/// Every point of the engine, in the order in which a sandbox passes them.
pub const POINTS: &[&str] = &[
    "engine.create.before_intent",
    "engine.create.after_intent",
    "engine.create.after_seed",
    "engine.create.after_provision",
    "engine.create.after_probe",
    "engine.create.after_setup",
    "engine.create.after_ready",
    "engine.reroute.after_teardown",
    "engine.reroute.after_intent",
    "engine.hedge.after_intent",
    "engine.hedge.after_switch",
    "engine.hedge.after_teardown",
    "engine.extend.after_hold",
    "engine.extend.after_effect",
    "engine.extend.after_extended",
    "engine.pause.after_intent",
    "engine.pause.after_effect",
    "engine.pause.after_paused",
    "engine.resume.after_intent",
    "engine.resume.after_hold",
    "engine.resume.after_effect",
    "engine.resume.after_resumed",
    "engine.snapshot.before_intent",
    "engine.snapshot.after_intent",
    "engine.snapshot.after_effect",
    "engine.snapshot.after_taken",
    "engine.snapshot_delete.after_intent",
    "engine.snapshot_delete.after_effect",
    "engine.snapshot_delete.after_removed",
    "engine.fork.after_snapshot",
    "engine.fork.after_restores",
    "engine.sync.before_down",
    "engine.sync.after_down",
    "engine.sync.after_up",
    "engine.destroy.before_intent",
    "engine.destroy.after_intent",
    "engine.destroy.after_teardown",
    "engine.destroy.after_destroyed",
];

/// Ends this process with SIGKILL if `SANDBOXER_FAULT` names the point.
#[cfg(feature = "fault-points")]
pub fn point(name: &str) {
    debug_assert!(POINTS.contains(&name), "an undeclared fault point");
    if std::env::var_os("SANDBOXER_FAULT").is_some_and(|wanted| wanted == name) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

#[cfg(not(feature = "fault-points"))]
#[inline(always)]
pub fn point(_name: &str) {}
