//! What people read: tables on stdout, everything else on stderr.

use std::io::Write as _;

use crate::burst::Burst;
use crate::memory::Level;
use crate::results::Results;
use crate::stats::Summary;
use crate::verdict::Verdict;

/// Published figures of hosted providers: name, median, p95, p99 in milliseconds.
const PUBLISHED: [(&str, u32, u32, u32); 8] = [
    ("miosa", 118, 131, 132),
    ("isorun", 138, 149, 153),
    ("daytona", 646, 848, 874),
    ("vercel", 666, 823, 906),
    ("modal", 1_046, 1_260, 1_387),
    ("blaxel", 1_054, 1_761, 1_809),
    ("e2b", 1_333, 1_602, 1_770),
    ("codesandbox", 8_381, 11_486, 11_998),
];
const PUBLISHED_ON: &str = "2026-10-09";

/// From nothing to the end of a first command.
const STARTS: [(&str, &str); 11] = [
    ("floor", "syscall floor: clone, overlay, pivot_root, exec"),
    ("bwrap", "bwrap --unshare-all"),
    ("crun", "crun run"),
    ("runc", "runc run"),
    ("docker_run", "docker run --rm"),
    ("http_create_exec", "sandboxer, HTTP: create + first exec"),
    ("http_create_exec_destroy", "sandboxer, HTTP: the same + destroy"),
    ("cold_create_exec", "sandboxer, HTTP, no warm pool: create + first exec"),
    ("cold_create_exec_destroy", "sandboxer, HTTP, no warm pool: the same + destroy"),
    ("cli_create", "sandboxer create (command line)"),
    ("cli_create_exec", "sandboxer create; sandboxer exec"),
];
/// A command where everything is there already.
const EXECS: [(&str, &str); 4] = [
    ("fork_exec", "fork + exec, no isolation"),
    ("docker_exec", "docker exec"),
    ("http_exec", "sandboxer, HTTP: exec"),
    ("cli_exec", "sandboxer exec (command line)"),
];
/// Where the time of ours goes.
const PARTS: [(&str, &str); 6] = [
    ("http_create", "HTTP: create"),
    ("http_first_exec", "HTTP: first exec"),
    ("http_destroy", "HTTP: destroy"),
    ("cold_create", "HTTP, no warm pool: create"),
    ("cold_first_exec", "HTTP, no warm pool: first exec"),
    ("cold_destroy", "HTTP, no warm pool: destroy"),
];
/// Below this many sandboxes, what the machine has less available is noise.
const VISIBLE: usize = 100;
const API: [(&str, &str); 6] = [
    ("health", "GET /healthz"),
    ("get_living", "GET a living sandbox"),
    ("get_ended", "GET an ended sandbox"),
    ("page_living", "a page of 100 living ones"),
    ("page_all", "a page of 100 of all"),
    ("create", "create"),
];

pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "==> {text}");
}

pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub(crate) fn startup(results: &Results) -> String {
    let bwrap = results.startup("bwrap").map(|summary| summary.p50);
    let docker = results.startup("docker_exec").map(|summary| summary.p50);
    let rows = |names: &[(&str, &str)], peer: Option<f64>| -> Vec<Vec<String>> {
        let found = names.iter().filter_map(|(name, label)| Some((*label, results.startup(name)?)));
        found.map(|(label, summary)| row(label, summary, peer)).collect()
    };
    let head = |peer: &str| ["ms", "p50", "p95", "p99", "n", peer].map(str::to_owned);
    format!(
        "{}\n{}\n{}",
        table("From nothing to a first command's end", &head("p50 / bwrap"), &rows(&STARTS, bwrap)),
        table("A command where everything is there", &head("p50 / docker exec"), &rows(&EXECS, docker)),
        table("Parts of the way over HTTP", &head("p50 / bwrap"), &rows(&PARTS, bwrap)),
    )
}

fn row(label: &str, summary: Summary, peer: Option<f64>) -> Vec<String> {
    let ratio = peer.map_or_else(|| "-".into(), |peer| format!("{:.3}", summary.p50 / peer));
    vec![label.into(), ms(summary.p50), ms(summary.p95), ms(summary.p99), summary.n.to_string(), ratio]
}

/// The form of the public leaderboard, and its best figures below.
pub(crate) fn bursts(bursts: &[Burst]) -> String {
    let head = ["TTI, ms", "median", "p95", "p99", "success"].map(str::to_owned);
    let ours = |(number, burst): (usize, &Burst)| {
        let summary = burst.trimmed();
        let success = format!("{:.0} %", burst.success_percent());
        let name = format!("sandboxer (loopback), burst {}", number + 1);
        vec![name, ms(summary.p50), ms(summary.p95), ms(summary.p99), success]
    };
    let mut rows: Vec<Vec<String>> = bursts.iter().enumerate().map(ours).collect();
    for (name, median, p95, p99) in PUBLISHED {
        let figures = [median, p95, p99].map(|figure| figure.to_string());
        rows.push([format!("{name} (network)")].into_iter().chain(figures).chain(["".into()]).collect());
    }
    let asked = bursts.first().map_or(0, |burst| burst.asked);
    let title = format!(
        "Burst: {asked} creates at once until each one's first command has ended, 5 % cut at each end"
    );
    let remark = format!(
        "Rows with (network) are published figures of hosted providers of {PUBLISHED_ON}, measured by others over the\n\
         internet and on other machines. They are not comparable with a loopback figure; they show the form and the scale."
    );
    format!("{}\n{remark}\n", table(&title, &head, &rows))
}

pub(crate) fn memory(levels: &[Level]) -> String {
    let head = [
        "sandboxes alive",
        "PSS each, KiB",
        "after an exec, KiB",
        "machine each, KiB",
        "exec p50, ms",
        "exec p99, ms",
    ];
    let row = |level: &Level| {
        let machine =
            if level.sandboxes < VISIBLE { "-".into() } else { format!("{:.0}", level.machine_kib) };
        let kib = [format!("{:.0}", level.pss_kib), format!("{:.0}", level.pss_after_exec_kib), machine];
        let times = [ms(level.exec.p50), ms(level.exec.p99)];
        [level.sandboxes.to_string()].into_iter().chain(kib).chain(times).collect()
    };
    let rows: Vec<Vec<String>> = levels.iter().map(row).collect();
    table(
        "Idle sandboxes: PSS of supervisor + init, and what the machine has less available",
        &head.map(str::to_owned),
        &rows,
    )
}

pub(crate) fn extensions(results: &Results) -> String {
    const ROWS: [(&str, &str, Option<&str>); 6] = [
        ("docker_bare", "docker run -d, docker exec (same hardening)", None),
        ("docker_ours", "ext.docker over HTTP: create + first exec", Some("docker_bare")),
        ("ssh_bare", "ssh through a control socket", None),
        ("ssh_ours", "ext.ssh over HTTP: a further exec", Some("ssh_bare")),
        ("mirror_first", "a mirrored folder: create with everything", None),
        ("mirror_sync", "a mirrored folder: sync of one changed file", None),
    ];
    let head = ["ms", "p50", "p95", "p99", "n", "p50 / bare"].map(str::to_owned);
    let found = ROWS.iter().filter_map(|(name, label, bare)| {
        let bare = bare.and_then(|bare| results.extensions(bare)).map(|summary| summary.p50);
        Some(row(label, results.extensions(name)?, bare))
    });
    let mut out = table("Extensions beside the bare tools", &head, &found.collect::<Vec<_>>());
    if let Some(stacks) = &results.stacks {
        out.push_str(&format!("{stacks}\n"));
    }
    out
}

pub(crate) fn payments(results: &Results) -> String {
    const ROWS: [(&str, &str); 3] = [
        ("health", "GET /healthz: the way through the connection"),
        ("create", "create: route, hold, provider, first interval"),
        ("destroy", "destroy: provider, settlement"),
    ];
    let head = ["ms over HTTP", "p50", "p95", "p99", "n", ""].map(str::to_owned);
    let found = ROWS.iter().filter_map(|(name, label)| Some(row(label, results.payments(name)?, None)));
    let mut out = table("Control plane on a provider that takes no time", &head, &found.collect::<Vec<_>>());
    for (name, value) in &results.figures {
        out.push_str(&format!("{name}: {value}\n"));
    }
    out
}

pub(crate) fn api(results: &Results) -> String {
    let full = format!("{} stored: p50", results.stored);
    let head =
        ["ms over HTTP", "few stored: p50", "p99", &full, "p95", "p99", "n", "ratio"].map(str::to_owned);
    let row = |(name, label): &(&str, &str)| {
        let (small, full) = (results.api(&format!("{name}_small"))?, results.api(&format!("{name}_full"))?);
        let figures = [small.p50, small.p99, full.p50, full.p95, full.p99].map(ms);
        let ends = [full.n.to_string(), format!("{:.2}", full.p50 / small.p50)];
        Some([(*label).to_owned()].into_iter().chain(figures).chain(ends).collect())
    };
    let rows: Vec<Vec<String>> = API.iter().filter_map(row).collect();
    table("The API with a full store and with a nearly empty one, in turns", &head, &rows)
}

pub(crate) fn verdicts(verdicts: &[Verdict]) -> String {
    let head = ["target", "measured", ""].map(str::to_owned);
    let row =
        |verdict: &Verdict| vec![verdict.target.clone(), verdict.measured.clone(), verdict.word().to_owned()];
    let rows: Vec<Vec<String>> = verdicts.iter().map(row).collect();
    table("Targets", &head, &rows)
}

fn ms(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.3}"),
        value if value < 100.0 => format!("{value:.2}"),
        value => format!("{value:.1}"),
    }
}

/// In the form of a Markdown table, so that it can be put into a document as it is.
fn table(title: &str, head: &[String], rows: &[Vec<String>]) -> String {
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let width = |column: usize| {
        let lengths = rows.iter().map(|row| cell(row, column).chars().count());
        lengths.chain([head[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String]| {
        let cells = widths.iter().enumerate().map(|(column, width)| match column {
            0 => format!("{:<width$}", cell(row, column)),
            _ => format!("{:>width$}", cell(row, column)),
        });
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(
            |(column, &width)| {
                if column == 0 { "-".repeat(width) } else { format!("{}:", "-".repeat(width.max(2) - 1)) }
            },
        )
        .collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!("\n**{title}**\n\n{}{}{body}", line(head), line(&rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "10.5".to_owned()], vec!["longer".to_owned(), "7".to_owned()]];
        let text = table("T", &["name".to_owned(), "ms".to_owned()], &rows);
        assert_eq!(
            text,
            "\n**T**\n\n| name   |   ms |\n| ------ | ---: |\n| a      | 10.5 |\n| longer |    7 |\n"
        );
    }
}
