//! Where a bundle comes from: a folder, a commit, a tar, or the seed of the workspace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_workspace::{IgnoreSet, Rules, Why};

use super::{Bundle, TAR, git, unreadable, work_folder};

/// Names that compose tools look for; an ignore file for builds must not take them away.
pub(crate) const COMPOSE_NAMES: [&str; 4] =
    ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];
/// How much of a folder is searched for credentials that stayed behind.
const SEARCHED: usize = 20_000;
const SEARCHED_DEPTH: usize = 8;
const NAMED: usize = 20;

/// What the request says the stack is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Folder(PathBuf),
    Commit(String),
    Tar(PathBuf),
    /// The engine packed it; nothing of it is left out here.
    Seed(PathBuf),
}

impl Origin {
    /// Exactly one of `repo`, `repo_ref` and `compose_bundle_ref`.
    pub(crate) fn of(inputs: &BTreeMap<String, String>) -> Result<Self> {
        let given: Vec<(&str, &String)> = ["repo", "repo_ref", "compose_bundle_ref"]
            .into_iter()
            .filter_map(|name| inputs.get(name).filter(|value| !value.is_empty()).map(|value| (name, value)))
            .collect();
        match given.as_slice() {
            [("repo", path)] => Ok(Self::Folder(PathBuf::from(path))),
            [("repo_ref", reference)] => Ok(Self::Commit((*reference).clone())),
            [(_, path)] => Ok(Self::Tar(PathBuf::from(path))),
            [] => Err(Error::new(ErrorKind::InvalidInput, "nothing says which compose stack to start").with_hint(
                "give one of `--input repo=FOLDER`, `--input repo_ref=REPOSITORY#REF` and `--input compose_bundle_ref=FILE.tar`",
            )),
            several => {
                let names: Vec<&str> = several.iter().map(|(name, _)| *name).collect();
                Err(Error::new(ErrorKind::InvalidInput, format!("{} say different things", names.join(" and ")))
                    .with_hint("give exactly one of repo, repo_ref and compose_bundle_ref"))
            }
        }
    }
}

/// Makes the bundle. `include` names files that are taken although they look like credentials; `file` is the compose
/// file, if one was named.
pub(crate) async fn prepare(
    origin: Origin,
    include: &[String],
    file: Option<&str>,
    state_dir: &Path,
) -> Result<Bundle> {
    let rules = rules(include, file)?;
    let folder = work_folder(state_dir)?;
    let source = match &origin {
        Origin::Folder(path) => path.clone(),
        Origin::Commit(reference) => {
            let checkout = folder.path().join("checkout");
            std::fs::create_dir(&checkout).map_err(|source| unreadable("no checkout can be made", source))?;
            git::check_out(reference, &checkout).await?;
            checkout
        }
        Origin::Tar(path) | Origin::Seed(path) => path.clone(),
    };
    let work = move || -> Result<Bundle> {
        let target = folder.path().join(TAR);
        let secrets = match origin {
            Origin::Folder(_) | Origin::Commit(_) => pack(&source, &rules, &target)?,
            Origin::Tar(_) => filter(&source, &rules, &target)?,
            Origin::Seed(_) => {
                std::fs::copy(&source, &target)
                    .map_err(|source| unreadable("the seed cannot be read", source))?;
                Vec::new()
            }
        };
        let mut bundle = Bundle::open(folder, Vec::new())?;
        bundle.left_out =
            secrets.into_iter().filter(|path| bundle.index.kind(path).is_none()).take(NAMED).collect();
        Ok(bundle)
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|source| Error::new(ErrorKind::Internal, "packing broke off").with_source(source))?
}

fn rules(include: &[String], file: Option<&str>) -> Result<Rules> {
    let mut rules = Rules::bundle();
    // A `.dockerignore` speaks of build contexts; it commonly lists the very files that a stack is started from.
    rules.extra.extend(COMPOSE_NAMES.iter().map(|name| format!("!/{name}")));
    rules
        .extra
        .extend(["!Dockerfile", "!Dockerfile.*", "!*.Dockerfile", "!.dockerignore"].map(str::to_owned));
    for path in include.iter().map(String::as_str).chain(file) {
        let path = path.trim().trim_start_matches("./");
        if path.is_empty() || path.starts_with(['/', '!', '#']) || path.contains(['*', '?', '[', '\\', '\n'])
        {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("`{}` is not a path in the bundle", printable(path)),
            )
            .with_hint("`include` takes plain paths relative to the bundle, separated by commas"));
        }
        rules.extra.push(format!("!/{path}"));
    }
    Ok(rules)
}

/// Packs a folder; answers what in it looks like credentials.
fn pack(source: &Path, rules: &Rules, target: &Path) -> Result<Vec<String>> {
    if !source.is_dir() {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{} is not a folder", source.display()))
            .with_hint("`--input repo=` takes a folder on this machine; `compose_bundle_ref` takes a tar"));
    }
    let packed = sandboxer_workspace::pack(source, rules, target)?;
    if let Some(link) = packed.omitted.named.iter().find(|left| left.why == Why::LeadsOut) {
        tracing::debug!(path = %link.path, "a link that leads out of the bundle was left out");
    }
    let mut found = Vec::new();
    let mut budget = SEARCHED;
    search(source, Path::new(""), &credentials(), &mut budget, &mut found);
    Ok(found)
}

/// Only the rule about credentials.
fn credentials() -> IgnoreSet {
    let rules = Rules { gitignore: false, dockerignore: false, git: true, ..Rules::bundle() };
    IgnoreSet::new(&rules)
}

fn search(top: &Path, at: &Path, secret: &IgnoreSet, budget: &mut usize, found: &mut Vec<String>) {
    if at.components().count() > SEARCHED_DEPTH {
        return;
    }
    let Ok(entries) = std::fs::read_dir(top.join(at)) else { return };
    for entry in entries.flatten() {
        if *budget == 0 || found.len() > NAMED {
            return;
        }
        *budget -= 1;
        let path = at.join(entry.file_name());
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if secret.ignores(&path, is_dir) {
            found.push(path.to_string_lossy().into_owned());
        } else if is_dir && entry.file_name() != ".git" && entry.file_name() != "node_modules" {
            search(top, &path, secret, budget, found);
        }
    }
}

/// Copies a tar without history and credentials; answers what looked like credentials.
fn filter(source: &Path, rules: &Rules, target: &Path) -> Result<Vec<String>> {
    let broken = |source| {
        Error::new(ErrorKind::InvalidInput, "the bundle is not a readable tar")
            .with_source(source)
            .with_hint("`compose_bundle_ref` takes a plain tar, not a compressed one")
    };
    let file = File::open(source)
        .map_err(|error| unreadable(format!("the bundle {} cannot be read", source.display()), error))?;
    let ignored = IgnoreSet::new(rules);
    let secret = credentials();
    let mut left_out = Vec::new();
    let mut archive = tar::Archive::new(BufReader::with_capacity(256 << 10, file));
    let out = File::create(target).map_err(|source| unreadable("the bundle cannot be written", source))?;
    let mut builder = tar::Builder::new(BufWriter::with_capacity(256 << 10, out));
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?.into_owned();
        let is_dir = entry.header().entry_type().is_dir();
        let plain: PathBuf =
            path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect();
        if ignored.ignores(&plain, is_dir) {
            if secret.ignores(&plain, is_dir) && !is_dir {
                left_out.push(plain.to_string_lossy().into_owned());
            }
            continue;
        }
        copy_entry(&mut builder, &mut entry, &path).map_err(broken)?;
    }
    builder
        .into_inner()
        .and_then(|mut out| out.flush())
        .map_err(|source| unreadable("the bundle cannot be written", source))?;
    Ok(left_out)
}

fn copy_entry<R: io::Read>(
    builder: &mut tar::Builder<impl io::Write>,
    entry: &mut tar::Entry<'_, R>,
    path: &Path,
) -> io::Result<()> {
    let mut header = entry.header().clone();
    header.set_uid(0);
    header.set_gid(0);
    match entry.link_name()? {
        Some(target) => {
            let target = target.into_owned();
            builder.append_link(&mut header, path, target)
        }
        None => builder.append_data(&mut header, path, entry),
    }
}

/// The bundle with the other one's files over it.
pub(crate) async fn lay_over(base: Bundle, upper: &Bundle) -> Result<Bundle> {
    let upper = upper.tar();
    let work = move || -> Result<Bundle> {
        let failed = |source| unreadable("the bundle cannot be put together", source);
        let both = base.folder.path().join("both.tar");
        let out = File::create(&both).map_err(failed)?;
        let mut builder = tar::Builder::new(BufWriter::with_capacity(256 << 10, out));
        for source in [base.tar(), upper] {
            let file = File::open(source).map_err(failed)?;
            let mut archive = tar::Archive::new(BufReader::with_capacity(256 << 10, file));
            for entry in archive.entries().map_err(failed)? {
                let mut entry = entry.map_err(failed)?;
                let path = entry.path().map_err(failed)?.into_owned();
                copy_entry(&mut builder, &mut entry, &path).map_err(failed)?;
            }
        }
        builder.into_inner().and_then(|mut out| out.flush()).map_err(failed)?;
        std::fs::rename(&both, base.tar()).map_err(failed)?;
        Bundle::open(base.folder, base.left_out)
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|source| Error::new(ErrorKind::Internal, "packing broke off").with_source(source))?
}
