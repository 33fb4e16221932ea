//! What `stat` inside tells, one record per entry. A mark that nobody inside can know separates the records, so that
//! names with line breaks stay whole.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandboxer_core::files::{FileInfo, FileKind};

/// Records `MARK s HEXMODE SIZE UID GID MTIME NAME` and, for links, `MARK l NAME` and `MARK t TARGET`.
pub(crate) fn parse(answer: &[u8], mark: &str, folder: &str) -> Vec<FileInfo> {
    let text = String::from_utf8_lossy(answer);
    let mut entries = Vec::new();
    let mut targets: BTreeMap<String, String> = BTreeMap::new();
    let mut link = None;
    for record in text.split(&format!("{mark} ")).skip(1) {
        let record = record.strip_suffix('\n').unwrap_or(record);
        match record.split_at_checked(2) {
            Some(("s ", rest)) => entries.extend(entry(rest, folder)),
            Some(("l ", rest)) => link = Some(base(rest).to_owned()),
            Some(("t ", rest)) => {
                if let Some(name) = link.take() {
                    targets.insert(name, rest.to_owned());
                }
            }
            _ => {}
        }
    }
    for entry in &mut entries {
        if entry.kind == FileKind::Symlink {
            entry.link_target = targets.remove(&entry.name);
        }
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn entry(record: &str, folder: &str) -> Option<FileInfo> {
    let mut fields = record.splitn(6, ' ');
    let mode = u32::from_str_radix(fields.next()?, 16).ok()?;
    let size = fields.next()?.parse().ok()?;
    let uid = fields.next()?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let modified_at = Timestamp::from_second(fields.next()?.parse().ok()?).unwrap_or(Timestamp::UNIX_EPOCH);
    let name = match base(fields.next()?) {
        "" => "/".to_owned(),
        name => name.to_owned(),
    };
    let kind = match mode & 0o170_000 {
        0o100_000 => FileKind::File,
        0o040_000 => FileKind::Directory,
        0o120_000 => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let path = if name == "/" { name.clone() } else { format!("{}/{name}", folder.trim_end_matches('/')) };
    let mode = format!("{:04o}", mode & 0o7777);
    Some(FileInfo { name, path, kind, size, mode, uid, gid, modified_at, link_target: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_line_breaks_and_links_are_whole() {
        let answer = b"M s 81a4 5 1000 1000 1700000000 ./two\nlines\nM s a1ff 3 0 0 1700000000 ./link\nM l ./link\nM t sub/file\n";
        let entries = parse(answer, "M", "/workspace");
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].link_target.as_deref(), Some("sub/file"));
        assert_eq!(entries[1].path, "/workspace/two\nlines");
        assert_eq!((entries[1].mode.as_str(), entries[1].kind, entries[1].size), ("0644", FileKind::File, 5));
    }
}
