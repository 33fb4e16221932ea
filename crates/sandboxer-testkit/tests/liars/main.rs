//! An extension that declares something and does not do it fails the case that is about it.
//!
//! The truth is `ext.native`; each liar says or does one thing differently. What the honest one passes, the liar fails.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod liar;

use std::sync::Arc;
use std::time::Duration;

use liar::{Liar, Lie};
use sandboxer_core::Extension;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_ext_native::{Native, NativeConfig};
use sandboxer_testkit::conformance::{Report, Subject, Verdict, run};
use tokio::task::JoinSet;

/// Each lie and the case that finds it.
const LIES: &[(Lie, &str)] = &[
    (Lie::ChangesItsName, "describe"),
    (Lie::NeedsWhatIsMissing, "check"),
    (Lie::LogsForEver, "backend_logs"),
    (Lie::NotReady, "provision.ready"),
    (Lie::ForgetsTheTag, "provision.again"),
    (Lie::ListsStrangers, "list"),
    (Lie::AlwaysSucceeds, "exec.codes"),
    (Lie::LossyText, "exec.binary"),
    (Lie::MixesStreams, "exec.streams"),
    (Lie::LosesInput, "exec.stdin"),
    (Lie::BuffersOutput, "exec.live"),
    (Lie::JoinsArguments, "exec.arguments"),
    (Lie::IgnoresFolder, "exec.cwd"),
    (Lie::EnvInArguments, "exec.env"),
    (Lie::IgnoresUser, "exec.user"),
    (Lie::TimesOutAlone, "exec.timeout"),
    (Lie::OutlivesItsSession, "exec.drop"),
    (Lie::NoTerminal, "exec.tty"),
    (Lie::ForgetsExecs, "background.logs"),
    (Lie::CutsFiles, "files.content"),
    (Lie::UntypedMissing, "files.missing"),
    (Lie::WritesBrokenData, "files.broken_off"),
    (Lie::FollowsOut, "files.escape"),
    (Lie::DropsLinks, "archive.round_trip"),
    (Lie::PlantsFiles, "archive.hostile"),
    (Lie::ConnectsToNothing, "port.closed"),
    (Lie::PausesNothing, "pause"),
    (Lie::SnapsNothing, "snapshot"),
    (Lie::SnapsNothing, "restore"),
    (Lie::SnapsNothing, "fork"),
    (Lie::DropsTheSeed, "workspace.seed"),
    (Lie::WritableWorkspace, "workspace.ro"),
    (Lie::AnyImage, "image"),
    (Lie::WritableMounts, "mounts"),
    (Lie::NoControls, "isolation.report"),
    (Lie::ClaimsMore, "isolation.report"),
    (Lie::ClaimsLimits, "limits.memory"),
    (Lie::ClaimsLimits, "limits.pids"),
    (Lie::Immortal, "ttl"),
    (Lie::EndsNextWeek, "ttl"),
    (Lie::KeepsItsDeadline, "ttl.extend"),
    (Lie::NeverIdle, "ttl.idle"),
    (Lie::NeedsItsHandle, "crash.provision"),
    (Lie::NeedsItsHandle, "clean_up"),
    (Lie::TearsNothingDown, "teardown"),
    (Lie::UnknownIsAnError, "teardown.unknown"),
    (Lie::SilentlyDoesNothing, "unsupported"),
];

fn main() {
    sandboxer_runtime::run_if_launcher();
    tokio::runtime::Runtime::new().unwrap().block_on(every_lie_is_found());
}

async fn every_lie_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("state");
    let honest = move || Arc::new(Native::new(NativeConfig::new(&root))) as Arc<dyn Extension>;
    let turns = Arc::new(tokio::sync::Semaphore::new(12));
    let mut running = JoinSet::new();
    for (lie, case) in LIES {
        let (honest, turns) = (honest.clone(), turns.clone());
        running.spawn(async move {
            let _turn = turns.acquire_owned().await;
            let make = move || Arc::new(Liar::new(honest(), *lie)) as Arc<dyn Extension>;
            let wanted = if *case == "clean_up" { "provision.ready" } else { case };
            let mut subject = Subject::new(make, SandboxSpec::default()).only(&[wanted]);
            subject.slack = Duration::from_secs(3);
            (lie, case, run(&subject).await)
        });
    }
    let mut believed = Vec::new();
    while let Some(ended) = running.join_next().await {
        let (lie, case, report) = ended.unwrap();
        if !found(&report, case) {
            believed.push(format!("{lie:?} is believed by `{case}`:\n{report}"));
        }
    }
    // Liars leave sandboxes behind; the honest one removes them.
    let native = Native::new(NativeConfig::new(folder.path().join("state")));
    for found in native.list("local", "sbx_").await.unwrap() {
        assert!(native.teardown("local", &found.tag, None).await.unwrap().is_clean());
    }
    assert!(believed.is_empty(), "{}", believed.join("\n"));
}

fn found(report: &Report, case: &str) -> bool {
    matches!(report.verdict(case), Some(Verdict::Failed { .. })) && !report.passed()
}
