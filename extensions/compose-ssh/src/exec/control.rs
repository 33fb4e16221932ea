//! What can be done to a running command. The docker client only carries streams: ending it ends nothing inside, so
//! signals go in by a command of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sandboxer_core::exec::{EXIT_TIMED_OUT, ExecControl, ExecOutcome, TtySize};
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use sandboxer_remote::Command;

use crate::site::Site;

/// How long a kill may take on a busy engine.
const KILL_LIMIT: Duration = Duration::from_secs(30);
/// How long the docker client may take to notice the end of what it carried.
const NOTICE_LIMIT: Duration = Duration::from_secs(5);

/// Runs inside, as the command's user: `$1` the exec's id, `$2` the signal, `$3` not empty for the whole tree. Only shell
/// words, since images differ in what else they have. A process belongs to the command by its marker, its parent or its
/// session; a kill goes on until nobody does. The signal `size` gives the command's terminal `$4` rows and `$5` columns.
const SIGNAL: &str = r#"
id=$1; signal=$2; tree=$3; self=$$
field() { x=; { IFS= read -r x <"/proc/$1/stat"; } 2>/dev/null; [ "$x" ] || return 1; set -- ${x##*) }; state=$1; parent=$2; session=$4; [ "$state" != Z ]; }
marked() { while IFS= read -r e || [ "$e" ]; do case "$e" in *"SANDBOXER_EXEC=$id"*) return 0;; esac; e=; done 2>/dev/null <"/proc/$1/environ"; return 1; }
collect() {
  found=" "; leader=; rest=
  for d in /proc/[0-9]*; do
    p=${d#/proc/}; [ "$p" = $self ] && continue
    field "$p" || continue
    if [ "$parent" = $self ]; then continue; fi
    if { marked "$p"; } 2>/dev/null; then found="$found$p "; [ "$parent" = 0 ] && leader=$p; else rest="$rest $p:$parent:$session"; fi
  done
  more=1
  while [ $more = 1 ]; do more=0
    for r in $rest; do
      p=${r%%:*}; r=${r#*:}
      case "$found" in *" $p "*) continue;; esac
      case "$found" in *" ${r%%:*} "*) found="$found$p "; more=1; continue;; esac
      case "$found" in *" ${r#*:} "*) found="$found$p "; more=1;; esac
    done
  done
}
n=0
while [ $n -lt 100 ]; do
  n=$((n+1)); collect
  if [ "$signal" = size ]; then [ -z "$leader" ] || stty -F "/proc/$leader/fd/0" rows "$4" cols "$5" 2>/dev/null; exit 0; fi
  if [ -z "$tree" ]; then [ -z "$leader" ] || kill -"$signal" "$leader"; exit 0; fi
  [ "$found" = " " ] && exit 0
  kill -"$signal" $found 2>/dev/null
  [ "$signal" = 9 ] || exit 0
  sleep 0.05 2>/dev/null || sleep 1
done
exit 1
"#;

/// Where the command runs.
pub(super) struct Inside {
    pub(super) site: Site,
    pub(super) container: String,
    pub(super) user: Option<String>,
    pub(super) exec_id: String,
}

impl Inside {
    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        self.run(&[&signal.to_string(), if whole_tree { "1" } else { "" }]).await
    }

    async fn resize(&self, size: TtySize) -> Result<()> {
        self.run(&["size", "", &size.rows.to_string(), &size.cols.to_string()]).await
    }

    async fn run(&self, args: &[&str]) -> Result<()> {
        let mut argv = vec!["docker", "exec"];
        if let Some(user) = &self.user {
            argv.extend(["-u", user]);
        }
        argv.extend([&self.container, "/bin/sh", "-c", SIGNAL, "sh", &self.exec_id]);
        argv.extend(args);
        let command = self.site.with_engine(Command::new(argv)).timeout(KILL_LIMIT);
        let output = self.site.remote.output(command, 16 << 10).await?;
        let words = output.last_words();
        // A container that is gone took the command with it.
        if output.success() || words.contains("is not running") || words.contains("No such container") {
            return Ok(());
        }
        Err(sandboxer_remote::failure::of("ending a command", &output))
    }

    async fn kill(&self) {
        // A full process table lets nothing in for a moment.
        for _ in 0..3 {
            match self.signal(9, true).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(exec = %self.exec_id, error = ?error, "a command could not be killed inside")
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

pub(super) struct Control {
    client: Arc<dyn ExecControl>,
    inside: Arc<Inside>,
    timed_out: Arc<AtomicBool>,
    ended: AtomicBool,
    watchdog: Option<tokio::task::JoinHandle<()>>,
}

impl Control {
    pub(super) fn start(
        client: Arc<dyn ExecControl>,
        inside: Inside,
        timeout: Option<Dur>,
    ) -> Arc<dyn ExecControl> {
        let inside = Arc::new(inside);
        let timed_out = Arc::new(AtomicBool::new(false));
        let watchdog = timeout.map(|timeout| {
            let (client, inside, timed_out) = (client.clone(), inside.clone(), timed_out.clone());
            tokio::spawn(async move {
                tokio::time::sleep(timeout.as_std()).await;
                timed_out.store(true, Ordering::SeqCst);
                inside.kill().await;
                tokio::time::sleep(NOTICE_LIMIT).await;
                let _ = client.signal(9, true).await;
            })
        });
        Arc::new(Self { client, inside, timed_out, ended: AtomicBool::new(false), watchdog })
    }
}

#[async_trait]
impl ExecControl for Control {
    async fn wait(&self) -> Result<ExecOutcome> {
        let outcome = self.client.wait().await?;
        self.ended.store(true, Ordering::SeqCst);
        if self.timed_out.load(Ordering::SeqCst) {
            return Ok(ExecOutcome {
                exit_code: EXIT_TIMED_OUT,
                signal: None,
                timed_out: true,
                out_of_memory: false,
            });
        }
        // The client reports what was killed inside as 128 and the signal.
        let signal = (129..=192).contains(&outcome.exit_code).then(|| outcome.exit_code - 128);
        Ok(ExecOutcome { exit_code: outcome.exit_code, signal, timed_out: false, out_of_memory: false })
    }

    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        if !(1..=64).contains(&signal) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{signal} is no signal")));
        }
        self.inside.signal(signal, whole_tree).await
    }

    async fn resize(&self, size: TtySize) -> Result<()> {
        self.client.resize(size).await?;
        // The client passes the size on some time later; whoever types next expects it to be there.
        self.inside.resize(size).await
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(watchdog) = self.watchdog.take()
            && !self.timed_out.load(Ordering::SeqCst)
        {
            watchdog.abort();
        }
        if self.ended.load(Ordering::SeqCst) || self.timed_out.load(Ordering::SeqCst) {
            return;
        }
        let inside = self.inside.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { inside.kill().await });
        }
    }
}
