//! `port`: a local address that ends in a sandbox, with a server and without.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use crate::support::{Home, eventually};

/// A running `port`, told to end when it is dropped.
struct Forward {
    child: Child,
    /// Kept open: a closed stdout would be a reason to end.
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Forward {
    fn start(home: &Home, id: &str, port: &str) -> Self {
        let mut command = home.command(["port", id, port]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut address = String::new();
        stdout.read_line(&mut address).unwrap();
        Self { child, stdout, address: address.trim().to_owned() }
    }

    /// Everything that is answered to these bytes; what is written ends with them.
    fn ask(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // One that is closed at once is an answer too.
        let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    /// Interrupts it; its exit code and what it said.
    fn stop(mut self) -> (Option<i32>, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let status = self.child.wait().unwrap();
        let (mut rest, mut said) = (String::new(), String::new());
        self.stdout.read_to_string(&mut rest).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(rest, "", "only the address is data");
        (status.code(), said)
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers what it reads, backwards, once the other side has finished.
const BACKWARDS: &str = "
import socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.read()[::-1])
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(('127.0.0.1', 7000), Handler).serve_forever()
";

fn forwards(home: &Home) {
    let id = home.create();
    let forward = Forward::start(home, &id, "7000");
    assert!(forward.address.starts_with("127.0.0.1:"), "{}", forward.address);
    assert_eq!(forward.ask(b"nobody listens yet"), b"");
    home.run(["exec", "-d", &id, "--", "python3", "-c", BACKWARDS]).ok();
    eventually("the server inside answers", || forward.ask(b"abc") == b"cba");
    let large = crate::support::noise(3 << 20);
    let backwards: Vec<u8> = large.iter().rev().copied().collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(forward.ask(&large) == backwards, "something got lost"));
        }
    });
    let (code, said) = forward.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("cannot be reached"), "the first one was told why: {said}");
}

#[test]
fn a_port_is_forwarded() {
    forwards(&Home::new());
}

#[test]
fn a_port_is_forwarded_through_a_server() {
    forwards(&Home::served());
}

#[test]
fn a_web_server_inside_is_reached_over_http() {
    let home = Home::served();
    let id = home.create();
    home.run(["exec", &id, "--", "sh", "-c", "echo from the inside > /workspace/page"]).ok();
    let serve =
        ["exec", "-d", &id, "--", "python3", "-m", "http.server", "--directory", "/workspace", "8000"];
    home.run(serve).ok();
    let authority = home.server_url().trim_start_matches("http://").to_owned();
    let get = || {
        let mut stream = TcpStream::connect(&authority).unwrap();
        let head = format!(
            "GET /v1/sandboxes/{id}/ports/8000/page HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    eventually("the page comes", || get().starts_with("HTTP/1.1 200"));
    let answer = get();
    assert!(answer.ends_with("from the inside\n"), "{answer}");
    assert!(answer.contains("content-security-policy: sandbox"), "{answer}");
}

#[test]
fn what_cannot_be_forwarded_is_said_at_once() {
    let home = Home::new();
    let id = home.create();
    home.run(["port", &id, "0"]).exits(2);
    home.run(["port", "sbx_00000000000000000000000000", "80"]).exits(3);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    home.run(["port", &id, "80", "--listen", &address]).exits(4).says("--listen");
    home.run(["destroy", &id]).ok();
    home.run(["port", &id, "80"]).exits(4).says("is destroyed");
}

#[test]
fn a_forward_ends_with_its_sandbox() {
    let home = Home::new();
    let id = home.create();
    let mut forward = Forward::start(&home, &id, "80");
    home.run(["destroy", &id]).ok();
    forward.ask(b"anybody?");
    assert_eq!(forward.child.wait().unwrap().code(), Some(4));
}
