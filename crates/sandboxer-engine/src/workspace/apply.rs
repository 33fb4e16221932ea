//! Carries out a plan on either side. Nothing is replaced that is not as it was when it was looked at.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_workspace::{self as workspace, Entry, Kind, Limits, Omissions, Plan, Scan, Why};
use tokio::io::AsyncWriteExt as _;

use super::inside::Inside;
use super::listing::{Listing, STAGE, joined};
use super::mirror::private_file;
use super::{blocking, io_error};

/// Files and links by name, folders never: those would come with everything in them. A long list gives several archives,
/// one after the other; not every `tar` reads a list by itself.
pub(super) const FETCH: &str = "exec xargs -0 tar -cf -";
/// What `xargs` ends with when a program of its did not end well: something changed meanwhile.
const IN_PART: i32 = 123;
/// One line each: what to do, the stamp that must still hold, the path. Tells the paths at which it did not hold.
/// `D` deletes, `R` removes an empty folder, `M` makes one, `U` puts a file from the stage in place by a rename.
pub(super) const CHANGE: &str = r#"
stage=$1
holds() {
  if [ "$stamp" = - ]; then [ ! -e "./$p" ] && [ ! -L "./$p" ]; return; fi
  [ "$(stat -c %s:%Y:%Z:%i "./$p" 2>/dev/null)" = "$stamp" ]
}
while IFS=/ read -r op stamp p; do
  case $op in
    D) if holds; then rm -f "./$p" || printf '%s\n' "$p"; elif [ -e "./$p" ]; then printf '%s\n' "$p"; fi ;;
    R) rmdir "./$p" 2>/dev/null ;;
    M) mkdir -p "./$p" || printf '%s\n' "$p" ;;
    U) if holds; then
         case $p in */*) [ -d "./${p%/*}" ] || mkdir -p "./${p%/*}" ;; esac
         [ -L "./$p" ] && rm -f "./$p"
         mv -f "./$stage/$p" "./$p" || printf '%s\n' "$p"
       else printf '%s\n' "$p"; fi ;;
  esac
done
rm -rf ./.sandboxer-tmp-*
exit 0
"#;

/// Both sides as they were looked at.
pub(super) struct Sides {
    pub(super) folder: PathBuf,
    pub(super) scan: Arc<Scan>,
    pub(super) listing: Listing,
    /// Where archives are put on their way.
    pub(super) state: PathBuf,
}

impl Sides {
    /// Brings over what the sandbox has.
    pub(super) async fn bring_down(&self, inside: &Inside, plan: &Plan) -> Result<Omissions> {
        let clashing = |path: &&String| match (self.scan.manifest.get(path), self.listing.manifest.get(path))
        {
            (Some(here), Some(there)) => (here.kind == Kind::Dir) != (there.kind == Kind::Dir),
            _ => false,
        };
        let mut deletions = plan.delete_local.clone();
        deletions.extend(plan.download.iter().rev().filter(clashing).cloned());
        let is_dir = |path: &&String| kind(self.listing.manifest.get(path)) == Some(Kind::Dir);
        let (folders, files): (Vec<String>, Vec<String>) =
            plan.download.iter().cloned().partition(|path| is_dir(&path));
        let (folder, scan) = (self.folder.clone(), self.scan.clone());
        let mut omitted = blocking(move || {
            let kept = workspace::delete(&folder, &deletions, &scan)?;
            workspace::make_dirs(&folder, &folders)?;
            Ok(kept)
        })
        .await?;
        omitted.extend(self.fetch(inside, files).await?);
        Ok(omitted)
    }

    async fn fetch(&self, inside: &Inside, files: Vec<String>) -> Result<Omissions> {
        if files.is_empty() {
            return Ok(Omissions::default());
        }
        let tar = self.fetched(inside, &files).await?;
        let (folder, scan) = (self.folder.clone(), self.scan.clone());
        blocking(move || {
            let may_replace =
                |path: &Path, there: Option<&rustix::fs::Stat>| workspace::as_scanned(&scan, path, there);
            unpack(&tar, &folder, files, &may_replace)
        })
        .await
    }

    /// These files of the sandbox in an archive of ours.
    async fn fetched(&self, inside: &Inside, files: &[String]) -> Result<PathBuf> {
        let path = self.state.join("fetched.tar");
        let file = private_file(&path).map_err(|source| io_error("an archive cannot be written", source))?;
        let mut to = tokio::fs::File::from_std(file);
        let (code, stderr) = inside.run_into(FETCH, "", Some(joined(files, '\0')), &mut to).await?;
        to.flush().await.map_err(|source| io_error("an archive cannot be written", source))?;
        let is_empty = to.metadata().await.is_ok_and(|metadata| metadata.len() == 0);
        if (code != 0 && code != IN_PART) || is_empty {
            return Err(Error::new(
                ErrorKind::BackendFailed,
                format!("`tar` in the sandbox ended with {code}"),
            )
            .with_hint(format!("a mirror needs `tar` inside; it said: {stderr}")));
        }
        Ok(path)
    }

    /// Keeps the sandbox's version of these files in a folder of ours.
    pub(super) async fn keep_copies(&self, inside: &Inside, files: Vec<String>, to: PathBuf) -> Result<()> {
        let tar = self.fetched(inside, &files).await?;
        blocking(move || {
            super::seed::make_private(&to)?;
            unpack(&tar, &to, files, &|_, _| true).map(drop)
        })
        .await
    }

    /// Brings the sandbox up to what is here.
    pub(super) async fn bring_up(&self, inside: &Inside, plan: &Plan) -> Result<Omissions> {
        let orders = self.orders(plan);
        if orders.is_empty() && !self.listing.unfinished {
            return Ok(Omissions::default());
        }
        let files: Vec<String> = plan
            .upload
            .iter()
            .filter(|path| kind(self.scan.manifest.get(path)) != Some(Kind::Dir))
            .cloned()
            .collect();
        let mut omitted = Omissions::default();
        let stage = if files.is_empty() { String::new() } else { stage_name() };
        if !files.is_empty() {
            omitted.extend(self.send(inside, files, &stage).await?);
        }
        let ran = inside.run(CHANGE, &stage, Some(orders.into_bytes())).await?;
        if ran.code != 0 {
            let message = format!("changing the workspace in the sandbox ended with {}", ran.code);
            return Err(Error::new(ErrorKind::BackendFailed, message).with_hint(ran.stderr));
        }
        for path in String::from_utf8_lossy(&ran.stdout).lines() {
            omitted.add(Path::new(path), Why::Changed);
        }
        Ok(omitted)
    }

    async fn send(&self, inside: &Inside, files: Vec<String>, stage: &str) -> Result<Omissions> {
        let path = self.state.join("sent.tar");
        let (folder, scan, to) = (self.folder.clone(), self.scan.clone(), path.clone());
        let packed = blocking(move || {
            let file =
                private_file(&to).map_err(|source| io_error("an archive cannot be written", source))?;
            let out = std::io::BufWriter::with_capacity(256 << 10, file);
            workspace::pack_paths(&folder, &files, &scan, out)
        })
        .await?;
        let from = tokio::fs::File::open(&path).await;
        let from = from.map_err(|source| io_error("an archive cannot be read", source))?;
        inside.extension.archive_put(&inside.handle, stage, Box::pin(from)).await?;
        let _ = std::fs::remove_file(&path);
        Ok(packed.omitted)
    }

    /// The lines for the program inside. What is in the way as another kind goes first.
    fn orders(&self, plan: &Plan) -> String {
        let mut lines = String::new();
        let mut order = |op: char, path: &str| {
            let stamp = match op {
                'D' | 'U' => self.listing.stamps.get(path).map_or("-", String::as_str),
                _ => "-",
            };
            lines.push_str(&format!("{op}/{stamp}/{path}\n"));
        };
        for path in &plan.delete_remote {
            let is_dir = kind(self.listing.manifest.get(path)) == Some(Kind::Dir);
            order(if is_dir { 'R' } else { 'D' }, path);
        }
        let mut after = String::new();
        for path in &plan.upload {
            let here_is_dir = kind(self.scan.manifest.get(path)) == Some(Kind::Dir);
            let there = kind(self.listing.manifest.get(path));
            let clash = there.is_some_and(|there| (there == Kind::Dir) != here_is_dir);
            match (clash, here_is_dir) {
                (false, true) => order('M', path),
                (false, false) => order('U', path),
                (true, true) => {
                    order('D', path);
                    order('M', path);
                }
                (true, false) => {
                    order('R', path);
                    // Nothing may be there any more.
                    after.push_str(&format!("U/-/{path}\n"));
                }
            }
        }
        lines + &after
    }
}

fn kind(entry: Option<&Entry>) -> Option<Kind> {
    entry.map(|entry| entry.kind)
}

/// Unpacks what was asked for and removes the archive. What did not come is told, too.
fn unpack(
    tar: &Path,
    folder: &Path,
    files: Vec<String>,
    may_replace: &dyn Fn(&Path, Option<&rustix::fs::Stat>) -> bool,
) -> Result<Omissions> {
    let missing: RefCell<BTreeSet<PathBuf>> = RefCell::new(files.iter().map(PathBuf::from).collect());
    let wanted: BTreeSet<PathBuf> = files.into_iter().map(PathBuf::from).collect();
    let is_wanted = |path: &Path| {
        missing.borrow_mut().remove(path);
        wanted.contains(path)
    };
    let guard = workspace::Guard { wanted: &is_wanted, may_replace };
    let file = std::fs::File::open(tar).map_err(|source| io_error("an archive cannot be read", source))?;
    let from = std::io::BufReader::with_capacity(256 << 10, file);
    let mut omitted = workspace::unpack_where(from, folder, &Limits::default(), &guard)?.omitted;
    for path in missing.borrow().iter() {
        omitted.add(path, Why::Changed);
    }
    let _ = std::fs::remove_file(tar);
    Ok(omitted)
}

/// A folder in the workspace, so that a rename is enough. Its name is one that no mirror carries.
fn stage_name() -> String {
    format!("{STAGE}{}", sandboxer_core::ExecId::generate())
}
