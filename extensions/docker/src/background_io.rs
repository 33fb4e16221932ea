//! Output, input and signals of background commands.

use std::time::Duration;

use sandboxer_core::exec::{LogChunk, LogStream};
use sandboxer_core::{Dur, Error, ErrorKind, ExecId, Result};

use crate::background::{ROOT, not_there};
use crate::exec::Place;
use crate::inside;
use crate::signal::Killer;

const LOGS: &str = include_str!("scripts/background_logs.sh");
const FEED: &str = "[ -p \"$1\" ] || exit 44; exec cat >>\"$1\"";
const CLOSE: &str = "read -r holder <\"$1\" && kill \"$holder\" && rm -f \"$1\"; exit 0";
/// The most of one chunk, and of one piece of input.
const CHUNK: usize = 1 << 20;
/// The longest wait of one call.
const LONGEST: Duration = Duration::from_secs(30);

impl Place {
    pub(crate) async fn exec_logs(
        &self,
        id: ExecId,
        stream: LogStream,
        offset: u64,
        wait: Dur,
    ) -> Result<LogChunk> {
        let name = match stream {
            LogStream::Stdout => "stdout",
            LogStream::Stderr => "stderr",
        };
        let wait = wait.as_std().min(LONGEST);
        let tenths = (wait.as_millis() / 100).to_string();
        let args = [&id.to_string(), name, &offset.to_string(), &tenths, &CHUNK.to_string()];
        let limit = wait + Duration::from_secs(60);
        let answer = inside::run_within(self, ROOT, LOGS, &args, limit).await?;
        if answer.code == inside::MISSING {
            return Err(not_there(id));
        }
        let answer = answer.ok("read the output of a command")?;
        chunk(offset, &answer).ok_or_else(|| {
            Error::new(ErrorKind::BackendFailed, "the output of a command cannot be understood")
        })
    }

    pub(crate) async fn exec_stdin(&self, id: ExecId, data: Option<Vec<u8>>) -> Result<()> {
        let known = self.background(id).await?;
        if !known.info.running {
            return Err(Error::new(ErrorKind::IllegalState, "the command has ended"));
        }
        let folder = format!("/run/sandboxer/execs/{id}");
        match data {
            Some(data) => {
                let launch = self.script(&known.user, FEED, &[&format!("{folder}/in")]);
                let data = Box::pin(std::io::Cursor::new(data));
                self.stream_in(launch, data, b"", "feed a command").await
            }
            None => {
                let closed = inside::run(self, &known.user, CLOSE, &[&format!("{folder}/holder")]).await?;
                closed.ok("close the input of a command").map(drop)
            }
        }
    }

    pub(crate) async fn exec_signal(&self, id: ExecId, signal: i32) -> Result<()> {
        let known = self.background(id).await?;
        let killer = Killer { place: self.clone(), user: known.user, mark: id.to_string(), nested: true };
        killer.signal(signal, false).await
    }
}

/// `SIZE SKIPPED LAST`, a line break, then the bytes.
fn chunk(offset: u64, answer: &[u8]) -> Option<LogChunk> {
    let end = answer.iter().position(|byte| *byte == b'\n')?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut numbers = head.split(' ').map(str::parse::<u64>);
    let (size, more, last) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    let data = answer[end + 1..].to_vec();
    let next_offset = offset + data.len() as u64;
    let finished = last == 1 && next_offset >= size;
    let skipped = if finished { more } else { 0 };
    Some(LogChunk { data, next_offset, skipped, finished })
}

#[cfg(test)]
mod tests {
    use super::chunk;

    #[test]
    fn a_chunk_is_finished_only_when_everything_was_read() {
        let part = chunk(0, b"10 7 1\nabc").map(|chunk| (chunk.next_offset, chunk.finished, chunk.skipped));
        assert_eq!(part, Some((3, false, 0)));
        let rest =
            chunk(3, b"10 7 1\ndefghij").map(|chunk| (chunk.next_offset, chunk.finished, chunk.skipped));
        assert_eq!(rest, Some((10, true, 7)));
        assert!(chunk(0, b"nonsense").is_none());
    }
}
