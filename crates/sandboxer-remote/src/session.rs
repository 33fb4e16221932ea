//! One running command: its streams, its time limit, its signals and how it ended.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandboxer_core::exec::{EXIT_TIMED_OUT, ExecControl, ExecOutcome, TtySize};
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot, watch};

use crate::marks::End;
use crate::transport::{Ended, Raw};

/// A sign of life for the watcher; it waits for three of them.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long a killed command may take to be reported as gone.
const GRACE: Duration = Duration::from_secs(15);
/// How long the end may lag behind the line.
const LAG: Duration = Duration::from_secs(5);

/// Control lines for the watcher. When the last sender is gone, the line breaks off and the watcher acts.
pub(crate) type Line = mpsc::UnboundedSender<String>;

/// What a handle asks of the task behind it.
pub(crate) enum Ask {
    Signal { signal: i32, whole_tree: bool },
}

/// What can be done to the command. The last one to drop it ends the command and everything that it started.
pub(crate) struct Running {
    asks: mpsc::UnboundedSender<Ask>,
    outcome: watch::Receiver<Option<Result<ExecOutcome>>>,
    terminal: Option<Arc<crate::tty::Terminal>>,
}

#[async_trait]
impl ExecControl for Running {
    async fn wait(&self) -> Result<ExecOutcome> {
        let mut outcome = self.outcome.clone();
        let seen = outcome.wait_for(Option::is_some).await;
        match seen.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            _ => Err(Error::new(ErrorKind::Internal, "nobody waits for the command any more")),
        }
    }

    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        if !(1..=64).contains(&signal) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{signal} is not a signal")));
        }
        // A command that is over has nobody to signal, which is no error.
        let _ = self.asks.send(Ask::Signal { signal, whole_tree });
        Ok(())
    }

    async fn resize(&self, size: TtySize) -> Result<()> {
        match &self.terminal {
            Some(terminal) => terminal.resize(size),
            None => Err(Error::new(ErrorKind::InvalidInput, "the command has no terminal")),
        }
    }
}

/// Everything that the task behind a running command needs.
pub(crate) struct Drive {
    pub(crate) host: String,
    pub(crate) line: Option<Line>,
    pub(crate) end: oneshot::Receiver<End>,
    pub(crate) ended: Ended,
    /// Resolves when nobody reads the output any more; absent where the output is in our own hands.
    pub(crate) unread: Option<oneshot::Receiver<()>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) terminal: Option<Arc<crate::tty::Terminal>>,
}

impl Drive {
    pub(crate) fn start(self) -> Running {
        let (asks, inbox) = mpsc::unbounded_channel();
        let (publish, outcome) = watch::channel(None);
        let terminal = self.terminal.clone();
        tokio::spawn(self.run(inbox, publish));
        Running { asks, outcome, terminal }
    }

    async fn run(
        mut self,
        mut inbox: mpsc::UnboundedReceiver<Ask>,
        publish: watch::Sender<Option<Result<ExecOutcome>>>,
    ) {
        let mut heartbeat = tokio::time::interval_at(tokio::time::Instant::now() + HEARTBEAT, HEARTBEAT);
        let never = Duration::from_secs(365 * 86_400);
        let timer = tokio::time::sleep(self.timeout.unwrap_or(never));
        tokio::pin!(timer);
        let (mut timed_out, mut line_open, mut code) = (false, true, None);
        let outcome = loop {
            tokio::select! {
                biased;
                end = &mut self.end => break match end {
                    Ok(End::Exit(code)) => Ok(outcome(code, timed_out)),
                    // The words ended before the command did; what became of the line tells why.
                    _ if timed_out => Ok(outcome(EXIT_TIMED_OUT, true)),
                    _ => self.without_words(line_open, code).await,
                },
                ended = &mut self.ended, if line_open => {
                    line_open = false;
                    match ended {
                        Ok(ended) => code = ended,
                        Err(error) => break Err(error),
                    }
                    if !timed_out {
                        timer.as_mut().reset(tokio::time::Instant::now() + LAG);
                    }
                }
                ask = inbox.recv() => match ask {
                    Some(Ask::Signal { signal, whole_tree }) => {
                        self.say(match (whole_tree, signal) {
                            (true, 9) => "k\n".into(),
                            (true, _) => format!("t{signal}\n"),
                            (false, _) => format!("s{signal}\n"),
                        });
                    }
                    // Nobody holds the session any more.
                    None => return self.abandon(line_open).await,
                },
                _ = heartbeat.tick() => self.say("h\n".into()),
                () = &mut timer => {
                    if timed_out {
                        break Ok(outcome(EXIT_TIMED_OUT, true));
                    }
                    if !line_open {
                        break self.without_words(false, code).await;
                    }
                    timed_out = true;
                    self.say("k\n".into());
                    timer.as_mut().reset(tokio::time::Instant::now() + GRACE);
                }
            }
        };
        self.say("q\n".into());
        self.line = None;
        publish.send_replace(Some(outcome));
        // The line stays for as long as somebody reads what is still on its way.
        if line_open {
            let unread = async {
                if let Some(unread) = self.unread.take() {
                    let _ = unread.await;
                }
                tokio::time::sleep(LAG).await;
            };
            tokio::select! {
                _ = &mut self.ended => {}
                () = unread => {}
            }
        }
    }

    fn say(&self, what: String) {
        if let Some(line) = &self.line {
            let _ = line.send(what);
        }
    }

    async fn abandon(mut self, line_open: bool) {
        self.say("k\n".into());
        self.line = None;
        if line_open {
            let _ = tokio::time::timeout(GRACE, &mut self.ended).await;
        }
    }

    /// The mark at the end did not come. The shell exits with the command's own code, so that this is as good; where
    /// there is none either, nobody knows how the command ended.
    async fn without_words(&mut self, line_open: bool, code: Option<i32>) -> Result<ExecOutcome> {
        let code = match line_open {
            true => tokio::time::timeout(LAG, &mut self.ended).await.unwrap_or(Ok(None))?,
            false => code,
        };
        code.map(|code| outcome(code, false)).ok_or_else(|| {
            Error::new(
                ErrorKind::Unreachable,
                format!("the shell on {} went away before it said how the command ended", self.host),
            )
        })
    }
}

fn outcome(code: i32, timed_out: bool) -> ExecOutcome {
    if timed_out {
        return ExecOutcome { exit_code: EXIT_TIMED_OUT, timed_out, ..ExecOutcome::default() };
    }
    // A shell cannot tell a signal from an exit code above 128; a command that says 128+N means the same.
    let signal = Some(code - 128).filter(|signal| (1..=64).contains(signal));
    ExecOutcome { exit_code: code, signal, ..ExecOutcome::default() }
}

/// A line over the command's own input, which it does not need.
pub(crate) fn own_line(mut stdin: sandboxer_core::exec::BoxWrite) -> Line {
    let (line, mut words) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        while let Some(word) = words.recv().await {
            if stdin.write_all(word.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
                break;
            }
        }
    });
    line
}

/// A line over a shell of its own, for a command whose input is in use.
pub(crate) fn separate_line(
    open: impl Future<Output = Result<Raw>> + Send + 'static,
    script: String,
) -> Line {
    let (line, mut words) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        let Ok(mut raw) = open.await else { return };
        let mut word = Some(script);
        while let Some(text) = word {
            if raw.stdin.write_all(text.as_bytes()).await.is_err() || raw.stdin.flush().await.is_err() {
                return;
            }
            word = words.recv().await;
        }
        drop(raw.stdin);
        let _ = tokio::time::timeout(GRACE, raw.ended).await;
    });
    line
}
