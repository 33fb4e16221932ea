//! The one function that turns text into a word of a POSIX shell.

/// The text as one word that every POSIX shell reads back byte by byte, whatever is in it (but NUL, which no argument
/// can carry).
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('\'');
    for c in text.chars() {
        match c {
            '\'' => out.push_str("'\\''"),
            _ => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// A script as one line, for a shell that reads it with `read` and evaluates it. Reading stops at the line's end, so
/// that what follows on the same stream is left for the command.
pub(crate) fn one_line(script: &str) -> String {
    // A new shell's IFS is space, tab, newline.
    format!("nl=${{IFS#??}}; eval {}\n", quote(script).replace('\n', "'\"$nl\"'"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn shells() -> Vec<Vec<&'static str>> {
        let known = [vec!["sh"], vec!["dash"], vec!["bash", "--posix"], vec!["busybox", "sh"]];
        known.into_iter().filter(|argv| Command::new(argv[0]).arg("--help").output().is_ok()).collect()
    }

    /// What the shell makes of the words that it reads from a line, and of what follows the line.
    fn read_back(shell: &[&str], words: &[&str], rest: &[u8]) -> Vec<u8> {
        let quoted = words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
        let mut child = Command::new(shell[0])
            .args(&shell[1..])
            .args(["-c", "IFS= read -r s && eval \"$s\""])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let script = format!("printf '%s\\0' {quoted}\ncat");
        stdin.write_all(one_line(&script).as_bytes()).unwrap();
        stdin.write_all(rest).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap().stdout
    }

    #[test]
    fn every_shell_reads_back_what_was_written() {
        let everything: String = (1..0x2ff_u32).filter_map(char::from_u32).collect();
        let words = [
            "",
            "plain",
            "two words",
            "it's",
            "''",
            "'",
            "\\",
            "\\n",
            "$(touch x)",
            "`x`",
            "a\nb",
            "\n",
            "\n\n'\n",
            "-n",
            "!",
            "*",
            "~",
            "tab\there",
            "ends with \\",
            "\u{81}\u{88}",
            "über 日本 🦀",
            &everything,
        ];
        let mut wanted: Vec<u8> = Vec::new();
        for word in words {
            wanted.extend(word.as_bytes());
            wanted.push(0);
        }
        let rest: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        wanted.extend(&rest);
        for shell in shells() {
            assert!(read_back(&shell, &words, &rest) == wanted, "{shell:?}");
        }
    }
}
