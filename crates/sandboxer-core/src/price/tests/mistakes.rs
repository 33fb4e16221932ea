//! What is refused, where, and with which advice.

use super::*;

/// The error of a file that is `HEAD` with something after it, and its hint.
fn after_head(rest: &str) -> (String, String) {
    fault(&format!("{HEAD}{rest}"))
}

fn fault(text: &str) -> (String, String) {
    let (book, errors) = PriceBook::parse(&[("t.yaml", text)]);
    assert_eq!(errors.len(), 1, "{text}\n{errors:?}");
    assert!(book.cards().is_empty());
    assert_eq!(errors[0].kind(), ErrorKind::InvalidInput);
    (errors[0].to_string(), errors[0].hint().unwrap_or_default().to_owned())
}

fn rate(text: &str) -> (String, String) {
    after_head(&format!("rates:\n  - {text}\n"))
}

#[test]
fn amounts_that_cannot_be() {
    let amount =
        |amount: &str| rate(&format!("{{ meter: vcpu, amount: {amount}, per: second, unit: vcpu }}"));
    for (written, why) in [
        ("-0.1", "`-0.10 USD` is negative"),
        ("0", "a rate of zero is no rate"),
        ("0.000000000", "a rate of zero is no rate"),
        (".nan", "not an amount"),
        (".inf", "not an amount"),
        ("1e-5", "not an amount"),
        ("0.0000000001", "more than nine decimals"),
        ("99999999999999999999", "too large"),
        ("1000000.01", "is more than 1000000.00 USD"),
        ("0.1 EUR", "is in EUR"),
        ("[1]", "expected an amount"),
    ] {
        let (message, _) = amount(written);
        assert!(message.starts_with("t.yaml:7:"), "{written}: {message}");
        assert!(message.contains("`rates[0].amount`") && message.contains(why), "{written}: {message}");
    }
    assert!(amount("0.0000000001").1.contains("longer `per`"), "{:?}", amount("0.0000000001"));
}

#[test]
fn holes_are_named() {
    for key in ["extension", "currency", "as_of", "source", "basis"] {
        let rates = "rates: [{ meter: create, amount: 1 }]\n";
        let text: String = format!("{HEAD}{rates}")
            .lines()
            .filter(|line| !line.starts_with(key))
            .map(|line| format!("{line}\n"))
            .collect();
        assert!(fault(&text).0.contains(&format!("the key `{key}` is missing")), "{:?}", fault(&text));
    }
    for (text, hole) in [
        ("{ amount: 1, per: hour, unit: vcpu }", "meter"),
        ("{ meter: vcpu, per: hour, unit: vcpu }", "amount"),
        ("{ meter: vcpu, amount: 1, unit: vcpu }", "per"),
        ("{ meter: memory, amount: 1, per: hour }", "unit"),
        ("{ meter: vcpu, amount: null, per: hour, unit: vcpu }", "amount"),
    ] {
        let (message, _) = rate(text);
        assert_eq!(message, format!("t.yaml:7:5: the key `{hole}` is missing in `rates[0]`"), "{text}");
    }
    assert!(after_head("rates: []\n").0.contains("the key `rates` is missing"));
    assert!(after_head("").0.contains("the key `rates` is missing"));
}

#[test]
fn what_has_no_rate_is_said_to_be_bundled() {
    let vcpu = "{ meter: vcpu, amount: 1, per: hour, unit: vcpu }";
    let memory = vcpu.replace("unit: vcpu", "unit: gib").replace("vcpu", "memory");
    let create = "{ meter: create, amount: 1 }";
    for (rates, hole) in [(vcpu, "memory"), (&*memory, "vcpu"), (create, "vcpu")] {
        let (message, hint) = after_head(&format!("rates: [{rates}]\n"));
        assert_eq!(message, format!("t.yaml:6:8: `rates`: there is no rate for `{hole}`"));
        assert!(hint.contains(&format!("`bundled: [{hole}]`")), "{hint}");
    }
    let paused = memory.replace("unit", "states: [paused], unit");
    assert!(after_head(&format!("rates: [{vcpu}, {paused}]\n")).0.contains("not while running"));
    for (rest, why) in [
        (format!("rates: [{create}]\nbundled: [vcpu]\n"), "there is no rate for `memory`"),
        (format!("rates: [{vcpu}]\nbundled: [vcpu, memory]\n"), "`bundled`: `vcpu` has a rate of its own"),
        (format!("rates: [{vcpu}]\nbundled: [memory, memory]\n"), "`memory` stands there twice"),
        (format!("rates: [{vcpu}]\nbundled: [memroy]\n"), "`memroy` is not one of its values"),
        (format!("rates: [{vcpu}]\nbundled: memory\n"), "`bundled`"),
    ] {
        let (message, _) = after_head(&rest);
        assert!(message.contains(why), "{rest}: {message}");
    }
    let own = HEAD.replace("metered", "self-hosted")
        + "bundled: [vcpu]\nrates: [{ meter: host, amount: 1, per: hour }]\n";
    assert!(fault(&own).0.contains("only a metered provider bundles"), "{:?}", fault(&own));
    let fine = book(&format!("{HEAD}rates: [{vcpu}]\nbundled: [memory, disk]\n"));
    assert_eq!(fine.cards()[0].bundled, [MeterName::Memory, MeterName::Disk]);
}

#[test]
fn keys_and_words_have_suggestions() {
    assert_eq!(
        after_head("granuality: 1s\n"),
        ("t.yaml:6:1: unknown key `granuality`".into(), "did you mean `granularity`?".into())
    );
    assert_eq!(
        rate("{ meter: vcpu, price: 1 }").1,
        "known keys here are `meter`, `amount`, `per`, `unit`, `charged`, `free`, `states`, `model`, `slots`"
    );
    assert_eq!(rate("{ meter: memroy }").1, "did you mean `memory`?");
    assert_eq!(rate("{ meter: vcpu, amount: 1, per: hour, unit: gib }").1, "its values are `vcpu`, `core`");
    assert_eq!(after_head("<<: {a: 1}\n").0, "t.yaml:6:1: merge keys (`<<`) are not supported");
}

#[test]
fn another_currency_does_not_match() {
    let (message, _) = fault(&HEAD.replace("USD", "EUR"));
    assert_eq!(message, "t.yaml:2:11: `currency`: `EUR` does not match: every price and account is in USD");
}

#[test]
fn contradictions_are_refused() {
    let vcpu = "{ meter: vcpu, amount: 1, per: hour, unit: vcpu";
    for (rates, why) in [
        (
            format!("[{vcpu} }}, {vcpu}, states: [paused, running] }}]"),
            "priced twice while running: see `rates[0]`",
        ),
        (format!("[{vcpu}, states: [running, running] }}]"), "priced twice while running"),
        (format!("[{vcpu}, states: [] }}]"), "would never count"),
        (format!("[{vcpu}, states: [paused] }}]"), "priced while paused and not while running"),
        (
            format!("[{vcpu} }}, {}, states: [paused] }}]", vcpu.replace("hour", "minute")),
            "costs more paused",
        ),
        (format!("[{vcpu}, slots: 3 }}]"), "only a `host` is shared"),
        (format!("[{vcpu}, model: h100 }}]"), "only a `gpu` has a model"),
        (format!("[{vcpu}, charged: active, free: 1 }}]"), "can be free in part"),
        (format!("[{vcpu}, free: -1 }}]"), "`rates[0].free`"),
        ("[{ meter: vcpu, amount: 1, per: once, unit: vcpu }]".into(), "only `create` is paid `once`"),
        ("[{ meter: create, amount: 1, per: hour }]".into(), "`create` is paid `once`"),
        ("[{ meter: gpu, amount: 1, per: hour, charged: active }]".into(), "nobody measures"),
        ("[{ meter: host, amount: 1, per: hour }]".into(), "no `host` of ours"),
        (format!("[{vcpu} }}]\nhosts: {{ a: {{ amount: 1 }} }}"), "replace the `host` rate"),
        (format!("[{vcpu} }}]\nminimum: -1"), "`minimum`: `-1.00 USD` is negative"),
        (format!("[{vcpu} }}]\ngranularity: 0s"), "`granularity`: it is between"),
        (
            format!("[{vcpu} }}]\ndefaults: {{ vcpu: -1 }}"),
            "`defaults.vcpu`: `-1` is not a number of processors",
        ),
        (format!("[{vcpu} }}]\ndefaults: {{ vcpu: 0 }}"), "not a number of processors"),
    ] {
        let (message, _) = after_head(&format!("rates: {rates}\n"));
        assert!(message.contains(why), "{rates}: {message}");
        assert!(message.starts_with("t.yaml:"), "{message}");
    }
    let zero =
        HEAD.replace("metered", "self-hosted") + "rates: [{ meter: host, amount: 1, per: hour, slots: 0 }]\n";
    assert!(fault(&zero).0.contains("between 1 and"), "{:?}", fault(&zero));
}

#[test]
fn dates_names_and_sizes_are_checked() {
    for date in ["2026-13-01", "March", "2026", "'01.03.2026'"] {
        let text = HEAD.replace("2026-03-01", date) + "rates: [{ meter: create, amount: 1 }]\n";
        let (message, hint) = fault(&text);
        assert!(message.contains("`as_of`") && hint.contains("2026-03-01"), "{date}: {message}");
    }
    for id in ["e2b", "ext.", "ext.A", "ext.a/b"] {
        assert!(fault(&HEAD.replace("ext.x", id)).0.contains("not the id of an extension"), "{id}");
    }
    let long = HEAD.replace("list price", &"x".repeat(501)) + "rates: [{ meter: create, amount: 1 }]\n";
    assert!(fault(&long).0.contains("longer than 500"));
    assert!(fault(&"# x\n".repeat(100_000)).0.contains("larger than 256 KiB"));
    let many = "  - { meter: create, amount: 1 }\n".to_owned()
        + &(0..64)
            .map(|n| format!("  - {{ meter: gpu, amount: 1, per: hour, model: m{n} }}\n"))
            .collect::<String>();
    assert!(after_head(&format!("rates:\n{many}")).0.contains("more than 64"));
    for text in ["", "[]", "x", "\u{1b}[31m: 1\n"] {
        fault(text);
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(rest in "\\PC{0,200}") {
        PriceBook::parse(&[("t.yaml", rest.as_str())]);
        PriceBook::parse(&[("t.yaml", format!("{HEAD}{rest}").as_str())]);
    }
}
