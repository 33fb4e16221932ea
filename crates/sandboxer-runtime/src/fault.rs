//! Named points at which a crash test kills the process that reaches them.

/// The variable that names the point to die at.
pub const VARIABLE: &str = "SANDBOXER_FAULT";

/// Every point, in the order a launch and a teardown reach them.
pub const POINTS: &[&str] = &[
    "runtime.launcher.before_fork",
    "runtime.launch.before_mkdir",
    "runtime.launch.after_mkdir",
    "runtime.launch.after_lock",
    "runtime.launch.after_spec",
    "runtime.launch.after_layer",
    "runtime.launch.after_clone",
    "runtime.launch.after_maps",
    "runtime.launch.after_cgroups",
    "runtime.init.before_mounts",
    "runtime.init.after_overlay",
    "runtime.init.after_pivot",
    "runtime.init.before_lockdown",
    "runtime.init.before_ready",
    "runtime.launch.after_socket",
    "runtime.launch.after_ready",
    "runtime.launch.before_reply",
    "runtime.adopt.before_rename",
    "runtime.adopt.after_rename",
    "runtime.stop.before_kill",
    "runtime.stop.after_kill",
    "runtime.stop.after_cgroups",
    "runtime.stop.after_socket",
    "runtime.stop.after_layer",
    "runtime.stop.before_lock_removed",
    "runtime.stop.after_remove",
];

/// Dies here when the environment asks for it; nothing at all without the `fault-points` feature.
#[inline]
pub fn point(name: &str) {
    #[cfg(feature = "fault-points")]
    {
        debug_assert!(POINTS.contains(&name), "unlisted fault point {name}");
        if std::env::var_os(VARIABLE).is_some_and(|wanted| wanted == name) {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            // Init is immune to its own signals.
            crate::sys::process::leave(137);
        }
    }
    #[cfg(not(feature = "fault-points"))]
    let _ = name;
}
