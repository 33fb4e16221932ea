//! `credits`: balances, payments, what was moved, budgets, and whether the books are right.

mod budgets;
mod provider_keys;
mod reconcile;

use sandboxer_core::ledger::{Account, Kind};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{Error, ErrorKind, Money};
use sandboxer_engine::{
    BooksAudit, CreditKind, CreditRequest, Credits, EntryQuery, EntryView, LimitRequest, StatementFormat,
};
use tokio::io::AsyncReadExt as _;

use crate::api::Api;
use crate::args::{
    CreditsAddArgs, CreditsAdjustArgs, CreditsCommand, CreditsExportArgs, CreditsHistoryArgs, ExportFormat,
};
use crate::printer::{Printer, Tone};
use crate::status::{ExitStatus, Outcome};
use crate::table::{Fields, Rows};

pub(super) async fn run(command: CreditsCommand, api: &dyn Api, printer: &Printer) -> Outcome {
    match command {
        CreditsCommand::Show { account } => show(&api.credits(account.as_deref()).await?, printer)?,
        CreditsCommand::Add(args) => {
            let CreditsAddArgs { amount, account, memo, id } = args;
            let amount = amount.to_string();
            let request = CreditRequest { amount, account, memo, kind: CreditKind::Credit, id };
            add(&request, api, printer).await?;
        }
        CreditsCommand::Adjust(args) => {
            let CreditsAdjustArgs { amount, account, memo, id } = args;
            let (amount, account) = (amount.to_string(), Some(account));
            let request = CreditRequest { amount, account, memo, kind: CreditKind::Adjustment, id };
            add(&request, api, printer).await?;
        }
        CreditsCommand::History(args) => history(args, api, printer).await?,
        CreditsCommand::Export(args) => export(args, api, printer).await?,
        CreditsCommand::Limit { account, overdraft } => {
            let account = api.credits_limit(&LimitRequest { account, overdraft }).await?;
            if printer.is_json() {
                printer.document(&account)?;
            } else {
                accounts(&[account]).print(printer)?;
            }
        }
        CreditsCommand::Budget(command) => budgets::run(command, api, printer).await?,
        CreditsCommand::Audit => return audit(&api.audit().await?, printer),
        CreditsCommand::Reconcile(args) => return reconcile::run(args, api, printer).await,
        CreditsCommand::ProviderKeys(command) => provider_keys::run(command, api, printer).await?,
    }
    Ok(ExitStatus::SUCCESS)
}

fn accounts(accounts: &[Account]) -> Rows {
    let mut rows = Rows::new(["ACCOUNT", "BALANCE", "HELD", "OVERDRAFT"]);
    for account in accounts {
        let money = |amount: Money| amount.to_string();
        rows.row([
            account.account.clone(),
            money(account.balance),
            money(account.held),
            money(account.overdraft),
        ]);
    }
    rows
}

fn show(credits: &Credits, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(credits);
    }
    let pays_unseen = credits.accounts.iter().all(|account| account.account != credits.pays);
    if pays_unseen && credits.pays.starts_with("org:") {
        // It was opened, or the workspace's would be meant.
        accounts(&credits.accounts).print(printer)?;
        printer.note(&format!("{} pays for what you create; operators see what is on it", credits.pays));
    } else if credits.accounts.is_empty() {
        printer.note(&format!(
            "no credits yet; sandboxes on machines of your own need none. An operator opens {0} with \
             `sandboxer credits add AMOUNT --account {0}`",
            credits.pays
        ));
    } else {
        accounts(&credits.accounts).print(printer)?;
        printer.note(&format!("{} pays for what you create", credits.pays));
    }
    if !credits.budgets.is_empty() {
        if !credits.accounts.is_empty() {
            printer.line("")?;
        }
        budgets::table(&credits.budgets).print(printer)?;
    }
    Ok(())
}

async fn add(request: &CreditRequest, api: &dyn Api, printer: &Printer) -> Outcome<()> {
    let credited = api.credits_add(request).await?;
    if printer.is_json() {
        return printer.document(&credited);
    }
    let mut fields = Fields::default();
    fields
        .add("account", &*credited.account.account)
        .add(
            if request.kind == CreditKind::Credit { "paid in" } else { "adjusted by" },
            credited.amount.to_string(),
        )
        .add("balance", credited.account.balance.to_string())
        .add("transaction", &*credited.transaction);
    fields.print(printer)
}

async fn history(args: CreditsHistoryArgs, api: &dyn Api, printer: &Printer) -> Outcome<()> {
    let query = EntryQuery {
        account: args.account,
        sandbox: args.sandbox.map(|id| id.parse()).transpose()?,
        from: args.span.from,
        until: args.span.until,
    };
    let (mut items, mut cursor): (Vec<EntryView>, _) = (Vec::new(), args.cursor);
    loop {
        let left = args.limit.map_or(Limit::MAX, |limit| limit - items.len() as u32);
        let page = api.entries(&query, cursor.as_deref(), Limit::new(left.min(Limit::MAX))?).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() || args.limit.is_some_and(|limit| items.len() as u32 >= limit) {
            break;
        }
    }
    if printer.is_json() {
        return printer.document(&Page { items, next_cursor: cursor });
    }
    if items.is_empty() {
        printer.note("nothing was moved yet");
        return Ok(());
    }
    let mut rows = Rows::new(["TIME", "ACCOUNT", "KIND", "AMOUNT", "BALANCE", "SANDBOX", "MEMO"]);
    for entry in items {
        rows.row([
            entry.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            entry.account,
            kind(entry.kind).into(),
            entry.amount.to_string(),
            entry.balance.map(|balance| balance.to_string()).unwrap_or_default(),
            entry.sandbox_id.map(|id| id.to_string()).unwrap_or_default(),
            entry.memo,
        ]);
    }
    rows.print(printer)?;
    if let Some(cursor) = cursor {
        printer.note(&format!("there are more: --cursor {cursor}"));
    }
    Ok(())
}

fn kind(kind: Kind) -> &'static str {
    kind.as_str()
}

async fn export(args: CreditsExportArgs, api: &dyn Api, printer: &Printer) -> Outcome<()> {
    let format = match args.format {
        ExportFormat::Csv if !printer.is_json() => StatementFormat::Csv,
        ExportFormat::Csv | ExportFormat::Json => StatementFormat::Json,
    };
    let mut text = api.statement(args.month, args.account.as_deref(), format).await?;
    let mut chunk = vec![0_u8; 32 << 10];
    loop {
        let count = text.read(&mut chunk).await.map_err(|source| {
            Error::new(ErrorKind::BackendFailed, "the statement broke off").with_source(source)
        })?;
        if count == 0 {
            return Ok(());
        }
        printer.data(&chunk[..count])?;
    }
}

fn audit(audit: &BooksAudit, printer: &Printer) -> Outcome {
    let status = if audit.ok { ExitStatus::SUCCESS } else { ExitStatus::FAILURE };
    if printer.is_json() {
        printer.document(audit)?;
        return Ok(status);
    }
    let counted = format!("{} transactions, {} entries", audit.transactions, audit.entries);
    match audit.ok {
        true => printer.line(&printer.tone(Tone::Good, &format!("the books are right: {counted}")))?,
        false => {
            printer.line(&printer.tone(Tone::Bad, &format!("the books are WRONG: {counted}")))?;
            for wrong in &audit.wrong {
                printer.line(&format!("  {}", crate::human::cell(wrong)))?;
            }
        }
    }
    Ok(status)
}
