//! The manifest of the workspace in the sandbox. Files whose stamp did not change are not read again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_workspace::{Entry, Kind, Manifest, Omissions, Scan, Why, is_portable, stays_inside};

use super::inside::Inside;
use super::mirror::RemoteCache;

/// One line each: mode, size, times, inode, name. Names with control characters could forge lines and are passed over.
pub(super) const LIST: &str = r"date +%s || exit 9
exec find . -name '*[[:cntrl:]]*' -prune -o \( -type f -o -type d -o -type l \) -exec stat -c '%f %s %Y %Z %i %n' {} +";
pub(super) const HASH: &str = "exec xargs -0 sha256sum";
pub(super) const LINKS: &str =
    r#"while IFS= read -r p; do t=$(readlink "$p") || continue; printf '%s\n%s\n' "$p" "$t"; done"#;
/// What the name of a stage starts with.
pub(super) const STAGE: &str = ".sandboxer-tmp-";
/// A file may go away between being found and being looked at; a second look then sees the truth.
const ATTEMPTS: usize = 4;

/// What the sandbox's workspace holds now.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) manifest: Manifest,
    /// Size, times and inode of each entry, to see whether it is still the same.
    pub(super) stamps: BTreeMap<String, String>,
    pub(super) cache: RemoteCache,
    pub(super) omitted: Omissions,
    /// How many contents had to be read.
    pub(super) read: usize,
    /// An interrupted sync left its stage.
    pub(super) unfinished: bool,
}

impl Inside {
    /// Everything by name and stamp; contents only where the stamp is a known one.
    pub(super) async fn list(&self, known: &RemoteCache) -> Result<(Listing, Unknown)> {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let ran = self.run(LIST, "", None).await?;
            if ran.code == 0 {
                let mut listing = Listing::default();
                let unknown = parse(&String::from_utf8_lossy(&ran.stdout), known, &mut listing)?;
                return Ok((listing, unknown));
            }
            last = ran.stderr;
        }
        // A part that cannot be seen must not look as if it had been deleted.
        Err(Error::new(ErrorKind::BackendFailed, "the workspace in the sandbox cannot be listed completely")
            .with_context("output", last.clone())
            .with_hint(format!("it needs `find`, `stat` and readable folders inside; it said: {last}")))
    }

    /// Reads the contents that are not known yet.
    pub(super) async fn read_contents(&self, mut unknown: Unknown, listing: &mut Listing) -> Result<()> {
        for paths in [&mut unknown.files, &mut unknown.links] {
            paths.retain(|path| listing.manifest.0.contains_key(path));
        }
        listing.read = unknown.files.len() + unknown.links.len();
        let mut contents: BTreeMap<String, String> = BTreeMap::new();
        if !unknown.files.is_empty() {
            let ran = self.run(HASH, "", Some(joined(&unknown.files, '\0'))).await?;
            contents.extend(String::from_utf8_lossy(&ran.stdout).lines().filter_map(hash_line));
        }
        if !unknown.links.is_empty() {
            let ran = self.run(LINKS, "", Some(joined(&unknown.links, '\n'))).await?;
            let text = String::from_utf8_lossy(&ran.stdout).into_owned();
            contents.extend(link_lines(&text, &unknown.links));
        }
        for path in unknown.files.into_iter().chain(unknown.links) {
            let stamp = listing.stamps.get(&path).cloned().unwrap_or_default();
            match contents.remove(&path) {
                Some(content) => listing.settle(path, stamp, content),
                None => listing.leave_out(&path, Why::Unreadable),
            }
        }
        Ok(())
    }
}

impl Listing {
    /// Forgets what is ignored, before anything of it is read.
    pub(super) fn drop_ignored(&mut self, scan: &Scan) {
        let mut folder: Option<String> = None;
        self.manifest.0.retain(|path, entry| {
            if folder.as_ref().is_some_and(|folder| path.starts_with(folder.as_str())) {
                return false;
            }
            // What the walk here came by is not ignored.
            let goes = !scan.manifest.0.contains_key(path)
                && scan.ignored.ignores(Path::new(path), entry.kind == Kind::Dir);
            if goes && entry.kind == Kind::Dir {
                folder = Some(format!("{path}/"));
            }
            !goes
        });
    }

    fn leave_out(&mut self, path: &str, why: Why) {
        self.manifest.0.remove(path);
        self.omitted.add(Path::new(path), why);
    }

    fn settle(&mut self, path: String, stamp: String, content: String) {
        let Some(entry) = self.manifest.0.get_mut(&path) else { return };
        if entry.kind == Kind::Link && !stays_inside(Path::new(&path), Path::new(&content)) {
            return self.leave_out(&path, Why::LeadsOut);
        }
        entry.content.clone_from(&content);
        self.cache.files.insert(path, (stamp, content));
    }
}

/// Paths whose contents have to be read.
#[derive(Default)]
pub(super) struct Unknown {
    files: Vec<String>,
    links: Vec<String>,
}

fn parse(text: &str, known: &RemoteCache, listing: &mut Listing) -> Result<Unknown> {
    let mut lines = text.lines();
    let taken = lines
        .next()
        .and_then(|line| line.trim().parse().ok())
        .ok_or_else(|| Error::new(ErrorKind::BackendFailed, "the sandbox does not tell its time"))?;
    listing.cache.taken = taken;
    let mut unknown = Unknown::default();
    for line in lines {
        let Some(seen) = Seen::parse(line) else { continue };
        if !is_portable(seen.path) {
            listing.omitted.add(Path::new(seen.path), Why::Name);
            continue;
        }
        listing.unfinished |= seen.path.starts_with(STAGE);
        let entry = match seen.kind {
            Kind::Dir => Entry::dir(),
            Kind::File => Entry { size: seen.size, ..Entry::file("", seen.exec) },
            Kind::Link => Entry::link(""),
        };
        listing.stamps.insert(seen.path.to_owned(), seen.stamp.clone());
        listing.manifest.0.insert(seen.path.to_owned(), Entry { mtime: seen.mtime, ..entry });
        if seen.kind == Kind::Dir {
            continue;
        }
        // Its clock counts seconds: what changed in the second of the last listing may have changed after it.
        let settled = seen.ctime < known.taken;
        match known.files.get(seen.path).filter(|(stamp, _)| settled && *stamp == seen.stamp) {
            Some((stamp, content)) => listing.settle(seen.path.to_owned(), stamp.clone(), content.clone()),
            None if seen.kind == Kind::File => unknown.files.push(seen.path.to_owned()),
            None => unknown.links.push(seen.path.to_owned()),
        }
    }
    Ok(unknown)
}

struct Seen<'a> {
    path: &'a str,
    kind: Kind,
    exec: bool,
    size: u64,
    mtime: i64,
    ctime: i64,
    stamp: String,
}

impl<'a> Seen<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(6, ' ');
        let mode = u32::from_str_radix(parts.next()?, 16).ok()?;
        let size: u64 = parts.next()?.parse().ok()?;
        let mtime: i64 = parts.next()?.parse().ok()?;
        let ctime: i64 = parts.next()?.parse().ok()?;
        let inode: u64 = parts.next()?.parse().ok()?;
        let path = parts.next()?.strip_prefix("./")?;
        let kind = match mode & 0o170_000 {
            0o100_000 => Kind::File,
            0o040_000 => Kind::Dir,
            0o120_000 => Kind::Link,
            _ => return None,
        };
        let stamp = format!("{size}:{mtime}:{ctime}:{inode}");
        Some(Self { path, kind, exec: mode & 0o100 != 0, size, mtime, ctime, stamp })
    }
}

/// `./` before each, so that none looks like an option.
pub(super) fn joined(paths: &[String], end: char) -> Vec<u8> {
    let mut out = String::with_capacity(paths.iter().map(|path| path.len() + 3).sum());
    for path in paths {
        out.push_str("./");
        out.push_str(path);
        out.push(end);
    }
    out.into_bytes()
}

fn hash_line(line: &str) -> Option<(String, String)> {
    let (hash, name) = line.split_once("  ")?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((name.strip_prefix("./")?.to_owned(), hash.to_ascii_lowercase())).filter(|_| is_hash)
}

/// Pairs of lines. A target with a line break in it gives lines that are no pair, which are passed over.
fn link_lines(text: &str, asked: &[String]) -> BTreeMap<String, String> {
    let asked: BTreeSet<&str> = asked.iter().map(String::as_str).collect();
    let mut found = BTreeMap::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(path) = line.strip_prefix("./").filter(|path| asked.contains(path)) else { continue };
        if let Some(target) = lines.next() {
            found.insert(path.to_owned(), target.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_and_only_changes_are_asked_for() {
        let text = "100\n81a4 5 90 90 7 ./a file\n81ed 1 99 100 8 ./run\n41ed 4096 1 1 2 ./d\na1ff 3 50 50 9 ./l\nrubbish\n81a4 1 1 1 3 ./bad\\name\n";
        let known = RemoteCache {
            taken: 95,
            files: [("a file".to_owned(), ("5:90:90:7".to_owned(), "h".to_owned()))].into(),
        };
        let mut listing = Listing::default();
        let unknown = parse(text, &known, &mut listing).expect("it is a listing");
        assert_eq!((unknown.files, unknown.links), (vec!["run".to_owned()], vec!["l".to_owned()]));
        assert_eq!(listing.manifest.get("a file"), Some(&Entry::file("h", false)));
        assert!(listing.manifest.get("run").is_some_and(|entry| entry.exec));
        assert_eq!(listing.manifest.get("d"), Some(&Entry::dir()));
        assert_eq!(listing.omitted.paths, ["bad\\name"]);
    }

    #[test]
    fn what_changed_in_the_second_of_the_last_listing_is_read_again() {
        let known = RemoteCache {
            taken: 90,
            files: [("a".to_owned(), ("5:90:90:7".to_owned(), "h".to_owned()))].into(),
        };
        let unknown = parse("100\n81a4 5 90 90 7 ./a\n", &known, &mut Listing::default()).expect("a listing");
        assert_eq!(unknown.files, ["a"]);
    }
}
