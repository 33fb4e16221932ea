//! The keys of a service that go through as they are, and those that are dropped or replaced.

/// Nothing in these reaches beyond the container.
pub(super) const KEPT: &[&str] = &[
    "blkio_config", "cap_drop", "command", "cpu_shares", "cpuset", "depends_on", "dns", "dns_opt", "dns_search",
    "domainname", "entrypoint", "expose", "extra_hosts", "group_add", "healthcheck", "hostname", "image", "init",
    "links", "mac_address", "platform", "profiles", "read_only", "restart", "shm_size", "stdin_open",
    "stop_grace_period", "stop_signal", "storage_opt", "sysctls", "tmpfs", "tty", "ulimits", "user", "working_dir",
];

/// Dropped, with what is told about it.
pub(super) const DROPPED: &[(&str, &str)] = &[
    ("attach", ""),
    ("container_name", "container names are ours, so that stacks do not collide"),
    ("cpu_count", ""),
    ("cpu_percent", ""),
    ("cpu_period", "processor limits are set from the profile"),
    ("cpu_quota", "processor limits are set from the profile"),
    ("cpu_rt_period", ""),
    ("cpu_rt_runtime", ""),
    ("develop", ""),
    ("isolation", ""),
    ("logging", "logs are kept by the engine, bounded"),
    ("mem_reservation", "memory limits are set from the profile"),
    ("mem_swappiness", ""),
    ("memswap_limit", "memory limits are set from the profile"),
];

/// Judged by code of their own.
pub(super) const JUDGED: &[&str] = &[
    "build", "cap_add", "cgroup", "cgroup_parent", "configs", "cpus", "credential_spec", "deploy",
    "device_cgroup_rules", "devices", "env_file", "environment", "extends", "external_links", "gpus", "ipc", "labels",
    "mem_limit", "network_mode", "networks", "oom_kill_disable", "oom_score_adj", "pid", "pids_limit", "ports",
    "privileged", "pull_policy", "runtime", "scale", "secrets", "security_opt", "use_api_socket", "userns_mode", "uts",
    "volumes", "volumes_from",
];

/// Every key there is, for suggestions.
pub(super) fn all() -> Vec<&'static str> {
    KEPT.iter().chain(JUDGED).copied().chain(DROPPED.iter().map(|(key, _)| *key)).collect()
}
