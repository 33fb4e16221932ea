//! System call filters, from data files in which every rule has its reason.
//!
//! Three filters are installed and all of them are asked. The first allows what is listed and answers
//! `ENOSYS` to the rest, so that programs fall back as on an older kernel. The second answers `EPERM` to
//! what is dangerous and known: it is installed later, so its answer wins. The third refuses address families.

use crate::error::{Result, RuntimeError};
use seccompiler::{BpfProgram, TargetArch, compile_from_json};
use serde_json::Value;

const ALLOW: &str = include_str!("seccomp/allow.json");
const DENY: &str = include_str!("seccomp/deny.json");
const FAMILIES: &str = include_str!("seccomp/families.json");
#[cfg(target_arch = "x86_64")]
const ALLOW_ARCH: Option<&str> = Some(include_str!("seccomp/allow_x86_64.json"));
#[cfg(target_arch = "x86_64")]
const DENY_ARCH: Option<&str> = Some(include_str!("seccomp/deny_x86_64.json"));
#[cfg(not(target_arch = "x86_64"))]
const ALLOW_ARCH: Option<&str> = None;
#[cfg(not(target_arch = "x86_64"))]
const DENY_ARCH: Option<&str> = None;

/// The compiled filters, in the order of their installation.
pub(crate) struct Filters(Vec<BpfProgram>);

/// Compiles the data files; done once a launcher, because it takes longer than a launch may.
pub(crate) fn compile() -> Result<Filters> {
    let sources = [("allow", ALLOW, ALLOW_ARCH), ("deny", DENY, DENY_ARCH), ("families", FAMILIES, None)];
    sources
        .into_iter()
        .map(|(name, common, arch)| compile_one(name, common, arch))
        .collect::<Result<_>>()
        .map(Filters)
}

fn compile_one(name: &str, common: &str, arch: Option<&str>) -> Result<BpfProgram> {
    let failed = |reason: String| {
        RuntimeError::missing("seccomp", format!("filter `{name}`: {reason}"), "report this as a bug")
    };
    let target: TargetArch = std::env::consts::ARCH.try_into().map_err(|e| failed(format!("{e}")))?;
    let mut source: Value = serde_json::from_str(common).map_err(|e| failed(e.to_string()))?;
    if let Some(arch) = arch {
        let mut arch: Value = serde_json::from_str(arch).map_err(|e| failed(e.to_string()))?;
        let more = arch[name]["filter"].as_array_mut().map(std::mem::take).unwrap_or_default();
        if let Some(rules) = source[name]["filter"].as_array_mut() {
            rules.extend(more);
        }
    }
    let mut programs =
        compile_from_json(source.to_string().as_bytes(), target).map_err(|e| failed(e.to_string()))?;
    programs.remove(name).ok_or_else(|| failed("not in its file".to_owned()))
}

/// Installs the filters; needs `no_new_privs`.
pub(crate) fn install(filters: &Filters) -> Result<String> {
    for filter in &filters.0 {
        seccompiler::apply_filter(filter).map_err(|error| {
            RuntimeError::missing("seccomp", error.to_string(), "the kernel needs CONFIG_SECCOMP_FILTER")
        })?;
    }
    let rules: usize = self::rule_count();
    Ok(format!("{} filters, {rules} rules", filters.0.len()))
}

fn rule_count() -> usize {
    let files = [Some(ALLOW), ALLOW_ARCH, Some(DENY), DENY_ARCH, Some(FAMILIES)];
    files.into_iter().flatten().map(|text| text.matches("\"syscall\"").count()).sum()
}
