//! What the host says about its files, as the contract has it.

use jiff::Timestamp;
use sandboxer_core::files::{FileInfo, FileKind};
use sandboxer_core::{Error, ErrorKind, Result};

/// Names, facts and link targets, see [`super::scripts`]. Names may contain anything but NUL and `/`.
pub(super) fn parse(bytes: &[u8], dir: &str) -> Result<Vec<FileInfo>> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut at = 0;
    let mut names = Vec::new();
    loop {
        let name = until(bytes, &mut at, 0).ok_or_else(garbled)?;
        if name.is_empty() {
            break;
        }
        names.push(name);
    }
    let mut entries: Vec<FileInfo> = Vec::new();
    for name in names {
        // A name that vanished before it was looked at has no line; the next one's stays where it is.
        let mut after = at;
        if let Some(facts) = line(bytes, &mut after, name) {
            at = after;
            entries.push(entry(&facts, name, dir)?);
        }
    }
    if bytes.get(at) != Some(&0) {
        return Err(garbled());
    }
    at += 1;
    for entry in entries.iter_mut().filter(|entry| entry.kind == FileKind::Symlink) {
        if let Some(target) = until(bytes, &mut at, 0) {
            let target = target.strip_suffix(b"\n").unwrap_or(target);
            entry.link_target = Some(String::from_utf8_lossy(target).into_owned());
        }
    }
    Ok(entries)
}

/// `81a4 12 0 0 1700000000 ./name`, if it is this name's.
fn line<'a>(bytes: &'a [u8], at: &mut usize, name: &[u8]) -> Option<Vec<&'a str>> {
    let mut facts = Vec::new();
    for _ in 0..5 {
        facts.push(std::str::from_utf8(until(bytes, at, b' ')?).ok()?);
    }
    let rest = bytes.get(*at..)?.strip_prefix(name)?.strip_prefix(b"\n")?;
    *at = bytes.len() - rest.len();
    Some(facts)
}

fn entry(facts: &[&str], name: &[u8], dir: &str) -> Result<FileInfo> {
    let number =
        |index: usize| facts.get(index).and_then(|text| text.parse::<i64>().ok()).ok_or_else(garbled);
    let mode = facts.first().and_then(|text| u32::from_str_radix(text, 16).ok()).ok_or_else(garbled)?;
    let name = String::from_utf8_lossy(name.strip_prefix(b"./").unwrap_or(name)).into_owned();
    let path = match dir {
        "" | "." => name.clone(),
        _ => format!("{}/{name}", dir.trim_end_matches('/')),
    };
    Ok(FileInfo {
        name,
        path,
        kind: match mode & 0o170_000 {
            0o100_000 => FileKind::File,
            0o040_000 => FileKind::Directory,
            0o120_000 => FileKind::Symlink,
            _ => FileKind::Other,
        },
        size: u64::try_from(number(1)?).unwrap_or_default(),
        mode: format!("{:04o}", mode & 0o7777),
        uid: u32::try_from(number(2)?).unwrap_or(u32::MAX),
        gid: u32::try_from(number(3)?).unwrap_or(u32::MAX),
        modified_at: Timestamp::from_second(number(4)?).unwrap_or(Timestamp::UNIX_EPOCH),
        link_target: None,
    })
}

fn until<'a>(bytes: &'a [u8], at: &mut usize, end: u8) -> Option<&'a [u8]> {
    let rest = bytes.get(*at..)?;
    let length = rest.iter().position(|byte| *byte == end)?;
    *at += length + 1;
    Some(&rest[..length])
}

fn garbled() -> Error {
    Error::new(ErrorKind::BackendFailed, "the host lists its files in an unknown form")
        .with_hint("it needs `stat -c`, `xargs -0` and `readlink` as in coreutils or busybox")
}
