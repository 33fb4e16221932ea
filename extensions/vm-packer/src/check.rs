//! What this machine has of what the extension needs, and how to get the rest.

use std::path::Path;

use sandboxer_core::extension::{CheckItem, CheckReport};
use serde_json::{Value, json};

use crate::image::Cache;
use crate::tools::{Tool, Tools, version};
use crate::vm::Accelerator;

/// An image and a few overlays need about this much.
const LEAST_FREE: u64 = 2 << 30;

fn item(name: &str, ok: bool, required: bool, detail: impl Into<String>, hint: Option<String>) -> CheckItem {
    CheckItem { name: name.into(), ok, required, detail: detail.into(), hint: hint.filter(|_| !ok) }
}

pub(crate) async fn report(tools: &Tools, state_dir: &Path) -> CheckReport {
    let mut items = vec![
        tool(&tools.qemu, "--version", true).await,
        accelerator(tools, state_dir).await,
        tool(&tools.packer, "version", false).await,
        tool(&tools.qemu_img, "--version", true).await,
    ];
    for plain in [&tools.ssh_keygen, &tools.setsid] {
        let found = plain.found().map(|path| path.display().to_string());
        items.push(item(
            plain.name,
            found.is_some(),
            true,
            found.unwrap_or_else(|| "not found".into()),
            Some(plain.hint()),
        ));
    }
    items.push(own_user(tools));
    items.push(disk(state_dir));
    CheckReport { ok: items.iter().all(|item| item.ok || !item.required), items }
}

async fn tool(tool: &Tool, argument: &str, required: bool) -> CheckItem {
    let said = version(tool, argument).await;
    let detail = match (&said, tool.found()) {
        (Some(version), _) => version.clone(),
        (None, Some(path)) => format!("{} does not say its version", path.display()),
        (None, None) if required => "not found".to_owned(),
        (None, None) => "not found: images that are there can be booted, new ones cannot be built".to_owned(),
    };
    item(tool.name, said.is_some(), required, detail, Some(tool.hint()))
}

async fn accelerator(tools: &Tools, state_dir: &Path) -> CheckItem {
    let found = Accelerator::here(tools, state_dir).await;
    let detail = match found {
        Accelerator::Kvm => "kvm",
        Accelerator::Tcg => "tcg: software emulation, several times slower than kvm",
    };
    let hint =
        "with a processor that can, load the module kvm_intel or kvm_amd and let this user write to /dev/kvm";
    item("accelerator", found == Accelerator::Kvm, false, detail, Some(hint.into()))
}

fn own_user(tools: &Tools) -> CheckItem {
    let root = rustix::process::geteuid().is_root();
    let detail = match (root, tools.setpriv.found()) {
        (true, Some(_)) => "each QEMU runs as a user of its own",
        (true, None) => "without setpriv QEMU runs as root",
        (false, _) => "QEMU runs as the user who starts it; only root can give it one of its own",
    };
    item("qemu_user", root && tools.setpriv.found().is_some(), false, detail, Some(tools.setpriv.hint()))
}

fn disk(state_dir: &Path) -> CheckItem {
    let existing = state_dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(existing) {
        Ok(stat) => {
            let free = stat.f_bavail * stat.f_frsize;
            let detail = format!("{} MB free below {}", free >> 20, existing.display());
            let hint = format!("images and machines need room: at least {} MB", LEAST_FREE >> 20);
            item("disk", free >= LEAST_FREE, false, detail, Some(hint))
        }
        Err(error) => item("disk", false, false, format!("{}: {error}", existing.display()), None),
    }
}

/// Facts for `inspect host`.
pub(crate) async fn facts(tools: &Tools, state_dir: &Path, cache: &Cache) -> Value {
    let images: Vec<Value> = cache
        .all()
        .into_iter()
        .map(|image| json!({ "hash": image.hash, "format": image.format, "disk_bytes": image.disk_bytes }))
        .collect();
    let mut engines = serde_json::Map::new();
    for (name, tool, argument) in [("qemu", &tools.qemu, "--version"), ("packer", &tools.packer, "version")] {
        if let Some(version) = version(tool, argument).await {
            engines.insert(name.into(), json!({ "version": version }));
        }
    }
    json!({
        "engines": engines,
        "isolation": { "vm_accelerator": Accelerator::here(tools, state_dir).await.as_str() },
        "images": { "folder": cache.root().display().to_string(), "vm": images },
    })
}
