//! System call filters, from data files in which every rule has its reason.
//!
//! The first filter allows what is listed and answers `ENOSYS` to the rest, so that programs fall back as
//! on an older kernel, and `EPERM` to what is dangerous and known. The others look at arguments: flags of
//! `clone` and `ioctl`, address families of `socket`.

mod compact;

use crate::error::{Result, RuntimeError};
use seccompiler::{BpfProgram, TargetArch, compile_from_json};
use serde_json::Value;

const ALLOW: &str = include_str!("seccomp/allow.json");
const DENY: &str = include_str!("seccomp/deny.json");
const DENY_ARGUMENTS: &str = include_str!("seccomp/deny_arguments.json");
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
    let allow = compile_one("allow", ALLOW, ALLOW_ARCH)?;
    let deny = compile_one("deny", DENY, DENY_ARCH)?;
    let compact =
        compact::fold(&allow, &deny).ok_or_else(|| failed("allow", "its rules depend on arguments"))?;
    let arguments = compile_one("deny_arguments", DENY_ARGUMENTS, None)?;
    Ok(Filters(vec![compact, arguments, compile_one("families", FAMILIES, None)?]))
}

fn failed(name: &str, reason: &str) -> RuntimeError {
    RuntimeError::missing("seccomp", format!("filter `{name}`: {reason}"), "report this as a bug")
}

fn compile_one(name: &str, common: &str, arch: Option<&str>) -> Result<BpfProgram> {
    let failed = |reason: String| failed(name, &reason);
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
    Ok(format!("{} filters, {} rules", filters.0.len(), rule_count()))
}

fn rule_count() -> usize {
    let files = [Some(ALLOW), ALLOW_ARCH, Some(DENY), DENY_ARCH, Some(DENY_ARGUMENTS), Some(FAMILIES)];
    files.into_iter().flatten().map(|text| text.matches("\"syscall\"").count()).sum()
}
