//! `credits budget`.

use sandboxer_core::Money;
use sandboxer_core::ledger::Budget;
use sandboxer_core::page::Page;
use sandboxer_engine::BudgetRequest;

use crate::api::Api;
use crate::args::BudgetCommand;
use crate::printer::Printer;
use crate::status::Outcome;
use crate::table::Rows;

pub(super) async fn run(command: BudgetCommand, api: &dyn Api, printer: &Printer) -> Outcome<()> {
    match command {
        BudgetCommand::Set { subject, per, limit } => {
            let budget = api.budget_set(&BudgetRequest { subject, period: per, limit }).await?;
            one(&budget, printer)
        }
        BudgetCommand::Remove { subject, per } => one(&api.budget_remove(&subject, per).await?, printer),
        BudgetCommand::List => {
            let items = api.credits(None).await?.budgets;
            if printer.is_json() {
                return printer.document(&Page { items, next_cursor: None });
            }
            if items.is_empty() {
                printer.note(
                    "no budgets; `sandboxer credits budget set SUBJECT --per day --limit AMOUNT` sets one",
                );
                return Ok(());
            }
            table(&items).print(printer)
        }
    }
}

fn one(budget: &Budget, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(budget);
    }
    table(std::slice::from_ref(budget)).print(printer)
}

pub(super) fn table(budgets: &[Budget]) -> Rows {
    let mut rows = Rows::new(["BUDGET OF", "PER", "LIMIT", "USED", "LEFT"]);
    for budget in budgets {
        let left = Money::from_nanos((budget.limit.nanos() - budget.used.nanos()).max(0));
        rows.row([
            budget.subject.clone(),
            budget.period.to_string(),
            budget.limit.to_string(),
            budget.used.to_string(),
            left.to_string(),
        ]);
    }
    rows
}
