//! From a request to a sandbox of the host's own runtime: staged like a plain one, made under a lock, published.

use sandboxer_core::extension::{Handle, ProvisionRequest};
use sandboxer_core::isolation::{Control, IsolationLevel, Outcome};
use sandboxer_core::profile::WorkspaceAccess;
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use sandboxer_remote::{Command, Guard, Output, Remote, failure};
use serde_json::json;

use super::{LABEL, Native, PROFILE, record, sbx};
use crate::config::Settings;
use crate::sandbox::Data;

/// Says where the sandbox is, with its answer, or that it is a plain one; or makes a folder with the profile (`$4`) beside its place and says
/// where. `$1` the root, `$2` the tag, `$3` what makes the folder's name unique.
const BEGIN: &str = sbx!(
    r#"
mkdir -p -- "$r" && cd -P -- "$r" || exit 50
if [ -e "./$2/native" ]; then printf 'there %s\n%s\n' "$PWD/$2" "$h"; exec cat "./$2/native"; fi
if [ -d "./$2/workspace" ]; then echo 'plain -'; exit 0; fi
s=$2.staging.$3
mkdir "./$s" "./$s/workspace" "./$s/profiles" && printf '%s\n' "$4" >"./$s/profiles/profile.yaml" || exit 50
printf 'made %s\n%s\n' "$PWD/$s" "$h"
"#
);

/// Makes the sandbox and publishes the folder. `$1` the root, `$2` the tag, `$3` the folder, `$4` how long it lives, `$5`
/// the profile, `$6` whether it may be degraded. The lock goes with the process that has it; whoever is second finds
/// the first one's sandbox. What an attempt before us left half made goes first.
const CREATE: &str = sbx!(
    r#"
cd -P -- "$r" || exit 50
exec 9>"./$2.staging.lock" && flock 9 || exit 50
if [ -e "./$2/native" ]; then rm -f -- "./$2.staging.lock"; exec cat "./$2/native"; fi
[ -d "$3" ] || { echo "the sandbox was torn down meanwhile" >&2; exit 50; }
for id in $(ids "$2" 9>&-); do sbx destroy "$id" >/dev/null 9>&- || exit 50; done
cd -P -- "$3" || exit 50
sbx --profiles profiles create --json --profile "$5" --extension ext.native --host local --ttl "$4" --label "sandboxer.tag=$2" ${6:+--allow-degraded} >answer 9>&- || exit $?
id=$(id_in <answer); [ "$id" ] || exit 50
if [ "$(ls -A workspace)" ]; then
  { tar -C workspace -cf - . || : >broken; } | sbx cp - "$id:/workspace" >/dev/null 9>&- || exit 50
  [ -e broken ] && exit 50
fi
rm -rf workspace; mv -f answer native && mv -T -- "$3" "$r/$2" || exit 50
rm -f -- "$r/$2.staging.lock"
exec cat "$r/$2/native"
"#
);

/// What the guard does at the deadline, in the sandbox's folder. The runtime on the host keeps its own TTL beside.
const AT_THE_END: &str = r#"
id=$(sed -n 's/^ *"sandbox_id": *"\(sbx_[0-9a-z]*\)".*/\1/p' native 2>/dev/null); [ "$id" ] || exit 0
sandboxer --quiet --server '' --home "$HOME/.sandboxer/native" destroy "$id" >/dev/null 2>&1
"#;

const LIMIT: usize = 1 << 20;

/// Nothing when the tag has a plain sandbox already, from a time when the host could do no more.
pub(crate) async fn run(
    settings: &Settings,
    remote: &Remote,
    request: &ProvisionRequest,
) -> Result<Option<Handle>> {
    let unique = sandboxer_core::ExecId::generate().to_string();
    let begin = [settings.root.as_str(), &request.tag, &unique, &profile(request)];
    let output = remote.output(Command::script(BEGIN, begin), LIMIT).await?;
    if !output.success() {
        return Err(failure::of("making the sandbox's folder", &output));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.splitn(3, '\n');
    let (first, home) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    match first.split_once(' ') {
        Some(("plain", _)) => Ok(None),
        Some(("there", dir)) => {
            handle(request, dir, home, lines.next().unwrap_or_default().as_bytes()).map(Some)
        }
        Some(("made", made)) => {
            let placed = place(settings, remote, request, made).await;
            if placed.is_err() {
                discard(settings, remote, request, made).await;
            }
            let (root, _) = made.rsplit_once('/').unwrap_or_default();
            handle(request, &format!("{root}/{}", request.tag), home, &placed?).map(Some)
        }
        _ => Err(Error::new(ErrorKind::BackendFailed, "the host does not say where the sandbox is")),
    }
}

/// Fills the folder and has the sandbox made from it; the answer of the host's `sandboxer`.
async fn place(
    settings: &Settings,
    remote: &Remote,
    request: &ProvisionRequest,
    made: &str,
) -> Result<Vec<u8>> {
    let guard = Guard::new(remote, made);
    guard.install(request.expires_at, None, AT_THE_END).await?;
    if let Some(seed) =
        request.seed.as_ref().filter(|_| request.spec.workspace.access != WorkspaceAccess::None)
    {
        request.progress.say(format!("sending the workspace to {}", remote.name()));
        let file = tokio::fs::File::open(seed).await.map_err(|source| {
            Error::new(ErrorKind::BackendFailed, "the workspace to start with cannot be read")
                .with_source(source)
        })?;
        remote.files(format!("{made}/workspace")).tar_in(".", Box::pin(file)).await?;
    }
    request.progress.say(format!("{} makes the sandbox by its own runtime", remote.name()));
    let degraded = if request.spec.allow_degraded { "1" } else { "" };
    let ttl = left(request).to_string();
    let args = [settings.root.as_str(), &request.tag, made, &ttl, PROFILE, degraded];
    let output = remote.output(Command::script(CREATE, args), LIMIT).await?;
    if !output.success() {
        return Err(refused(&output));
    }
    if record(&output.stdout)?.labels.get(LABEL) != Some(&request.tag) {
        return Err(Error::new(ErrorKind::BackendFailed, "the host made another sandbox than was asked for"));
    }
    // Whoever was second has a folder too many.
    guard.stop().await?;
    remote.check("removing a second copy", Command::new(["rm", "-rf", "--", made])).await?;
    Ok(output.stdout)
}

/// What cannot be removed now is found by its tag, and ends at its deadline.
async fn discard(settings: &Settings, remote: &Remote, request: &ProvisionRequest, made: &str) {
    let _ = Guard::new(remote, made).stop().await;
    let _ = super::teardown(settings, remote, &request.tag, false).await;
    let _ = remote.output(Command::new(["rm", "-rf", "--", made]), LIMIT).await;
}

/// How long it still has. A moment that has passed leaves the shortest life that there is.
fn left(request: &ProvisionRequest) -> Dur {
    let left = request.expires_at.duration_since(jiff::Timestamp::now()).as_millis();
    Dur::from_millis(u64::try_from(left).unwrap_or(0).max(1_000))
}

/// The profile that the host makes it from: JSON is YAML. Variables go along with each command instead, so that none is
/// on the host's disk.
fn profile(request: &ProvisionRequest) -> String {
    let spec = &request.spec;
    let ttl = left(request);
    let mut profile = json!({
        "id": PROFILE,
        "version": "1.0.0",
        "description": "A sandbox that another machine asked for over SSH",
        "extension": "ext.native",
        "image": "host",
        "isolation": { "level": spec.isolation.level.max(IsolationLevel::Container) },
        "workspace": { "mode": "remote-canonical", "access": spec.workspace.access },
        "ttl": { "default": ttl, "max": "3650d" },
        "resources": spec.resources,
    });
    if let Some(idle) = request.idle_reap {
        profile["ttl"]["idle_reap"] = json!(idle);
    }
    profile.to_string()
}

/// Isolation is what the host itself reports, and the network between comes on top.
fn handle(request: &ProvisionRequest, dir: &str, home: &str, answer: &[u8]) -> Result<Handle> {
    let record = record(answer)?;
    let effective = record.isolation.effective.unwrap_or_default();
    let mut controls = record.isolation.controls;
    controls.push(Control {
        name: "boundary".into(),
        outcome: Outcome::Enforced,
        detail: "the host's own native runtime, behind the network, reached by SSH with a pinned key".into(),
    });
    let native = Native { id: record.sandbox_id.to_string(), home: home.to_owned() };
    let data = Data { dir: dir.to_owned(), variables: request.spec.variables.clone(), native: Some(native) };
    Ok(Handle {
        tag: request.tag.clone(),
        host: request.host.clone(),
        effective,
        controls,
        degraded: record.isolation.degraded,
        data: serde_json::to_value(data).unwrap_or_default(),
    })
}

/// Why the host's `sandboxer` did not make it, by its exit code.
fn refused(output: &Output) -> Error {
    let kind = match output.outcome.exit_code {
        7 => ErrorKind::IsolationUnavailable,
        5 => ErrorKind::Refused,
        2 => ErrorKind::InvalidInput,
        _ => return failure::of("making the sandbox on the host", output),
    };
    Error::new(kind, "the host's `sandboxer` refuses to make the sandbox")
        .with_source(std::io::Error::other(output.last_words()))
        .with_hint("`sandboxer doctor` on the host tells what is missing there")
}
