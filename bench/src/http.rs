//! A keep-alive HTTP/1.1 client, as small as possible: what it costs is in every figure.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// Longer than anything that is measured; a server that hangs must not hang the bench.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Client {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The document, if the status is the expected one.
    pub(crate) fn expect(&self, status: u16) -> Result<Value> {
        let text = String::from_utf8_lossy(&self.body);
        ensure!(self.status == status, "HTTP {} instead of {status}: {}", self.status, text.trim());
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", text.trim()))
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { address, stream: BufReader::with_capacity(64 << 10, stream) })
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Answer> {
        self.send("GET", path, None)
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Result<Answer> {
        self.send("POST", path, Some(body))
    }

    pub(crate) fn delete(&mut self, path: &str) -> Result<Answer> {
        self.send("DELETE", path, None)
    }

    fn send(&mut self, method: &str, path: &str, body: Option<&str>) -> Result<Answer> {
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nhost: {}\r\naccept: application/json\r\n", self.address);
        if let Some(body) = body {
            request
                .push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        request.push_str(body.unwrap_or_default());
        self.stream.get_mut().write_all(request.as_bytes()).with_context(|| format!("{method} {path}"))?;
        self.receive().with_context(|| format!("no answer to {method} {path}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, "the server closed the connection");
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    fn receive(&mut self) -> Result<Answer> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let Some(status) = status else { bail!("`{first}` is not an HTTP status line") };
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(':') else { bail!("`{line}` is not a header") };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().context("content-length")?,
                "transfer-encoding" => chunked = value.trim().eq_ignore_ascii_case("chunked"),
                _ => {}
            }
        }
        let body = if chunked { self.chunks()? } else { self.exactly(length)? };
        Ok(Answer { status, body })
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16)
                .context("chunk size")?;
            body.extend(self.exactly(size)?);
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
}
