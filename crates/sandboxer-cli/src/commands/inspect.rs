//! `inspect`: the host and one sandbox, from outside.

use jiff::Timestamp;
use sandboxer_core::extension::Usage;
use sandboxer_core::{ErrorKind, SandboxId};
use sandboxer_engine::{HostReport, ReapRequest, SandboxInspection};
use serde_json::Value;

use super::{reap_stale, show};
use crate::api::Api;
use crate::args::InspectCommand;
use crate::human;
use crate::printer::{Printer, Tone};
use crate::status::{ExitStatus, Outcome};
use crate::table::{Fields, Rows};

pub(super) async fn run(command: InspectCommand, api: &dyn Api, printer: &Printer) -> Outcome {
    match command {
        InspectCommand::Host { name } => return host(&api.inspect_host(name.as_deref()).await?, printer),
        InspectCommand::Stale { host } => {
            let request = ReapRequest { host, ..ReapRequest::default() };
            reap_stale::print(&api.reap_stale(&request).await?, &request, printer)?;
        }
        InspectCommand::Sandbox { id } => {
            let id: SandboxId = id.parse()?;
            sandbox(&api.inspect_sandbox(id).await?, printer)?;
        }
    }
    Ok(ExitStatus::SUCCESS)
}

/// Exits with 7 where the host did not answer: then these are old facts.
fn host(report: &HostReport, printer: &Printer) -> Outcome {
    let status = if report.reachable { ExitStatus::SUCCESS } else { ExitStatus::of(ErrorKind::Unreachable) };
    if printer.is_json() {
        printer.document(report)?;
        return Ok(status);
    }
    if !report.reachable {
        printer.warn("the host does not answer; these are the facts of the last time it did");
    }
    for problem in &report.problems {
        printer.warn(&human::inert(problem));
    }
    let mut facts = report.facts.clone();
    let features = facts.as_object_mut().and_then(|facts| facts.remove("isolation"));
    let mut fields = Fields::default();
    fields.toned("host", &*report.host, Tone::Strong);
    add_facts(&mut fields, "", &facts);
    fields.add("sandboxes", report.sandboxes.len().to_string());
    fields.print(printer)?;
    if let Some(rows) = features.as_ref().map(feature_rows).filter(|rows| !rows.is_empty()) {
        printer.line("")?;
        rows.print(printer)?;
    }
    if report.sandboxes.is_empty() {
        return Ok(status);
    }
    printer.line("")?;
    show::list(&report.sandboxes, printer)?;
    Ok(status)
}

/// What the kernel offers: everything that says `outcome`, at whatever depth.
fn feature_rows(features: &Value) -> Rows {
    let mut rows = Rows::new(["ISOLATION FEATURE", "OUTCOME", "DETAIL"]);
    for (name, value) in features.as_object().into_iter().flatten() {
        let feature = value.get("feature").unwrap_or(value);
        let text = |key: &str| feature.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        if feature.get("outcome").is_some() {
            let detail = if feature.get("reason").is_some() { text("reason") } else { text("detail") };
            rows.row([name.clone(), text("outcome"), detail]);
        }
    }
    rows
}

fn sandbox(inspection: &SandboxInspection, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(inspection);
    }
    let sandbox = &inspection.sandbox;
    let mut fields = Fields::default();
    fields
        .toned("sandbox", sandbox.sandbox_id.to_string(), Tone::Strong)
        .add("state", sandbox.state.to_string())
        .toned(
            "isolation",
            show::isolation_text(&sandbox.isolation),
            show::isolation_tone(&sandbox.isolation),
        );
    let mut read_back = None;
    match &inspection.backend {
        None => {
            fields.add("backend", "nothing of it lives");
        }
        Some(backend) => {
            fields.add("alive", if backend.alive { "yes" } else { "no" });
            add_usage(&mut fields, backend.usage.as_ref());
            let mut detail = backend.detail.clone();
            if let Some(detail) = detail.as_object_mut() {
                // Said above already, or below in a table.
                detail.retain(|key, _| !matches!(key.as_str(), "id" | "usage"));
                read_back = detail.remove("enforced");
            }
            add_facts(&mut fields, "", &detail);
        }
    }
    if let Some(verified) = read_back.as_ref().and_then(|enforced| enforced.get("verified")?.as_bool()) {
        fields.add("verified", if verified { "read back from the kernel just now" } else { "no" });
    }
    fields.print(printer)?;
    let rows = control_rows(inspection, read_back.as_ref());
    if rows.is_empty() {
        return Ok(());
    }
    printer.line("")?;
    rows.print(printer)
}

/// The controls as the backend reads them now, otherwise as they were when the sandbox was made.
fn control_rows(inspection: &SandboxInspection, read_back: Option<&Value>) -> Rows {
    let mut rows = Rows::new(["CONTROL", "OUTCOME", "DETAIL"]);
    let now = read_back.and_then(|enforced| enforced.get("controls")?.as_array());
    for control in now.into_iter().flatten() {
        let text = |key: &str| control.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        rows.row([text("control"), text("outcome"), text("detail")]);
    }
    if rows.is_empty() {
        for control in &inspection.sandbox.isolation.controls {
            rows.row([
                control.name.clone(),
                show::outcome_text(control.outcome).into(),
                control.detail.clone(),
            ]);
        }
    }
    rows
}

fn add_usage(fields: &mut Fields, usage: Option<&Usage>) {
    let Some(usage) = usage else { return };
    fields
        .maybe("memory", usage.memory_bytes.map(human::bytes))
        .maybe(
            "processor time",
            usage.cpu_usec.map(|usec| format!("{}.{:03} s", usec / 1_000_000, usec / 1_000 % 1_000)),
        )
        .maybe("processes", usage.pids.map(|pids| pids.to_string()))
        .maybe("disk", usage.disk_bytes.map(human::bytes));
}

/// Facts of an extension, whatever they are: one line each, named by their way down.
fn add_facts(fields: &mut Fields, way: &str, value: &Value) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let way = if way.is_empty() {
                    key.replace('_', " ")
                } else {
                    format!("{way} {}", key.replace('_', " "))
                };
                add_facts(fields, &way, value);
            }
        }
        Value::Null => {}
        Value::Bool(yes) => {
            fields.add(way, if *yes { "yes" } else { "no" });
        }
        Value::String(text) => {
            fields.add(way, &**text);
        }
        Value::Number(number) => {
            if let (Some(name), Some(count)) = (way.strip_suffix(" bytes"), number.as_u64()) {
                fields.add(name, human::bytes(count));
            } else if let (Some(name), Some(moment)) = (way.strip_suffix(" unix ms"), timestamp(number)) {
                fields.add(name, human::moment(moment, Timestamp::now()));
            } else {
                fields.add(way, number.to_string());
            }
        }
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let shown: Vec<String> = items
                .iter()
                .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                .collect();
            fields.add(way, shown.join(", "));
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                add_facts(fields, &format!("{way} {}", index + 1), item);
            }
        }
    }
}

fn timestamp(unix_ms: &serde_json::Number) -> Option<Timestamp> {
    Timestamp::from_millisecond(unix_ms.as_i64()?).ok()
}
