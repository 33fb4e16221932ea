//! `hosts`: where sandboxes are placed.

use std::io::IsTerminal as _;

use futures::future::join_all;
use jiff::Timestamp;
use sandboxer_core::host::HostCapacity;
use sandboxer_core::page::Page;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_engine::{HostCheck, HostView, NewHost, known_host_name};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::extensions::{outcome, with_hint};
use crate::api::Api;
use crate::args::{HostsAddArgs, HostsCommand};
use crate::human;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome, io_error};
use crate::table::Rows;

pub(super) async fn run(command: HostsCommand, api: &dyn Api, printer: &Printer) -> Outcome {
    match command {
        HostsCommand::List => list(api.hosts().await?, printer)?,
        HostsCommand::Add(args) => {
            let host = add(*args, api, printer).await?;
            show_one(&host, printer)?;
        }
        HostsCommand::Remove { name } => show_one(&api.host_remove(&name).await?, printer)?,
        HostsCommand::Check { name } => return check(name, api, printer).await,
    }
    Ok(ExitStatus::SUCCESS)
}

fn show_one(host: &HostView, printer: &Printer) -> Outcome<()> {
    if printer.is_json() { printer.document(host) } else { printer.line(&host.name) }
}

fn list(items: Vec<HostView>, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(&Page { items, next_cursor: None });
    }
    let now = Timestamp::now();
    let mut rows = Rows::new(["HOST", "ADDRESS", "REGION", "LABELS", "SANDBOXES", "HEALTH"]);
    for host in items {
        let labels: Vec<String> = host.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let most = host.capacity.sandboxes.map_or_else(String::new, |most| format!(" of {most}"));
        let health = health(&host, now);
        rows.row([
            host.name,
            host.address.unwrap_or_else(|| "the engine's own machine".into()),
            host.region.unwrap_or_default(),
            labels.join(","),
            format!("{}{most}", host.load.sandboxes),
            health,
        ]);
    }
    rows.print(printer)
}

fn health(host: &HostView, now: Timestamp) -> String {
    let health = &host.health;
    let reason = health.reason.as_deref().unwrap_or("it failed");
    match (host.resting.then_some(health.cooled_until).flatten(), health.failures, health.checked_at) {
        (Some(until), ..) => format!("left alone, again {}: {reason}", human::relative(until, now)),
        (None, 1.., _) => format!("failed before: {reason}"),
        (None, 0, Some(at)) => match health.latency_ms {
            Some(latency) => format!("answered {} in {latency} ms", human::relative(at, now)),
            None => format!("answered {}", human::relative(at, now)),
        },
        (None, 0, None) if host.local => "ok".into(),
        (None, 0, None) => "not checked yet".into(),
    }
}

async fn add(args: HostsAddArgs, api: &dyn Api, printer: &Printer) -> Result<HostView> {
    let mut new = request(args).await?;
    let refused = match api.host_add(&new).await {
        Err(error) if error.kind() == ErrorKind::HostKeyRefused && new.fingerprints.is_empty() => error,
        other => return other,
    };
    let offered = refused.context().iter().find(|(key, _)| *key == "fingerprints");
    let Some((_, offered)) = offered.filter(|_| can_ask(printer)) else { return Err(refused) };
    printer.note(&human::inert(&refused.to_string()));
    printer.note("pin these keys? Compare them with the host's own first; type `yes` to pin them");
    let mut answer = String::new();
    BufReader::new(tokio::io::stdin())
        .read_line(&mut answer)
        .await
        .map_err(|source| io_error("your answer cannot be read", source))?;
    if answer.trim() != "yes" {
        return Err(refused);
    }
    // Exactly those that were shown: the host may show others by now.
    new.fingerprints = offered.split(',').map(str::to_owned).collect();
    api.host_add(&new).await
}

fn can_ask(printer: &Printer) -> bool {
    printer.talks() && std::io::stdin().is_terminal()
}

async fn request(args: HostsAddArgs) -> Result<NewHost> {
    let identity_file = match args.identity_file {
        None => None,
        Some(file) => {
            let absolute = std::path::absolute(&file)
                .map_err(|source| io_error(format!("{} cannot be used", file.display()), source))?;
            Some(absolute.into_os_string().into_string().map_err(|name| {
                Error::new(ErrorKind::InvalidInput, format!("{} is not text", name.display()))
            })?)
        }
    };
    let trust = args.trust;
    let host_keys = if trust.from_known_hosts {
        known_keys(&known_host_name(&args.address)?).await?
    } else {
        trust.host_key
    };
    Ok(NewHost {
        name: args.name,
        address: args.address,
        identity_file,
        labels: args.label.into_iter().collect(),
        region: args.region,
        capacity: HostCapacity {
            sandboxes: args.capacity.max_sandboxes,
            cpu: args.capacity.cpu,
            memory_mb: args.capacity.memory_mb,
            disk_mb: args.capacity.disk_mb,
        },
        host_keys,
        fingerprints: trust.fingerprint,
        accept_key: trust.accept_key,
    })
}

/// What this user's ssh has confirmed before. `ssh-keygen` also finds names that are hashed.
async fn known_keys(name: &str) -> Result<Vec<String>> {
    let own = std::env::var_os("HOME").map(|home| std::path::Path::new(&home).join(".ssh/known_hosts"));
    let mut keys = Vec::new();
    for file in own.into_iter().chain([std::path::PathBuf::from("/etc/ssh/ssh_known_hosts")]) {
        if !file.is_file() {
            continue;
        }
        let mut command = tokio::process::Command::new("ssh-keygen");
        command.args(["-F", name, "-f"]).arg(&file).stdin(std::process::Stdio::null()).kill_on_drop(true);
        let output = command
            .output()
            .await
            .map_err(|source| io_error("ssh-keygen cannot be run to look into known_hosts", source))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().filter(|line| !line.starts_with(['#', '@']));
        keys.extend(lines.filter_map(|line| line.split_once(' ').map(|(_, key)| key.to_owned())));
    }
    if keys.is_empty() {
        return Err(Error::new(
            ErrorKind::HostKeyRefused,
            format!("known_hosts has no key of {}", human::inert(name)),
        )
        .with_hint("connect to it once with ssh, or give --fingerprint"));
    }
    Ok(keys)
}

async fn check(name: Option<String>, api: &dyn Api, printer: &Printer) -> Outcome {
    let names = match name {
        Some(name) => vec![name],
        None => api.hosts().await?.into_iter().map(|host| host.name).collect(),
    };
    let checks = join_all(names.iter().map(|name| api.host_check(name))).await;
    let items: Vec<HostCheck> = checks.into_iter().collect::<Result<_>>()?;
    let ok = items.iter().all(|check| check.ok);
    let status = if ok { ExitStatus::SUCCESS } else { ExitStatus::of(ErrorKind::NoBackend) };
    if printer.is_json() {
        printer.document(&Page { items, next_cursor: None })?;
        return Ok(status);
    }
    let mut rows = Rows::new(["HOST", "EXTENSION", "CHECK", "OUTCOME", "DETAIL"]);
    for check in &items {
        host_rows(check, &mut rows);
    }
    rows.print(printer)?;
    Ok(status)
}

fn host_rows(check: &HostCheck, rows: &mut Rows) {
    let row = |extension: &str, what: &str, outcome: &str, detail: String| {
        [check.host.clone(), extension.to_owned(), what.to_owned(), outcome.to_owned(), detail]
    };
    if let Some(problem) = &check.problem {
        let hint = check.hint.as_ref().map_or_else(String::new, |hint| format!("; hint: {hint}"));
        rows.row(row("", "answers", "FAILED", format!("{problem}{hint}")));
        return;
    }
    if let Some(latency) = check.latency_ms {
        rows.row(row("", "answers", "ok", format!("with its pinned key, in {latency} ms")));
    }
    if check.extensions.is_empty() {
        rows.row(row("", "extensions", "MISSING", "no extension can use this kind of host".into()));
    }
    for extension in &check.extensions {
        let (id, report) = (&extension.extension, &extension.report);
        rows.row(row(id, "usable", if report.ok { "ok" } else { "no" }, String::new()));
        for item in report.items.iter().filter(|item| !item.ok) {
            rows.row(row(id, &item.name, outcome(item), with_hint(item)));
        }
    }
}
