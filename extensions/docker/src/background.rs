//! Commands that outlive their caller: a script inside runs them and keeps their output in the sandbox's own memory.

use jiff::Timestamp;
use sandboxer_core::exec::{EXIT_TIMED_OUT, ExecInfo, ExecOutcome, ExecSpec};
use sandboxer_core::{Error, ErrorKind, ExecId, Result};
use serde::{Deserialize, Serialize};

use crate::exec::Place;
use crate::inside;
use crate::signal;

const RUN: &str = include_str!("scripts/background.sh");
const LIST: &str = include_str!("scripts/background_list.sh");
/// Who may look at every background command. Without capabilities it can do nothing to them.
pub(crate) const ROOT: &str = "0:0";
/// How much of each output is kept.
const KEPT: u64 = 4 << 20;

/// What is written down about a command. It is in a process's arguments, so it has no environment.
#[derive(Serialize, Deserialize)]
struct Meta {
    command: Vec<String>,
    user: String,
    started_at: Timestamp,
}

/// One background command as the script inside sees it.
pub(crate) struct Known {
    pub(crate) info: ExecInfo,
    pub(crate) user: String,
}

impl Place {
    pub(crate) async fn exec_background(&self, spec: &ExecSpec) -> Result<ExecInfo> {
        if spec.tty.is_some() {
            return Err(Error::unsupported(crate::ID, "background commands with a terminal"));
        }
        let mut launch = self.launch(spec);
        let meta =
            Meta { command: spec.argv.clone(), user: launch.user.clone(), started_at: Timestamp::now() };
        let document = serde_json::to_string(&meta).map_err(|source| {
            Error::new(ErrorKind::Internal, "a command cannot be written down").with_source(source)
        })?;
        let seconds = spec.timeout.map_or(0, |timeout| timeout.as_millis().div_ceil(1_000)).to_string();
        let (id, kept) = (spec.exec_id.to_string(), KEPT.to_string());
        let input = if spec.stdin { "1" } else { "0" };
        let args = [id.as_str(), &document, &seconds, input, &kept, signal::SCRIPT, signal::how(self, true)];
        let mut argv: Vec<String> = vec!["/bin/sh".into(), "-c".into(), RUN.into(), "sandboxer".into()];
        argv.extend(args.map(str::to_owned));
        argv.append(&mut launch.argv);
        launch.argv = argv;
        launch.mark = format!("background-{id}");
        launch.stdin = false;
        self.set_off(self.config(&launch, true)).await?;
        Ok(ExecInfo {
            exec_id: spec.exec_id,
            command: meta.command,
            background: true,
            running: true,
            started_at: meta.started_at,
            ended_at: None,
            outcome: None,
        })
    }

    /// Starts the script and leaves it alone as soon as it stands on its own feet.
    async fn set_off(&self, config: bollard::models::ExecConfig) -> Result<()> {
        let id = self.create(config).await?;
        let path = format!("/exec/{id}/start");
        let mut stream =
            self.connected.hijack(&path, "{\"Detach\":false,\"Tty\":false}", "start a command").await?;
        let (mut said, mut buffer) = (Vec::new(), Vec::new());
        while stream.output.frame(&mut buffer).await.map_err(crate::errors::unreachable)?.is_some() {
            said.extend_from_slice(&buffer);
            if said.starts_with(b"started\n") {
                return Ok(());
            }
        }
        let words = String::from_utf8_lossy(&said);
        Err(Error::new(
            ErrorKind::BackendFailed,
            format!("a background command could not be started: {}", words.trim()),
        ))
    }

    pub(crate) async fn exec_list(&self) -> Result<Vec<ExecInfo>> {
        Ok(self.known("*").await?.into_iter().map(|known| known.info).collect())
    }

    /// One background command.
    pub(crate) async fn background(&self, id: ExecId) -> Result<Known> {
        self.known(&id.to_string()).await?.pop().ok_or_else(|| not_there(id))
    }

    async fn known(&self, which: &str) -> Result<Vec<Known>> {
        let mark = ExecId::generate().to_string();
        let answer = inside::run(self, ROOT, LIST, &[&mark, which]).await?.ok("list background commands")?;
        let text = String::from_utf8_lossy(&answer);
        let mut known: Vec<Known> = text.split(&format!("{mark} ")).filter_map(parse).collect();
        known.sort_by_key(|known| known.info.started_at);
        Ok(known)
    }
}

pub(crate) fn not_there(id: ExecId) -> Error {
    Error::new(ErrorKind::ExecNotFound, format!("there is no background command {id}"))
        .with_hint("only those of a living sandbox are remembered")
}

/// `ID CODE ENDED LATE ALIVE {…}`. The folder belongs to whoever is inside: what does not fit is left out.
fn parse(record: &str) -> Option<Known> {
    let mut fields = record.trim_end().splitn(6, ' ');
    let exec_id: ExecId = fields.next()?.parse().ok()?;
    let code: Option<i32> = fields.next()?.parse().ok();
    let ended = fields.next()?.parse().ok().and_then(|second| Timestamp::from_second(second).ok());
    let timed_out = fields.next()? == "1";
    let alive = fields.next()? == "1";
    let meta: Meta = serde_json::from_str(fields.next()?).ok()?;
    // Without a code and without its script it was killed from inside.
    let code = code.or((!alive).then_some(137));
    let outcome = code.map(|code| ExecOutcome {
        exit_code: if timed_out { EXIT_TIMED_OUT } else { code },
        signal: None,
        timed_out,
        out_of_memory: false,
    });
    let info = ExecInfo {
        exec_id,
        command: meta.command,
        background: true,
        running: outcome.is_none(),
        started_at: meta.started_at,
        ended_at: outcome.and(ended),
        outcome,
    };
    Some(Known { info, user: meta.user })
}
