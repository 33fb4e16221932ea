//! `profiles`: what there is, what one means, and whether a file is right.

use sandboxer_core::error::Failure;
use sandboxer_core::page::Page;
use sandboxer_engine::ProfileView;
use serde_json::json;

use crate::api::Api;
use crate::args::ProfilesCommand;
use crate::compose::Settings;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};
use crate::table::{Fields, Rows};

pub(super) async fn run(command: ProfilesCommand, api: &dyn Api, printer: &Printer) -> Outcome {
    match command {
        ProfilesCommand::List => list(api.profiles().await?, printer)?,
        ProfilesCommand::Show { name } => show(&api.profile(&name).await?, printer)?,
        ProfilesCommand::Validate { .. } => unreachable!("answered without an API"),
    }
    Ok(ExitStatus::SUCCESS)
}

/// Files are checked where they are.
pub(super) fn is_local(command: &ProfilesCommand) -> bool {
    matches!(command, ProfilesCommand::Validate { .. })
}

fn list(items: Vec<ProfileView>, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(&Page { items, next_cursor: None });
    }
    let mut rows = Rows::new(["PROFILE", "AVAILABLE", "FROM", "DESCRIPTION"]);
    for view in items {
        let available = if view.available {
            "yes".to_owned()
        } else {
            format!("no: {}", view.reason.unwrap_or_default())
        };
        rows.row([view.reference, available, view.origin, view.profile.description.unwrap_or_default()]);
    }
    rows.print(printer)
}

fn show(view: &ProfileView, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(view);
    }
    let mut fields = Fields::default();
    fields
        .add("profile", &*view.reference)
        .add("from", &*view.origin)
        .maybe("replaces", Some(view.shadows.join("\n")))
        .add("available", if view.available { "yes" } else { "no" })
        .maybe("because", view.reason.clone());
    fields.print(printer)?;
    printer.line("")?;
    printer.line(crate::human::inert(&view.profile.to_yaml()?).trim_end())
}

/// Every file for itself; the exit code is the worst.
pub(super) fn validate(command: ProfilesCommand, settings: &Settings, printer: &Printer) -> Outcome {
    let ProfilesCommand::Validate { files } = command else { return Ok(ExitStatus::SUCCESS) };
    let catalog = settings.catalog();
    let (mut worst, mut items) = (ExitStatus::SUCCESS, Vec::new());
    for path in files {
        let shown = path.display().to_string();
        match catalog.validate_file(&path) {
            Ok(profile) => {
                let reference = profile.reference();
                if !printer.is_json() {
                    printer.line(&crate::human::inert(&format!("{shown}: {reference} is valid")))?;
                }
                items.push(json!({ "file": shown, "valid": true, "profile": reference }));
            }
            Err(error) => {
                items.push(json!({ "file": shown, "valid": false, "error": Failure::from(&error) }));
                worst = worst.max(printer.error(&error));
            }
        }
    }
    if printer.is_json() {
        printer.document(&json!({ "items": items }))?;
    }
    Ok(worst)
}
