//! What the scripts say about files: a line of numbers, then the name and the link's target, each ended by a NUL.

use jiff::Timestamp;
use sandboxer_core::files::{FileInfo, FileKind};
use sandboxer_core::{Error, ErrorKind, Result};

/// The entries of `folder`.
pub(super) fn parse(mut bytes: &[u8], folder: &str) -> Result<Vec<FileInfo>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let numbers = take(&mut bytes, b'\n')?;
        let name = String::from_utf8_lossy(take(&mut bytes, 0)?).into_owned();
        let target = take(&mut bytes, 0)?;
        out.push(entry(&String::from_utf8_lossy(numbers), name, target, folder)?);
    }
    Ok(out)
}

fn take<'a>(bytes: &mut &'a [u8], end: u8) -> Result<&'a [u8]> {
    let at = bytes.iter().position(|byte| *byte == end).ok_or_else(garbled)?;
    let (piece, rest) = bytes.split_at(at);
    *bytes = &rest[1..];
    Ok(piece)
}

fn entry(numbers: &str, name: String, target: &[u8], folder: &str) -> Result<FileInfo> {
    let fields: Vec<&str> = numbers.split_whitespace().collect();
    let [raw, size, uid, gid, modified] = fields.as_slice() else { return Err(garbled()) };
    let raw = u32::from_str_radix(raw, 16).map_err(|_| garbled())?;
    let kind = match raw & 0o170_000 {
        0o100_000 => FileKind::File,
        0o040_000 => FileKind::Directory,
        0o120_000 => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let name = if name.is_empty() { "/".to_owned() } else { name };
    Ok(FileInfo {
        path: if name == "/" { name.clone() } else { format!("{}/{name}", folder.trim_end_matches('/')) },
        name,
        kind,
        size: size.parse().map_err(|_| garbled())?,
        mode: format!("{:04o}", raw & 0o7777),
        uid: uid.parse().map_err(|_| garbled())?,
        gid: gid.parse().map_err(|_| garbled())?,
        modified_at: modified
            .parse()
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .unwrap_or_default(),
        link_target: (kind == FileKind::Symlink).then(|| String::from_utf8_lossy(target).into_owned()),
    })
}

fn garbled() -> Error {
    Error::new(ErrorKind::BackendFailed, "what the container says about its files cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awkward_names_are_names() {
        let all = parse(b"81a4 5 0 0 1700000000\ntwo\nlines\0\0a1ff 4 1 2 0\nlink\0to\0", "/w").unwrap();
        assert_eq!((all[0].path.as_str(), all[0].mode.as_str(), all[0].size), ("/w/two\nlines", "0644", 5));
        assert_eq!((all[1].kind, all[1].link_target.as_deref()), (FileKind::Symlink, Some("to")));
        assert!(parse(b"garbage", "/w").is_err());
    }
}
