//! Output of commands on its way to a caller: bounded when it is kept, whole characters when it is streamed.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sandboxer_core::{Error, ErrorKind, Result};

/// How bytes become a JSON string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Text; what is not UTF-8 is shown with replacement characters.
    #[default]
    Text,
    Base64,
}

impl std::str::FromStr for Encoding {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "text" => Ok(Self::Text),
            "base64" => Ok(Self::Base64),
            other => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("`{}` is not an encoding", sandboxer_core::suggest::printable(other)),
            )
            .with_hint("`text` or `base64`")),
        }
    }
}

/// The head and the tail of a stream, with a bound on both together.
#[derive(Debug)]
pub(crate) struct Kept {
    limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    cut: u64,
}

impl Kept {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, head: Vec::new(), tail: VecDeque::new(), cut: 0 }
    }

    pub(crate) fn push(&mut self, mut data: &[u8]) {
        let (for_head, for_tail) = (self.limit - self.limit / 2, self.limit / 2);
        let room = for_head - self.head.len();
        if room > 0 {
            let (first, rest) = data.split_at(room.min(data.len()));
            self.head.extend_from_slice(first);
            data = rest;
        }
        if data.len() > for_tail {
            self.cut += (data.len() - for_tail) as u64;
            data = &data[data.len() - for_tail..];
        }
        let over = (self.tail.len() + data.len()).saturating_sub(for_tail);
        self.tail.drain(..over);
        self.cut += over as u64;
        self.tail.extend(data);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut > 0
    }

    /// One string, with a word in the middle about what is missing.
    pub(crate) fn finish(self, encoding: Encoding) -> String {
        let mut bytes = self.head;
        let mut tail = Vec::from(self.tail);
        if self.cut > 0 {
            let mut cut = self.cut;
            if encoding == Encoding::Text {
                cut += trim_seam(&mut bytes, &mut tail) as u64;
            }
            bytes.extend_from_slice(format!("\n[… {cut} bytes cut …]\n").as_bytes());
        }
        bytes.append(&mut tail);
        match encoding {
            Encoding::Base64 => BASE64.encode(bytes),
            Encoding::Text => lossy(bytes),
        }
    }
}

/// Takes away the halves of characters on both sides of a cut. Returns how many bytes went.
fn trim_seam(head: &mut Vec<u8>, tail: &mut Vec<u8>) -> usize {
    let (before_head, before_tail) = (head.len(), tail.len());
    head.truncate(head.len() - unfinished(head));
    let continuation = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    tail.drain(..continuation);
    before_head - head.len() + before_tail - tail.len()
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// How many bytes at the end are the beginning of a character that goes on.
fn unfinished(bytes: &[u8]) -> usize {
    let start = bytes.len().saturating_sub(3);
    match std::str::from_utf8(&bytes[start..]) {
        Ok(_) => 0,
        Err(_) => {
            // The last byte that starts a character decides; up to three bytes back.
            let lead = bytes.iter().rev().take(3).position(|byte| byte & 0xc0 != 0x80);
            let Some(back) = lead.map(|position| position + 1) else { return 0 };
            let needs = match bytes[bytes.len() - back] {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 1,
            };
            if needs > back { back } else { 0 }
        }
    }
}

/// Turns pieces of a stream into strings without splitting a character between two of them.
#[derive(Debug)]
pub(crate) struct Pieces {
    encoding: Encoding,
    held: Vec<u8>,
}

impl Pieces {
    pub(crate) fn new(encoding: Encoding) -> Self {
        Self { encoding, held: Vec::new() }
    }

    /// The next string; empty when the piece was only the beginning of a character.
    pub(crate) fn next(&mut self, piece: &[u8]) -> String {
        if self.encoding == Encoding::Base64 {
            return BASE64.encode(piece);
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        self.held = bytes.split_off(bytes.len() - unfinished(&bytes));
        lossy(bytes)
    }

    /// What was held back and will not be completed any more.
    pub(crate) fn rest(&mut self) -> Option<String> {
        let held = std::mem::take(&mut self.held);
        (!held.is_empty()).then(|| lossy(held))
    }
}

#[cfg(test)]
mod tests;
