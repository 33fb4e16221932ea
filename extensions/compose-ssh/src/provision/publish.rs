//! The sandbox's folder on the host: filled beside its place, checked, then put there by one rename.

use std::time::Duration;

use sandboxer_core::extension::{Handle, ProvisionRequest};
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Stdin, failure};
use serde_json::Value as Json;
use tokio::io::AsyncWriteExt as _;

use super::content::Content;
use super::{Kept, internal};
use crate::judge::Source;
use crate::site::{Site, alone};

/// For the biggest bundle over a slow line.
const TRANSFER_LIMIT: Duration = Duration::from_secs(600);

const UNPACK: &str = alone!(
    r#"
umask 022
rm -rf -- "$1" && mkdir -m 700 -- "$1" && mkdir -m 755 -- "$1/project" && exec tar -x -o -p -f - -C "$1/project"
"#
);

/// As the snapshot has it, with its owners.
const COPY: &str = alone!(
    r#"
umask 022
[ -f "$2/taken.json" ] || { echo "the snapshot is gone" >&2; exit 44; }
rm -rf -- "$1" && mkdir -m 700 -- "$1" && exec tar -x -p -f "$2/project.tar" -C "$1"
"#
);

/// `$1` staging, `$2` folder, `$3` compose file, `$4` what is kept beside it, then the sources of mounts: `d` and a path
/// where a folder is to be made, `-` and a path of what must be there. No source may be, or be below, a link.
const FINISH: &str = alone!(
    r#"
umask 077
staging=$1; folder=$2
printf '%s' "$3" > "$staging/compose.json" && printf '%s' "$4" > "$staging/stack.json" && : > "$staging/empty.env" || exit 1
root=$(cd "$staging/project" && pwd -P) || exit 1
shift 4
while [ $# -gt 1 ]; do
  if [ "$1" = d ]; then (umask 022; mkdir -p -- "$root/$2") || exit 1; fi
  real=$(readlink -f -- "$root/$2") || exit 45
  [ "$real" = "$root/$2" ] && [ -e "$real" ] || { echo "$2" >&2; exit 45; }
  shift 2
done
[ ! -e "$folder" ] || { echo "$folder is in the way" >&2; exit 1; }
mv -- "$staging" "$folder"
"#
);

pub(super) async fn publish(
    site: &Site,
    request: &ProvisionRequest,
    content: &Content,
    file: &Json,
) -> Result<()> {
    let staging = site.staging(&request.tag);
    match (&content.bundle, &request.from) {
        (Some(bundle), _) => {
            request.progress.say(format!(
                "transferring {} KiB to {}",
                bundle.bytes.div_ceil(1_024),
                site.remote.name()
            ));
            send(site, &request.tag, &bundle.tar()).await?;
        }
        (None, Some(from)) => {
            let folder = site.snapshot_folder(&from.snapshot_id.to_string());
            let command = site
                .alone(&request.tag, Command::script(COPY, [staging.clone(), folder]))
                .timeout(TRANSFER_LIMIT);
            let output = site.remote.output(command, 64 << 10).await?;
            if output.outcome.exit_code == 44 {
                return Err(Error::new(
                    ErrorKind::SnapshotNotFound,
                    format!("{} has no snapshot {}", site.remote.name(), from.snapshot_id),
                ));
            }
            if !output.success() {
                return Err(failure::of("unpacking the snapshot", &output));
            }
        }
        (None, None) => return Err(Error::new(ErrorKind::Internal, "a stack without content")),
    }
    finish(site, request, content, file, &staging).await
}

async fn finish(
    site: &Site,
    request: &ProvisionRequest,
    content: &Content,
    file: &Json,
    staging: &str,
) -> Result<()> {
    let kept = Kept { stack: content.stack.clone(), service: content.service.clone() };
    let mut args = vec![
        staging.to_owned(),
        site.folder(&request.tag),
        serde_json::to_string_pretty(file)
            .map_err(|source| internal("our compose file cannot be written", source))?,
        serde_json::to_string(&kept).map_err(|source| internal("a stack cannot be written", source))?,
    ];
    for mount in content.stack.services.iter().flat_map(|service| &service.mounts) {
        if let Source::Bundle { path, missing } = &mount.source
            && !path.is_empty()
        {
            args.extend([if *missing { "d" } else { "-" }.to_owned(), path.clone()]);
        }
    }
    let output = site
        .remote
        .output(
            site.alone(&request.tag, Command::script(FINISH, args)).timeout(Duration::from_secs(60)),
            64 << 10,
        )
        .await?;
    match output.outcome.exit_code {
        0 => Ok(()),
        45 => Err(Error::new(
            ErrorKind::Refused,
            format!("the source of a mount is not what was judged: {}", output.last_words()),
        )),
        _ => Err(failure::of("putting the bundle in its place", &output)),
    }
}

/// Streams the bundle into the staging folder. A line that breaks off leaves that folder, which the tag finds.
async fn send(site: &Site, tag: &str, tar: &std::path::Path) -> Result<()> {
    let command = site
        .alone(tag, Command::script(UNPACK, [site.staging(tag)]))
        .stdin(Stdin::Piped)
        .timeout(TRANSFER_LIMIT);
    let session = site.remote.start(command).await?;
    let unreadable =
        |source| Error::new(ErrorKind::BackendFailed, "the bundle cannot be read").with_source(source);
    let mut file = tokio::fs::File::open(tar).await.map_err(unreadable)?;
    let Some(mut stdin) = session.stdin else {
        return Err(Error::new(ErrorKind::Internal, "a command without input"));
    };
    let feed = async {
        let sent = tokio::io::copy(&mut file, &mut stdin).await;
        let _ = stdin.shutdown().await;
        drop(stdin);
        sent
    };
    let mut words = Vec::new();
    let mut stderr = session.stderr.unwrap_or_else(|| Box::pin(tokio::io::empty()));
    let listen = tokio::io::AsyncReadExt::read_to_end(&mut stderr, &mut words);
    let (sent, _, outcome) = tokio::join!(feed, listen, session.control.wait());
    let outcome = outcome?;
    if outcome.exit_code == 0 && sent.is_ok() {
        return Ok(());
    }
    let output = sandboxer_remote::Output { outcome, stdout: Vec::new(), stderr: words, truncated: false };
    Err(failure::of("transferring the bundle", &output))
}

/// The handle beside the stack: whoever provisions the tag again gets the same.
pub(super) async fn keep_handle(site: &Site, handle: &Handle) -> Result<()> {
    let text =
        serde_json::to_string(handle).map_err(|source| internal("a handle cannot be written", source))?;
    let script = "umask 077; printf '%s' \"$2\" > \"$1/handle.json.new\" && mv -- \"$1/handle.json.new\" \"$1/handle.json\"";
    site.remote
        .check("keeping the handle", Command::script(script, [site.folder(&handle.tag), text]))
        .await
        .map(drop)
}
