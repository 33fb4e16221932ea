//! `keys`: API keys. A secret is printed when it is made and never again.

use jiff::Timestamp;
use sandboxer_core::KeyId;
use sandboxer_core::ledger::Seat;
use sandboxer_core::page::Page;

use crate::api::{Api, KeyView};
use crate::args::KeysCommand;
use crate::human;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};
use crate::table::Rows;

pub(super) async fn run(command: KeysCommand, api: &dyn Api, printer: &Printer) -> Outcome {
    match command {
        KeysCommand::Create { name, actor, expires_in, org, workspace } => {
            let seat = Seat { organisation: org, workspace };
            let made = api.key_create(&name, actor, expires_in, seat).await?;
            if printer.is_json() {
                printer.document(&made)?;
            } else {
                printer.line(&made.secret)?;
                printer.note(&format!(
                    "this is {}; the secret is not kept and not shown again",
                    made.key.key_id
                ));
            }
        }
        KeysCommand::List => list(api.key_list().await?, printer)?,
        KeysCommand::Revoke { id } => {
            let id: KeyId = id.parse()?;
            let key = api.key_revoke(id).await?;
            if printer.is_json() {
                printer.document(&key)?;
            } else {
                printer.line(&key.key_id.to_string())?;
            }
        }
    }
    Ok(ExitStatus::SUCCESS)
}

fn list(items: Vec<KeyView>, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(&Page { items, next_cursor: None });
    }
    if items.is_empty() {
        printer.note("no keys; `sandboxer keys create --name NAME` makes one");
        return Ok(());
    }
    let now = Timestamp::now();
    let mut rows = Rows::new(["KEY", "NAME", "ACTOR", "WORKSPACE", "STATE", "CREATED"]);
    for key in items {
        let state = match (key.revoked_at, key.expires_at) {
            (Some(end), _) => format!("revoked {}", human::relative(end, now)),
            (None, Some(end)) if end <= now => format!("expired {}", human::relative(end, now)),
            (None, Some(end)) => format!("valid, expires {}", human::relative(end, now)),
            (None, None) => "valid".into(),
        };
        let created = human::relative(key.created_at, now);
        let workspace = format!("{}/{}", key.organisation, key.workspace);
        rows.row([key.key_id.to_string(), key.name, key.actor.to_string(), workspace, state, created]);
    }
    rows.print(printer)
}
