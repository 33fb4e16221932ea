//! The lines that go over the pipes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// How many bytes of one stream may be on their way before the other side says `more`.
pub(crate) const WINDOW: usize = 256 << 10;
/// The most of a stream that one line carries.
pub(crate) const CHUNK: usize = 48 << 10;
/// Words of an extension in an error or a progress line.
const MAX_WORDS: usize = 2_000;

/// Which of a request's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
    Data,
}

impl Stream {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Data => "data",
        }
    }
}

/// One line from the process.
#[derive(Debug)]
pub(crate) enum Message {
    Started,
    Progress(String),
    Output(Stream, Vec<u8>),
    /// The process takes so many more bytes of input.
    More(usize),
    Answer(Result<Value, Error>),
}

/// One line, with the request that it belongs to. The error says what is wrong with it.
pub(crate) fn parse(line: &[u8]) -> Result<(u64, Message), String> {
    let shown = || printable(&String::from_utf8_lossy(&line[..line.len().min(200)]));
    let value: Value =
        serde_json::from_slice(line).map_err(|why| format!("`{}` is not JSON: {why}", shown()))?;
    let Value::Object(mut map) = value else { return Err(format!("`{}` is not an object", shown())) };
    let id = map.get("id").and_then(Value::as_u64).ok_or_else(|| format!("`{}` has no id", shown()))?;
    let message = if let Some(event) = map.get("event").and_then(Value::as_str) {
        parse_event(event, &map)
    } else if let Some(error) = map.get("error") {
        Some(Message::Answer(Err(to_error(error))))
    } else {
        map.remove("result").map(|result| Message::Answer(Ok(result)))
    };
    message
        .map(|message| (id, message))
        .ok_or_else(|| format!("`{}` is neither an event nor an answer", shown()))
}

fn parse_event(event: &str, map: &Map<String, Value>) -> Option<Message> {
    let stream = match event {
        "started" => return Some(Message::Started),
        "progress" => return Some(Message::Progress(words(map.get("line")?.as_str()?))),
        "more" => return Some(Message::More(usize::try_from(map.get("bytes")?.as_u64()?).ok()?.min(WINDOW))),
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        "data" => Stream::Data,
        _ => return None,
    };
    Some(Message::Output(stream, decode(map.get("data")?)?))
}

/// What the process says went wrong. A code that we do not know is a failure of the backend.
fn to_error(error: &Value) -> Error {
    let text = |key: &str| error.get(key).and_then(Value::as_str).map(words);
    let kind = text("code").and_then(|code| ErrorKind::from_code(&code)).unwrap_or(ErrorKind::BackendFailed);
    let out = Error::new(kind, text("message").unwrap_or_else(|| "it failed without a reason".into()));
    match text("hint") {
        Some(hint) => out.with_hint(hint),
        None => out,
    }
}

/// Text for people: bounded, and nothing that a terminal would act on.
fn words(text: &str) -> String {
    text.chars().take(MAX_WORDS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

pub(crate) fn decode(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(value.as_str()?).ok()
}

pub(crate) fn encode(data: &[u8]) -> String {
    STANDARD.encode(data)
}

/// A line to the process. One without an id wants no answer.
pub(crate) fn line(id: Option<u64>, method: &str, params: impl Serialize) -> Vec<u8> {
    let mut message = json!({ "method": method, "params": params });
    if let (Some(id), Some(map)) = (id, message.as_object_mut()) {
        map.insert("id".into(), id.into());
    }
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}
