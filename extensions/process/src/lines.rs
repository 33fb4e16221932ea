//! Lines with a bound, from a pipe that may hold anything.

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// What the next line is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// The next line without its end. A line that is longer than `limit` is not read to its end.
pub(crate) async fn next(pipe: &mut (impl AsyncBufRead + Unpin), limit: usize) -> std::io::Result<Line> {
    let mut line = Vec::new();
    loop {
        let buffer = pipe.fill_buf().await?;
        if buffer.is_empty() {
            // The last words of a process that was cut off are no message.
            return Ok(Line::End);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = end.unwrap_or(buffer.len());
        if line.len() + part > limit {
            return Ok(Line::TooLong);
        }
        line.extend_from_slice(&buffer[..part]);
        pipe.consume(part + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(Line::Whole(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_bounded_and_a_rest_is_none() {
        let mut pipe = tokio::io::BufReader::with_capacity(4, &b"one\n\nlonger\nrest"[..]);
        assert_eq!(next(&mut pipe, 6).await.unwrap(), Line::Whole(b"one".to_vec()));
        assert_eq!(next(&mut pipe, 6).await.unwrap(), Line::Whole(Vec::new()));
        assert_eq!(next(&mut pipe, 6).await.unwrap(), Line::Whole(b"longer".to_vec()));
        assert_eq!(next(&mut pipe, 6).await.unwrap(), Line::End);
        let mut pipe = &b"far too long\n"[..];
        assert_eq!(next(&mut pipe, 6).await.unwrap(), Line::TooLong);
    }
}
