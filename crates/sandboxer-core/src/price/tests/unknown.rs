//! Files that do not tell whose price they are.

use super::*;

const BUILT_IN: &str = "built-in:ext.x.yaml";

fn price(extension: &str, amount: &str) -> String {
    format!(
        "{}bundled: [memory]\nrates: [{{ meter: vcpu, amount: {amount}, per: hour, unit: vcpu }}]\n",
        HEAD.replace("ext.x", extension)
    )
}

/// A built-in price of `ext.x`, and a folder of the user's.
fn beside(files: Vec<PriceFile>) -> PriceBook {
    PriceBook::of_folders(vec![vec![PriceFile::new(BUILT_IN, price("ext.x", "1"))], files])
}

fn ask(book: &PriceBook, extension: &str, is_self_hosted: bool) -> Result<Tariff> {
    book.tariff(extension, "local", &resources(1.0, 1), is_self_hosted, now())
}

#[test]
fn a_file_that_nobody_can_attribute_takes_every_metered_price() {
    let two = format!("{}extension: ext.y\n", price("ext.x", "2"));
    let typo = price("ext.x", "2").replace("extension", "extention");
    for broken in
        ["", "\u{feff}", "# nothing\n", "garbage: [", "[]", "7", "extension: [ext.x]\n", "extension: e2b\n"]
            .into_iter()
            .chain([&*two, &*typo])
    {
        let book = beside(vec![PriceFile::new("prices/a.yaml", broken.to_owned())]);
        let problems = book.problems();
        assert_eq!(problems.len(), 1, "{broken:?}");
        let told = problems[0].to_string();
        assert!(
            told.starts_with("prices/a.yaml") && told.contains("no metered extension has a price"),
            "{told}"
        );
        assert!(problems[0].hint().is_some());
        for extension in ["ext.x", "ext.other"] {
            let error = ask(&book, extension, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoBackend, "{broken:?}");
            assert!(error.to_string().contains("cannot be read: prices/a.yaml"), "{broken:?}: {error}");
        }
        assert!(book.current(now()).is_empty());
    }
}

#[test]
fn machines_of_ones_own_go_on_unless_the_folder_names_them() {
    let broken = || PriceFile::new("prices/a.yaml", "");
    let book = beside(vec![broken()]);
    assert!(ask(&book, "ext.unheard", true).unwrap().lines.is_empty());
    assert_eq!(ask(&book, "ext.x", true).unwrap().price, "ext.x 2026-03-01", "what an earlier folder says");
    let named = beside(vec![broken(), PriceFile::new("prices/x.yaml", price("ext.x", "2"))]);
    let error = ask(&named, "ext.x", true).unwrap_err();
    assert!(error.to_string().contains("prices/a.yaml"), "the other file might be the newer one: {error}");
    assert!(ask(&named, "ext.unheard", true).is_ok());
}

#[test]
fn a_later_folder_that_says_it_is_not_in_doubt() {
    let book = PriceBook::of_folders(vec![
        vec![PriceFile::unread(Error::new(ErrorKind::InvalidInput, "prices: cannot be read"))],
        vec![PriceFile::new("own/x.yaml", price("ext.x", "2"))],
    ]);
    assert_eq!(ask(&book, "ext.x", false).unwrap().lines[0].rate.amount, money("2"));
    let error = ask(&book, "ext.y", false).unwrap_err();
    assert!(error.to_string().ends_with("prices: cannot be read"), "{error}");
}

#[test]
fn every_way_of_writing_the_key_is_understood() {
    let plain = price("ext.x", "2");
    for text in [
        format!("\u{feff}{plain}"),
        plain.replace("extension:", "extension :"),
        plain.replace("extension:", "\"extension\":"),
        plain.replace("extension:", "'extension' :"),
        plain.replace("extension:", "? extension\n:"),
        plain.replace("extension: ext.x", "extension: 'ext.x' # the extension"),
        plain.replace("extension: ext.x", "extension:\n  ext.x"),
        plain.replace("extension: ext.x", "extension: !!str ext.x"),
        format!("---\n{plain}"),
        plain.lines().map(|line| format!("  {line}\n")).collect(),
        plain.replace('\n', "\r\n"),
    ] {
        let book = beside(vec![PriceFile::new("prices/a.yaml", text.clone())]);
        assert!(book.problems().is_empty(), "{text}\n{:?}", book.problems());
        assert_eq!(ask(&book, "ext.x", false).unwrap().lines[0].rate.amount, money("2"), "{text}");
    }
}

#[test]
fn a_broken_file_that_says_whose_it_is_harms_nobody_else() {
    let other = PriceFile::new("prices/y.yaml", price("ext.y", "3"));
    for (name, text) in [
        ("prices/a.yaml", "\u{feff}extension: ext.x\n"),
        ("prices/a.yaml", "extension : ext.x\ngarbage: [\n"),
        ("prices/a.yaml", "\"extension\": \"ext.x\"\ngarbage: [\n"),
        ("prices/a.yaml", "{ extension: ext.x }"),
        ("prices/ext.x.yml", "garbage: ["),
        ("prices/ext.x.YAML", ""),
    ] {
        let book = beside(vec![PriceFile::new(name, text), other.clone()]);
        assert_eq!(book.problems().len(), 1, "{text:?}");
        let error = ask(&book, "ext.x", false).unwrap_err();
        assert!(error.to_string().contains(&format!("broken: {name}")), "{text:?}: {error}");
        assert!(ask(&book, "ext.y", false).is_ok(), "{text:?}");
    }
}

#[test]
fn problems_of_later_folders_alone() {
    let book = PriceBook::of_folders(vec![
        vec![PriceFile::new("one/a.yaml", "")],
        vec![PriceFile::new("two/a.yaml", "")],
    ]);
    assert_eq!(book.problems().len(), 2);
    let later = book.problems_after(1);
    assert!(later.len() == 1 && later[0].to_string().starts_with("two/a.yaml"), "{later:?}");
}
