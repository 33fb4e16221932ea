mod book;
mod laws;
mod mistakes;
mod unknown;

use super::*;
use crate::money::Money;

/// Well after every date in these tests.
fn now() -> Timestamp {
    "2026-11-16T00:00:00Z".parse().unwrap()
}

fn money(text: &str) -> Money {
    text.parse().unwrap()
}

fn resources(cpu: f64, memory_mb: u64) -> Resources {
    Resources { cpu: Some(cpu), memory_mb: Some(memory_mb), disk_mb: Some(1_024), ..Resources::default() }
}

/// The head of a metered file, to which rates are added.
const HEAD: &str = "\
extension: ext.x
currency: USD
as_of: 2026-03-01
source: list price
basis: metered
";

fn book(text: &str) -> PriceBook {
    let (book, errors) = PriceBook::parse(&[("t.yaml", text)]);
    assert!(errors.is_empty(), "{errors:?}");
    book
}

fn tariff_of(text: &str, resources: &Resources) -> Tariff {
    book(text).tariff("ext.x", "local", resources, false, now()).unwrap()
}
