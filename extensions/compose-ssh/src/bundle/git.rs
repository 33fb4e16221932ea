//! A commit of a git repository as a folder.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::process::Command;

/// A shallow fetch of a big repository over a slow line.
const PATIENCE: Duration = Duration::from_secs(300);
/// What of git's words goes into an error.
const LAST_WORDS: usize = 600;

/// Fetches `REPOSITORY[#REF]` into the empty folder and checks it out.
pub(super) async fn check_out(reference: &str, folder: &Path) -> Result<()> {
    let (repository, wanted) = split(reference)?;
    let repository = match local_path(repository) {
        Some(path) => absolute(path)?,
        None => repository.to_owned(),
    };
    git(folder, &["init", "--quiet", "--template=", "."], reference).await?;
    let wanted = match local_path(&repository) {
        // Only the repository itself knows what an abbreviated commit or a remote branch means.
        Some(path) => resolve(path, wanted).await.unwrap_or_else(|| wanted.to_owned()),
        None => wanted.to_owned(),
    };
    git(folder, &["fetch", "--quiet", "--depth=1", "--no-tags", "--", &repository, &wanted], reference)
        .await?;
    git(folder, &["checkout", "--quiet", "--detach", "FETCH_HEAD"], reference).await
}

/// The repository and the reference in it; `HEAD` when none is named.
fn split(reference: &str) -> Result<(&str, &str)> {
    let (repository, wanted) = match reference.rsplit_once('#') {
        Some((repository, wanted)) => (repository, wanted),
        None => (reference, "HEAD"),
    };
    let is_plain =
        |text: &str| !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_control);
    if !is_plain(repository) || !is_plain(wanted) || wanted.contains([':', ' ', '^', '~', '\\']) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("`{}` is not a git repository and reference", printable(&redact(reference))),
        )
        .with_hint("write it as `PATH#REF` or `https://…/repository.git#REF`"));
    }
    Ok((repository, wanted))
}

/// A repository on this machine.
fn local_path(repository: &str) -> Option<&str> {
    if let Some(path) = repository.strip_prefix("file://") {
        return Some(path);
    }
    let is_path = repository.starts_with(['/', '.']) || !repository.contains(':');
    is_path.then_some(repository)
}

fn absolute(path: &str) -> Result<String> {
    std::path::absolute(path)
        .ok()
        .and_then(|path| path.to_str().map(str::to_owned))
        .ok_or_else(|| Error::new(ErrorKind::InvalidInput, format!("`{}` is not a path", printable(path))))
}

/// The commit that a reference means in a local repository.
async fn resolve(repository: &str, wanted: &str) -> Option<String> {
    let commit = format!("{wanted}^{{commit}}");
    let mut command = base(Path::new(repository));
    command.args(["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.ok()?.ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}

fn base(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(folder)
        .args([
            "-c",
            "protocol.version=2",
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "advice.detachedHead=false",
        ])
        .env("GIT_TERMINAL_PROMPT", "0")
        // `ext::` and friends run programs.
        .env("GIT_ALLOW_PROTOCOL", "file:git:http:https:ssh")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

async fn git(folder: &Path, args: &[&str], reference: &str) -> Result<()> {
    let shown = printable(&redact(reference));
    let output = tokio::time::timeout(PATIENCE, base(folder).args(args).output())
        .await
        .map_err(|_| {
            Error::new(
                ErrorKind::Timeout,
                format!("git took longer than {} s for `{shown}`", PATIENCE.as_secs()),
            )
        })?
        .map_err(|source| {
            Error::new(ErrorKind::InvalidInput, format!("`{shown}` cannot be fetched: git does not start"))
                .with_source(source)
                .with_hint("install git, or give the folder itself with `--input repo=PATH`")
        })?;
    if output.status.success() {
        return Ok(());
    }
    let words = redact(String::from_utf8_lossy(&output.stderr).trim());
    let words: String = words.chars().rev().take(LAST_WORDS).collect::<Vec<_>>().into_iter().rev().collect();
    Err(Error::new(
        ErrorKind::NotFound,
        format!("git cannot get `{shown}`: {}", words.replace(['\n', '\r'], " ")),
    )
    .with_hint(
        "check the address, the reference after `#`, and that git reaches it without asking for a password",
    ))
}

/// The same text without the `user:password@` of addresses.
fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(['/', ' ', '\'', '"', '\n']).unwrap_or(after.len());
        let authority = &after[..end];
        out.push_str(authority.rsplit_once('@').map_or(authority, |(_, host)| host));
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_split_and_options_refused() {
        assert_eq!(split("/a/b#v1").unwrap(), ("/a/b", "v1"));
        assert_eq!(split("https://x/y.git").unwrap(), ("https://x/y.git", "HEAD"));
        for bad in ["", "#v1", "/a#", "--upload-pack=x", "/a#--x", "/a#b:c", "/a#b c"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn passwords_of_addresses_are_not_shown() {
        assert_eq!(redact("fatal: https://me:secret@x/y 'ssh://a@b'"), "fatal: https://x/y 'ssh://b'");
    }
}
