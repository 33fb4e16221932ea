//! The fixed program that a host runs for every command of ours, and the lines that it is fed.
//!
//! Nothing that a caller says is in its arguments: the shell on the host reads one line with the script from its
//! input. The script says on both outputs where the command's own words start, runs it, and says on stderr how it
//! ended. So neither greetings of a login shell nor messages of the SSH client are ever mixed up with the command's.
//!
//! Beside the command sits a watcher, which reads control lines and ends the command with everything that it started
//! when it is told to, when its line of control breaks off, or when nobody has given a sign of life for a while.

use crate::command::{Command, Program};
use crate::quote::{one_line, quote};

/// How long the watcher lives without a sign of life from the caller.
const LEASE_SECONDS: u32 = 35;

/// Marks every process of one command; the value is the command's nonce.
pub(crate) const MARKER: &str = "SANDBOXER_EXEC";

/// `A` asks whether the shell that runs the command is still that one. `C` collects what belongs to the command into
/// `f`: whatever carries its marker, was started by it or is of its session. `K` sends it a signal, until nothing is left
/// when that is KILL. `M` signals the command alone. `L` is the lease. `W` reads control lines until the end.
///
/// No single quotes, newlines, backslashes before backslashes or exclamation marks: login shells of every kind have
/// to carry it in single quotes.
const FUNCTIONS: &str = concat!(
    "S() { { IFS= read -r x < /proc/$1/stat; } 2>/dev/null; }; ",
    "A() { S $w || return 1; set -- ${x##*) }; [ $1 != Z ] && [ ${20} = $t ]; }; ",
    "C() { f=; e=\" $v $1 \"; ",
    "for d in $(grep -lsF SANDBOXER_EXEC=$m /proc/[0-9]*/environ); do d=${d#/proc/}; f=\"$f ${d%/environ}\"; done; ",
    "A || return 0; l=; ",
    "for d in /proc/[0-9]*; do d=${d#/proc/}; S $d || continue; set -- ${x##*) }; [ $1 = Z ] || l=\"$l $d:$2:$3:$4\"; done; ",
    "f=\"$f \"; g=1; while [ $g = 1 ]; do g=0; for d in $l; do p=${d%%:*}; r=${d#*:}; o=${r%%:*}; r=${r#*:}; ",
    "[ $p = $w ] && continue; case \"$f\" in *\" $p \"*) continue;; esac; ",
    "case \"$e\" in *\" $p \"*|*\" $o \"*) continue;; esac; ",
    "if [ $o = $w ] || [ ${r%%:*} = $w ] || [ ${r#*:} = $w ]; then f=\"$f$p \"; g=1; ",
    "else case \"$f\" in *\" $o \"*) f=\"$f$p \"; g=1;; esac; fi; done; done; }; ",
    "K() { S self; y=${x%% *}; c=0; z=0; while [ $c -lt 80 ]; do c=$((c+1)); C $y; ",
    "case \"$f\" in *[0-9]*) z=0; kill -$1 $f 2>/dev/null;; *) z=$((z+1)); [ $z -gt 1 ] && break;; esac; ",
    "[ $1 = KILL ] || break; sleep 0.05 2>/dev/null || sleep 1; done; }; ",
    "M() { S self; C ${x%% *}; for d in $f; do S $d || continue; set -- $1 ${x##*) }; [ $3 = $w ] && kill -$1 $d; done; }; ",
    "L() { trap \"kill \\$b; exit\" TERM; sleep $n & b=$!; wait $b && A && K KILL; }; ",
    "W() { S self; v=${x%% *}; L & a=$!; ",
    "while IFS= read -r i; do case $i in h) kill $a; L & a=$!;; k) K KILL;; t*) K ${i#t};; s*) M ${i#s};; q) break;; esac; done; ",
    "kill $a; [ \"$i\" = q ] && return; A || return; sleep 0.2 || sleep 1; A && K KILL; }; ",
);

/// What the SSH server (or the local shell) is asked to run, the same for everything.
pub(crate) fn program() -> String {
    format!("{FUNCTIONS}IFS= read -r s && eval \"$s\"")
}

/// The same for a login shell, which need not be a POSIX one.
pub(crate) fn remote_command() -> String {
    format!("exec /bin/sh -c '{}'", program())
}

/// The program for a terminal, whose input is not for scripts: it finds its script in a file, which it removes at once.
pub(crate) fn terminal_program() -> String {
    format!("{FUNCTIONS}cd && f=.sandboxer/run/$0 && IFS= read -r s < $f && rm -f $f && eval \"$s\"")
}

/// The same for a login shell. A nonce is a plain word to every shell.
pub(crate) fn remote_terminal_command(nonce: &str) -> String {
    format!("exec /bin/sh -c '{}' {nonce}", terminal_program())
}

/// Puts a script where [`terminal_program`] finds it: `$1` is the nonce, `$2` the script.
pub(crate) const STORE_SCRIPT: &str = r#"
umask 077; cd && mkdir -p .sandboxer/run && printf '%s\n' "$2" >".sandboxer/run/$1"
"#;

/// The shell that runs a command, as it introduces itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shell {
    pid: u32,
    /// When it started, in the kernel's own units: a pid may be somebody else's later.
    start: u64,
    /// The process that ends the command if no watcher comes; 0 where the watcher is there from the beginning.
    lease: u32,
}

impl Shell {
    /// `pid start [lease]`, and nothing that is not a number.
    pub(crate) fn parse(words: &str) -> Option<Self> {
        let mut words = words.split_whitespace();
        let (pid, start) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { pid, start, lease: words.next().and_then(|word| word.parse().ok()).unwrap_or(0) })
    }
}

/// How the command gets its input and is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No input of its own: the line is the watcher's.
    Watched,
    /// The line is the command's input; the watcher has another.
    Fed,
    /// A terminal; the watcher has a line of its own.
    Terminal,
}

/// The first line of input: what to run and how.
pub(crate) fn script(command: &Command, nonce: &str, mode: Mode) -> String {
    let mut script =
        format!("m={nonce}; w=$$; n={LEASE_SECONDS}; v=0; S self; set -- ${{x##*) }}; t=${{20}}\n");
    if let Some(dir) = &command.cwd {
        let dir = directory(dir);
        script += &format!("cd -- {dir} 2>/dev/null || {{ echo {nonce} cwd >&2; exit 0; }}\n");
    }
    if let Some(folder) = &command.running {
        script += &format!("r={}; echo $w $t >\"$r/$m\"\n", quote(folder));
    }
    // What the shell itself has to say about the end of a command ("Killed") is not the command's.
    script += match mode {
        Mode::Watched => {
            "echo $m; echo $m $w $t >&2; exec 3<&0 4>&2 </dev/null 2>/dev/null\n\
             W <&3 3<&- 4>&- >/dev/null &\nexec 3</dev/null\n"
        }
        // Until the watcher on the other line has come, a lease of our own counts.
        Mode::Fed => {
            "exec 3<&0 4>&2 </dev/null 2>/dev/null; L 3<&- 4>&- >/dev/null &\n\
             l=$!; echo $m; echo $m $w $t $l >&4\n"
        }
        // Keys that interrupt or stop are for the command, and a line that is hung up is for the watcher.
        Mode::Terminal => {
            "exec 3<&0 4>&2 2>/dev/null; trap : INT QUIT HUP; trap \"\" TSTP\n\
             L </dev/null 3<&- 4>&- >/dev/null &\nl=$!; echo $m $w $t $l\n"
        }
    };
    script += &format!("( exec 3<&- 4>&-\n{}) <&3 2>&4\n", body(command, nonce));
    script += "c=$?; echo $m $c >&4; exec 4>&-\n";
    if mode != Mode::Watched {
        script += "S $l && { set -- ${x##*) }; [ $2 = $w ] && kill $l; }\n";
    }
    if command.running.is_some() {
        // The outputs end before this is put away.
        script += "exec >/dev/null; echo >\"${r%/*}/activity\"; rm -f -- \"$r/$m\"\n";
    }
    script += "exit $c\n";
    one_line(&script)
}

/// The control line of a command whose own input is in use.
pub(crate) fn watcher(nonce: &str, shell: &Shell) -> String {
    let Shell { pid, start, lease } = shell;
    one_line(&format!(
        "m={nonce}; w={pid}; t={start}; n={LEASE_SECONDS}; v=0; A || exit 0; kill {lease}\nW\nexit 0\n"
    ))
}

/// The command itself, in a shell of its own.
fn body(command: &Command, nonce: &str) -> String {
    let mut body = format!("export {MARKER}={nonce}\n");
    for (name, value) in &command.env {
        body += &format!("export {name}={}\n", quote(value));
    }
    let words = |args: &[String]| args.iter().map(|arg| quote(arg)).collect::<Vec<_>>().join(" ");
    match &command.program {
        Program::Argv(argv) => body += &format!("exec {}\n", words(argv)),
        Program::Script { text, args } => body += &format!("set -- {}\n{text}\n", words(args)),
    }
    body
}

/// `~/…` is below the home of the user on the host.
fn directory(dir: &str) -> String {
    match dir.strip_prefix("~/") {
        Some(rest) => format!("\"$HOME\"/{}", quote(rest)),
        None if dir == "~" => "\"$HOME\"".into(),
        None => quote(dir),
    }
}
