//! `credits provider-keys`. A key comes from stdin or a file: arguments are visible to others.

use std::io::Read as _;
use std::path::Path;

use jiff::Timestamp;
use sandboxer_core::page::Page;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_engine::{ProviderKeyRequest, ProviderKeyView};

use crate::api::Api;
use crate::args::ProviderKeysCommand;
use crate::human;
use crate::printer::Printer;
use crate::status::{Outcome, io_error};
use crate::table::Rows;

const LONGEST: u64 = 64 * 1024;

pub(super) async fn run(command: ProviderKeysCommand, api: &dyn Api, printer: &Printer) -> Outcome<()> {
    match command {
        ProviderKeysCommand::List => {
            let items = api.provider_keys().await?;
            if printer.is_json() {
                return printer.document(&Page { items, next_cursor: None });
            }
            if items.is_empty() {
                printer.note("no workspace has a key of its own; the platform's are used");
                return Ok(());
            }
            table(items, printer)
        }
        ProviderKeysCommand::Set { whose, fee_percent, from_file } => {
            let key = read(from_file.as_deref(), printer)?;
            let request = ProviderKeyRequest {
                workspace: whose.workspace,
                extension: whose.extension,
                key,
                fee_percent,
            };
            one(api.provider_key_set(&request).await?, printer)
        }
        ProviderKeysCommand::Remove { whose } => {
            one(api.provider_key_remove(&whose.workspace, &whose.extension).await?, printer)
        }
    }
}

fn one(key: ProviderKeyView, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(&key);
    }
    table(vec![key], printer)
}

fn table(items: Vec<ProviderKeyView>, printer: &Printer) -> Outcome<()> {
    let now = Timestamp::now();
    let mut rows = Rows::new(["WORKSPACE", "EXTENSION", "FINGERPRINT", "FEE", "SET"]);
    for key in items {
        rows.row([
            format!("{}/{}", key.organisation, key.workspace),
            key.extension,
            key.fingerprint.unwrap_or_else(|| "MISSING".into()),
            format!("{} %", key.fee_percent),
            human::relative(key.created_at, now),
        ]);
    }
    rows.print(printer)
}

/// The key without the line break at its end.
fn read(file: Option<&Path>, printer: &Printer) -> Result<String> {
    let mut text = String::new();
    let (what, read) = match file {
        Some(path) => {
            let opened = std::fs::File::open(path)
                .map_err(|source| io_error(format!("{} cannot be read", path.display()), source))?;
            (path.display().to_string(), opened.take(LONGEST).read_to_string(&mut text))
        }
        None => {
            if std::io::IsTerminal::is_terminal(&std::io::stdin()) {
                printer.note("type or paste the key, then Ctrl-D");
            }
            ("stdin".to_owned(), std::io::stdin().lock().take(LONGEST).read_to_string(&mut text))
        }
    };
    read.map_err(|source| {
        Error::new(ErrorKind::InvalidInput, format!("no key can be read from {what}")).with_source(source)
    })?;
    let key = text.trim().to_owned();
    if key.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{what} has no key"))
            .with_hint("pass it as `… < key.txt` or with --from-file"));
    }
    Ok(key)
}
