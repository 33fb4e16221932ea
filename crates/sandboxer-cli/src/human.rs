//! Times and text as people read them.

use jiff::Timestamp;
use sandboxer_core::Dur;

/// `text` without anything a terminal would act on. Line breaks stay, as messages have them.
pub(crate) fn inert(text: &str) -> String {
    let escaped = text.chars().flat_map(|c| {
        let plain = !c.is_control() || c == '\n';
        let (whole, escape) = (plain.then_some(c), (!plain).then(|| c.escape_debug()));
        whole.into_iter().chain(escape.into_iter().flatten())
    });
    escaped.collect()
}

/// `text` on one line and of bounded length, for a cell of a table.
pub(crate) fn cell(text: &str) -> String {
    const LONGEST: usize = 200;
    let line = inert(text).replace('\n', " ");
    if line.chars().count() <= LONGEST {
        return line;
    }
    line.chars().take(LONGEST).chain(['…']).collect()
}

/// The two largest units of a span: `1d3h`, `2h5m`, `59s`.
pub(crate) fn span(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    let parts =
        [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(3);
    let shown = parts[first..].iter().take(2).filter(|(count, _)| *count > 0);
    let text: String = shown.map(|(count, unit)| format!("{count}{unit}")).collect();
    if text.is_empty() { "0s".into() } else { text }
}

/// How long ago, without the word.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    span(now.as_millisecond() - then.as_millisecond())
}

/// `in 1h59m`, or `12s ago`.
pub(crate) fn relative(moment: Timestamp, now: Timestamp) -> String {
    if moment > now { format!("in {}", age(now, moment)) } else { format!("{} ago", age(moment, now)) }
}

/// `in 2h (2026-01-01T10:00:00Z)`.
pub(crate) fn moment(moment: Timestamp, now: Timestamp) -> String {
    format!("{} ({moment})", relative(moment, now))
}

/// `4h`, and not `4h0m0s`.
pub(crate) fn dur(dur: Dur) -> String {
    dur.to_string()
}

/// `512 B`, `1.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1_024 {
        return format!("{count} B");
    }
    let (mut tenths, mut unit) = (count * 10 / 1_024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1_024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// `k=v,k2=v2`.
pub(crate) fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let shown: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    shown.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_show_two_units_at_most() {
        assert_eq!(span(0), "0s");
        assert_eq!(span(59_999), "59s");
        assert_eq!(span(7_500_000), "2h5m");
        assert_eq!(span(7_205_000), "2h");
        assert_eq!(span(97_200_000), "1d3h");
        assert_eq!(span(-5), "0s");
    }

    #[test]
    fn nothing_reaches_a_terminal_as_a_command() {
        assert_eq!(inert("a\u{1b}[31m\tb\nc"), "a\\u{1b}[31m\\tb\nc");
        assert_eq!(cell("a\nb"), "a b");
        assert!(cell(&"x".repeat(1_000)).chars().count() <= 201);
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(bytes(10 * 1_024 * 1_024), "10.0 MiB");
        assert!(bytes(u64::MAX / 16).ends_with("PiB"));
    }
}
