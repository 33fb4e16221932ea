//! From a request to a directory: made beside its place with its deadline kept from the start, filled, published.

use sandboxer_core::extension::{Handle, ProvisionRequest};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::profile::{Image, WorkspaceAccess};
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::guard::KILL_MARKED;
use sandboxer_remote::{Command, Guard, Remote, failure, quote};

use crate::config::Settings;
use crate::native::{self, Probe};
use crate::remains;
use crate::report;
use crate::sandbox::{Data, MARKER, check_tag};

/// Says where the sandbox is, or makes a folder for it beside its place and says where that is.
/// `$1` the root, `$2` the tag, `$3` what makes the folder's name unique.
const BEGIN: &str = r#"
r=$1; case $r in "~/"*) r=$HOME/${r#"~/"};; esac
umask 077
mkdir -p -- "$r" && cd -P -- "$r" || exit 50
if [ -e "./$2/native" ]; then echo "the sandbox is of the host's own sandboxer, which cannot be used now" >&2; exit 50; fi
if [ -d "./$2/workspace" ]; then printf 'there %s' "$PWD/$2"; exit 0; fi
s=$2.staging.$3
mkdir "./$s" "./$s/workspace" || exit 50
printf 'made %s' "$PWD/$s"
"#;

/// Moves the folder `$1` to its place `$2`. A sandbox that is there already is never replaced: its folder is not empty,
/// and a rename does not replace such a one. Not every `mv` has `-T`.
const PUBLISH: &str = r#"
mv -T -- "$1" "$2" 2>/dev/null && exit 0
[ -e "$2" ] && exit 47
mv -- "$1" "$2"
"#;

const EXISTS: i32 = 47;
const LIMIT: usize = 64 << 10;

/// The host's own runtime where it has one, a plain directory otherwise. What asks for more than the network between is
/// refused where there is no more.
pub(crate) async fn run(
    settings: &Settings,
    remote: &Remote,
    request: &ProvisionRequest,
    probe: &Probe,
) -> Result<Handle> {
    if probe.usable()
        && let Some(handle) = native::provision(settings, remote, request).await?
    {
        if handle.effective >= wanted(request) || request.spec.allow_degraded {
            return Ok(handle);
        }
        remains::teardown(settings, remote, &request.tag).await?;
        let message = format!("{} gives isolation `{}` only", request.host, handle.effective);
        return Err(Error::new(ErrorKind::IsolationUnavailable, message)
            .with_hint("`sandboxer doctor` on the host tells what is missing there"));
    }
    let wanted = wanted(request);
    if wanted > IsolationLevel::Network {
        let obstacle = probe.obstacle.as_deref().unwrap_or("the sandbox was made when there was none");
        return Err(Error::new(
            ErrorKind::IsolationUnavailable,
            format!(
                "{} has no usable sandboxer, and isolation `{wanted}` is asked for: {obstacle}",
                request.host
            ),
        )
        .with_hint("install sandboxer on the host, or use profile.ssh-dev"));
    }
    plain(settings, remote, request).await
}

/// The isolation without which it must not be made.
fn wanted(request: &ProvisionRequest) -> IsolationLevel {
    request.spec.isolation.level.max(request.spec.requires.isolation.unwrap_or_default())
}

async fn plain(settings: &Settings, remote: &Remote, request: &ProvisionRequest) -> Result<Handle> {
    let tag = request.tag.as_str();
    let unique = sandboxer_core::ExecId::generate().to_string();
    let begin = Command::script(BEGIN, [settings.root.as_str(), tag, &unique]);
    let output = remote.output(begin, LIMIT).await?;
    if !output.success() {
        return Err(failure::of("making the sandbox's folder", &output));
    }
    let text = output.text();
    let made = match text.split_once(' ') {
        Some(("there", dir)) => return Ok(handle(request, dir)),
        Some(("made", dir)) => dir.to_owned(),
        _ => return Err(Error::new(ErrorKind::BackendFailed, "the host does not say where the sandbox is")),
    };
    let placed = place(remote, request, &made).await;
    match placed {
        Ok(dir) => Ok(handle(request, &dir)),
        Err(error) => {
            // What cannot be removed now ends at its deadline, and is found by its tag.
            let guard = Guard::new(remote, &made);
            let _ = guard.stop().await;
            let _ = remote.output(Command::new(["rm", "-rf", "--", &made]), LIMIT).await;
            Err(error)
        }
    }
}

/// Fills the folder and gives it its name. The deadline counts from here on, whoever goes away.
async fn place(remote: &Remote, request: &ProvisionRequest, made: &str) -> Result<String> {
    let teardown = format!("{KILL_MARKED}\nkill_marked {}\n", quote(&format!("{MARKER}={}", request.tag)));
    let guard = Guard::new(remote, made);
    guard.install(request.expires_at, request.idle_reap.map(|idle| idle.as_std()), &teardown).await?;
    if let Some(seed) = &request.seed {
        request.progress.say(format!("sending the workspace to {}", remote.name()));
        let file = tokio::fs::File::open(seed).await.map_err(|source| {
            Error::new(ErrorKind::BackendFailed, "the workspace to start with cannot be read")
                .with_source(source)
        })?;
        remote.files(format!("{made}/workspace")).tar_in(".", Box::pin(file)).await?;
        guard.touch().await?;
    }
    let (root, _) = made.rsplit_once('/').unwrap_or_default();
    let dir = format!("{root}/{}", request.tag);
    let output = remote.output(Command::script(PUBLISH, [made, &dir]), LIMIT).await?;
    match output.outcome.exit_code {
        0 => Ok(dir),
        EXISTS => {
            guard.stop().await?;
            remote.check("removing a second copy", Command::new(["rm", "-rf", "--", made])).await?;
            Ok(dir)
        }
        _ => Err(failure::of("publishing the sandbox", &output)),
    }
}

fn handle(request: &ProvisionRequest, dir: &str) -> Handle {
    let data = Data { dir: dir.to_owned(), variables: request.spec.variables.clone(), native: None };
    Handle {
        tag: request.tag.clone(),
        host: request.host.clone(),
        effective: IsolationLevel::Network,
        controls: report::controls(request),
        degraded: false,
        data: serde_json::to_value(data).unwrap_or_default(),
    }
}

/// What this backend cannot give is said before anything is made.
pub(crate) fn check(request: &ProvisionRequest) -> Result<()> {
    check_tag(&request.tag)?;
    let spec = &request.spec;
    let unsupported = |what: &str| Err(Error::unsupported(crate::ID, what));
    if wanted(request) > IsolationLevel::Container {
        let message = format!("{} gives no more than isolation `container`", crate::ID);
        return Err(Error::new(ErrorKind::IsolationUnavailable, message));
    }
    if spec.workspace.access == WorkspaceAccess::Ro {
        return unsupported("`workspace.access: ro`");
    }
    if spec.image != Image::Host {
        return unsupported("images: commands have the host's own tools");
    }
    if !spec.mounts.is_empty() {
        return unsupported("mounts");
    }
    if !spec.secrets.is_empty() || !spec.secret_refs.is_empty() {
        return unsupported("secrets");
    }
    if !spec.network.egress.is_empty() {
        return unsupported("egress rules");
    }
    if request.from.is_some() {
        return unsupported("snapshots");
    }
    Ok(())
}
