//! A deadline that is kept on the host with nobody else alive: a small shell script in the sandbox's own directory,
//! which waits, tears down and removes the directory.
//!
//! The directory may be renamed meanwhile. It has a folder `.guard` with the script, the deadline, the time without use after which it
//! acts too, and the guard's own pid with its start time, so that a recycled pid is never taken for it.

use std::time::Duration;

use jiff::Timestamp;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::command::{Command, Output};
use crate::failure;
use crate::remote::Remote;

/// The folder for the guard's files, in the directory that it guards.
pub const FOLDER: &str = ".guard";

/// `kill_marked NAME=value`: ends every process of this user that has this in its environment, until none is left. For
/// teardown scripts.
pub const KILL_MARKED: &str = r#"
kill_marked() {
  _n=0; _z=0
  while [ $_n -lt 100 ] && [ $_z -lt 2 ]; do
    _n=$((_n+1)); _f=
    for _d in $(grep -lsF -- "$1" /proc/[0-9]*/environ); do _d=${_d#/proc/}; _d=${_d%/environ}; [ "$_d" = $$ ] || _f="$_f $_d"; done
    if [ "$_f" ]; then _z=0; kill -KILL $_f 2>/dev/null; else _z=$((_z+1)); fi
    sleep 0.05 2>/dev/null || sleep 1
  done
  [ $_z -ge 2 ]
}
"#;

/// Goes to the directory in `$1`, knows `same`: whether the guard that was written down is the one that runs.
macro_rules! at {
    ($body:literal) => {
        concat!(
            r#"
d=$1; case $d in "~") d=$HOME;; "~/"*) d=$HOME/${d#"~/"};; esac
cd -P -- "$d" 2>/dev/null || exit 44
same() {
  p= s=; { read -r p s <.guard/pid; } 2>/dev/null; [ "$p" ] || return 1
  { IFS= read -r x <"/proc/$p/stat"; } 2>/dev/null || return 1
  set -- ${x##*) }; [ "$1" != Z ] && [ "${20}" = "$s" ]
}
start() {
  unset SANDBOXER_EXEC
  if command -v setsid >/dev/null; then setsid sh .guard/script "$PWD" </dev/null >/dev/null 2>&1 &
  else nohup sh .guard/script "$PWD" </dev/null >/dev/null 2>&1 & fi
  n=0; until same; do n=$((n+1)); [ $n -gt 200 ] && { echo "the guard does not start" >&2; exit 50; }; sleep 0.02 2>/dev/null || sleep 1; done
}
put() { printf '%s\n' "$2" >".guard/$1.new" && mv -f -- ".guard/$1.new" ".guard/$1" || exit 50; }
"#,
            $body
        )
    };
}

const INSTALL: &str = at!(r#"
umask 077
mkdir -p .guard/running || exit 50
put deadline "$2"; put idle "$3"; put teardown "$4"; put script "$5"
[ -e .guard/activity ] || echo >.guard/activity || exit 50
same && exit 0
rm -f .guard/pid; start
"#);

const EXTEND: &str = at!(r#"same || exit 44; put deadline "$2"; kill -USR1 "$p""#);
const TOUCH: &str = at!(r#"echo >.guard/activity"#);
const ALIVE: &str = at!(r#"same"#);
const REVIVE: &str = at!(r#"
same && exit 0
{ read -r end <.guard/deadline; } 2>/dev/null && [ "$end" -gt "$(date +%s)" ] || exit 44
start
"#);
const STOP: &str = at!(r#"
n=0; while same; do kill -TERM "$p" 2>/dev/null; n=$((n+1)); [ $n -gt 100 ] && exit 50; sleep 0.02 2>/dev/null || sleep 1; done
exit 0
"#);

/// The guard itself. A second one that was started at the same time gives way.
const SCRIPT: &str = r#"
cd -P -- "$1" || exit
IFS= read -r x </proc/self/stat; me=${x%% *}; set -- ${x##*) }; mine="$me ${20}"
b=; trap 'kill $b 2>/dev/null; exit' TERM; trap : USR1; trap '' HUP
echo "$mine" >.guard/pid
busy() {
  for f in .guard/running/*; do
    p= s=; { read -r p s <"$f"; } 2>/dev/null; [ "$p" ] || continue
    if { IFS= read -r x <"/proc/$p/stat"; } 2>/dev/null; then set -- ${x##*) }; [ "$1" != Z ] && [ "${20}" = "$s" ] && return 0; fi
    rm -f -- "$f"
  done
  return 1
}
while :; do
  { read -r who <.guard/pid; } 2>/dev/null; [ "$who" = "$mine" ] || exit
  { read -r end <.guard/deadline && read -r idle <.guard/idle; } 2>/dev/null || exit
  now=$(date +%s); left=$((end-now))
  if [ "$idle" ] && [ $left -gt 0 ]; then
    if busy; then rest=$idle; else a=$(stat -c %Y .guard/activity) || exit; rest=$((a+idle-now)); fi
    [ $rest -lt $left ] && left=$rest
  fi
  [ $left -le 0 ] && break
  [ $left -gt 30 ] && left=30
  sleep $left & b=$!; wait $b; kill $b 2>/dev/null
done
trap '' TERM USR1
# The shell only knows what the directory was called when it came.
here=$(readlink "/proc/$me/cwd") || exit
while :; do
  cd -P -- "$here" || exit
  sh .guard/teardown
  cd /
  chmod -R u+rwX "$here" 2>/dev/null; rm -rf -- "$here" && exit
  sleep 30
done
"#;

/// The keeper of one directory's deadline.
#[derive(Clone)]
pub struct Guard {
    remote: Remote,
    dir: String,
}

impl Guard {
    /// The guard of this directory, absolute or `~/…`.
    pub fn new(remote: &Remote, dir: impl Into<String>) -> Self {
        Self { remote: remote.clone(), dir: dir.into() }
    }

    /// Starts it, or tells the one that is there. `teardown` is a shell script that runs in the directory when its time
    /// has come; then the directory is removed. The directory must exist.
    pub async fn install(&self, until: Timestamp, idle: Option<Duration>, teardown: &str) -> Result<()> {
        let idle = idle.map(|idle| idle.as_secs().max(1).to_string()).unwrap_or_default();
        let args = [self.dir.clone(), seconds(until), idle, teardown.to_owned(), SCRIPT.to_owned()];
        self.run(Command::script(INSTALL, args), "starting the guard of the deadline").await
    }

    /// Moves the deadline, later or sooner. `NotFound` when nobody keeps it any more.
    pub async fn extend(&self, until: Timestamp) -> Result<()> {
        self.run(Command::script(EXTEND, [self.dir.clone(), seconds(until)]), "moving the deadline").await
    }

    /// Somebody has used the sandbox just now.
    pub async fn touch(&self) -> Result<()> {
        self.run(Command::script(TOUCH, [self.dir.clone()]), "noting the use").await
    }

    /// Whether the deadline is being kept.
    pub async fn is_alive(&self) -> Result<bool> {
        let output = self.remote.output(Command::script(ALIVE, [self.dir.clone()]), LIMIT).await?;
        Ok(output.success())
    }

    /// Whether the directory is still to be kept. A guard that went with its machine's last boot is started again.
    pub async fn revive(&self) -> Result<bool> {
        match self
            .run(Command::script(REVIVE, [self.dir.clone()]), "starting the guard of the deadline")
            .await
        {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends the guard without its teardown. The directory is the caller's again.
    pub async fn stop(&self) -> Result<()> {
        let output = self.remote.output(Command::script(STOP, [self.dir.clone()]), LIMIT).await?;
        match output.outcome.exit_code {
            0 | 44 => Ok(()),
            _ => Err(failure::of("ending the guard of the deadline", &output)),
        }
    }

    async fn run(&self, command: Command, what: &str) -> Result<()> {
        let output: Output = self.remote.output(command, LIMIT).await?;
        match output.outcome.exit_code {
            0 => Ok(()),
            44 => Err(Error::new(ErrorKind::NotFound, "the sandbox's directory or its guard is gone")),
            _ => Err(failure::of(what, &output)),
        }
    }
}

const LIMIT: usize = 16 << 10;

/// Whole seconds, rounded up: never before the time.
fn seconds(time: Timestamp) -> String {
    let up = i64::from(time.subsec_nanosecond() > 0);
    (time.as_second() + up).to_string()
}

impl Remote {
    /// Ends every process of this user on the host that has `NAME=value` in its environment.
    pub async fn kill_marked(&self, name: &str, value: &str) -> Result<()> {
        const KILL: &str = r#"
n=0; z=0
while [ $n -lt 100 ] && [ $z -lt 2 ]; do
  n=$((n+1)); f=
  for d in $(grep -lsF -- "$1" /proc/[0-9]*/environ); do d=${d#/proc/}; f="$f ${d%/environ}"; done
  if [ "$f" ]; then z=0; kill -KILL $f 2>/dev/null; else z=$((z+1)); fi
  [ $z -ge 2 ] || sleep 0.05 2>/dev/null || sleep 1
done
[ $z -ge 2 ]
"#;
        self.check("ending the processes", Command::script(KILL, [format!("{name}={value}")])).await.map(drop)
    }
}
