//! `create`: one sandbox, or what one would be.

use std::collections::BTreeMap;

use sandboxer_core::profile::{WorkspaceAccess, WorkspaceMode};
use sandboxer_core::request::{CreateRequest, WorkspaceRequest};
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Consumer, Error, ErrorKind, Money, Result, extension};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{route, show};
use crate::api::Api;
use crate::args::{CreateArgs, WorkspaceAccessArg, WorkspaceModeArg};
use crate::human;
use crate::printer::{Printer, Progress};
use crate::signals::Signals;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: CreateArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let (dry_run, key) = (args.dry_run, args.idempotency_key.clone());
    let request = request(args)?;
    if dry_run {
        return route::print_plan(&api.plan(request).await?, printer);
    }
    let is_canary = request == CreateRequest::default();
    let cancel = CancellationToken::new();
    let told = Told::new(printer);
    let work = api.create(request, key, cancel.clone(), told.progress());
    let sandbox = until_done(work, cancel, told, api, printer).await?;
    answer(&sandbox, printer)?;
    if is_canary && printer.talks() {
        next_steps(&sandbox, printer);
    }
    Ok(ExitStatus::SUCCESS)
}

/// What `create` and `recreate` print: the id alone, and on stderr what deserves attention.
pub(super) fn answer(sandbox: &Sandbox, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        printer.document(sandbox)?;
    } else {
        printer.line(&sandbox.sandbox_id.to_string())?;
    }
    show::warn_if_degraded(sandbox, printer);
    let fell_back = !sandbox.reused && sandbox.route.fallbacks().next().is_some();
    if let Some(tried) = show::tried(sandbox).filter(|_| fell_back && !printer.is_json()) {
        let taken = format!("{} was taken after {}", sandbox.extension, tried.replace('\n', "; "));
        printer.note(&human::inert(&taken));
    }
    if sandbox.quote.amount > Money::ZERO && !printer.is_json() && !sandbox.reused {
        let (held, extension, ttl) = (sandbox.quote.amount, &sandbox.extension, human::dur(sandbox.ttl));
        printer.note(&format!(
            "{held} are held for {ttl} on {extension}; what is not used goes back at the end"
        ));
    }
    if let Some(drift) = sandbox.drift.as_ref().filter(|_| printer.talks()) {
        let changed = drift.changed.join(", ");
        printer
            .note(&human::inert(&format!("{} lives and was not reused: {changed} differs", drift.previous)));
    }
    Ok(())
}

/// How far a create is, as whoever makes it tells.
pub(super) struct Told {
    sender: Option<mpsc::Sender<String>>,
    lines: mpsc::Receiver<String>,
}

impl Told {
    /// Lines on their way to the terminal at most; more are left out.
    const QUEUE: usize = 1_024;

    pub(super) fn new(printer: &Printer) -> Self {
        let (sender, lines) = mpsc::channel(Self::QUEUE);
        let wanted = !printer.is_quiet() && !printer.is_json();
        Self { sender: wanted.then_some(sender), lines }
    }

    /// Where to tell it; nothing when nobody wants to hear.
    pub(super) fn progress(&self) -> Option<extension::Progress> {
        let sender = self.sender.clone()?;
        Some(extension::Progress::new(move |line| {
            let _ = sender.try_send(line.to_owned());
        }))
    }

    async fn next(&mut self) -> String {
        match self.lines.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }
}

/// Waits for a create. A signal cancels it and then still waits, however often it comes: nothing may stay behind.
pub(super) async fn until_done(
    work: impl Future<Output = Result<Sandbox>>,
    cancel: CancellationToken,
    mut told: Told,
    api: &dyn Api,
    printer: &Printer,
) -> Result<Sandbox> {
    let mut signals = Signals::new()?;
    let mut progress = printer.progress("creating the sandbox");
    let slow = tokio::time::sleep(Progress::DELAY);
    tokio::pin!(work, slow);
    let mut is_slow = false;
    let sandbox = loop {
        tokio::select! {
            biased;
            line = told.next() => progress.tell(&line, printer),
            done = &mut work => break done?,
            _ = signals.next() => {
                progress.clear();
                if cancel.is_cancelled() {
                    printer.note("still removing what was made; please wait");
                } else {
                    printer.note("interrupted: removing what was made so far");
                    cancel.cancel();
                }
            }
            () = &mut slow, if !is_slow => {
                is_slow = true;
                progress.show();
            }
        }
    };
    if !cancel.is_cancelled() {
        return Ok(sandbox);
    }
    // It became ready in the very moment of the interruption. Whoever interrupted does not know its id.
    if !sandbox.reused {
        api.destroy(sandbox.sandbox_id).await?;
    }
    Err(Error::new(ErrorKind::Cancelled, "the create was cancelled"))
}

fn request(args: CreateArgs) -> Result<CreateRequest> {
    let map = |pairs: Vec<(String, String)>| pairs.into_iter().collect::<BTreeMap<_, _>>();
    let mode = args.workspace.workspace_mode.map(|mode| match mode {
        WorkspaceModeArg::Mirror => WorkspaceMode::Mirror,
        WorkspaceModeArg::RemoteCanonical => WorkspaceMode::RemoteCanonical,
    });
    let access = args.workspace.workspace_access.map(|access| match access {
        WorkspaceAccessArg::None => WorkspaceAccess::None,
        WorkspaceAccessArg::Ro => WorkspaceAccess::Ro,
        WorkspaceAccessArg::Rw => WorkspaceAccess::Rw,
    });
    let source = args.workspace.workspace.map(|folder| absolute(&folder)).transpose()?;
    let consumer = args.consumer;
    Ok(CreateRequest {
        scope: args.scope,
        workspace: (mode.is_some() || access.is_some() || source.is_some()).then_some(WorkspaceRequest {
            mode,
            access,
            source,
        }),
        consumer: Consumer {
            actor: consumer.actor.unwrap_or_default(),
            harness: consumer.harness,
            agent_id: consumer.agent_id,
            session_id: consumer.session_id,
            run_id: consumer.run_id,
            job_id: consumer.job_id,
        },
        labels: map(args.label),
        env: map(args.env),
        allow_degraded: args.allow_degraded,
        ..args.request.into_request(args.route)
    })
}

/// Where the folder is for an engine that does not know our working directory.
fn absolute(folder: &std::path::Path) -> Result<String> {
    let refused = || {
        Error::new(ErrorKind::InvalidInput, format!("--workspace {}: it cannot be used", folder.display()))
    };
    let folder = std::path::absolute(folder).map_err(|source| refused().with_source(source))?;
    folder.to_str().map(str::to_owned).ok_or_else(|| refused().with_hint("its path is not valid UTF-8"))
}

fn next_steps(sandbox: &Sandbox, printer: &Printer) {
    let (id, ttl) = (sandbox.sandbox_id, human::dur(sandbox.ttl));
    printer.note(&format!(
        "\nready for {ttl}; try\n  \
         sandboxer exec {id} -- uname -a\n  \
         sandboxer shell {id}\n  \
         sandboxer destroy {id}"
    ));
}
