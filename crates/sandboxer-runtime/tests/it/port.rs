//! Ports inside, reached from outside: the socket comes from the sandbox's own network.

use sandboxer_runtime::{Control, ErrorKind, ExecSpec};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Fixture, sh};

async fn connected(control: &Control, port: u16) -> TcpStream {
    let start = Instant::now();
    loop {
        match control.connect(port).await {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(10), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn get(mut stream: TcpStream, path: &str) -> String {
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_server_inside_is_reached_on_either_loopback_address() {
    let fixture = Fixture::new();
    let launched = fixture.launch("port").await;
    let control = &launched.control;
    sh(control, "echo from the inside > /workspace/page").await;
    for (address, port) in [("127.0.0.1", "8000"), ("::1", "8001"), ("0.0.0.0", "8002")] {
        let serve = ["python3", "-m", "http.server", "--bind", address, "--directory", "/workspace", port];
        control.exec_background(ExecSpec::new(serve)).await.unwrap();
        let answer = get(connected(control, port.parse().unwrap()).await, "/page").await;
        assert!(answer.contains("200 OK") && answer.ends_with("from the inside\n"), "{answer}");
    }
    // Nothing of it is on the machine's own loopback.
    assert!(TcpStream::connect(("127.0.0.1", 8002)).await.is_err());
    // Many at once, each a connection of its own.
    let mut many = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let control = control.clone();
        many.spawn(async move { get(connected(&control, 8002).await, "/page").await });
    }
    while let Some(answer) = many.join_next().await {
        assert!(answer.unwrap().ends_with("from the inside\n"));
    }
    fixture.end(&launched).await;
}

#[tokio::test]
async fn nothing_there_is_said_at_once() {
    let fixture = Fixture::new();
    let launched = fixture.launch("noport").await;
    let start = Instant::now();
    let error = launched.control.connect(9).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    assert!(error.to_string().contains("nothing inside listens on port 9") && error.hint().is_some());
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(launched.control.connect(0).await.unwrap_err().kind, ErrorKind::InvalidSpec);
    // The sandbox goes on as before.
    assert_eq!(sh(&launched.control, "echo on").await.stdout, "on\n");
    fixture.end(&launched).await;
}

#[tokio::test]
async fn a_connection_ends_with_its_sandbox() {
    let fixture = Fixture::new();
    let launched = fixture.launch("portend").await;
    let listen =
        "import socket,time; s=socket.create_server(('127.0.0.1', 7000)); c=s.accept(); time.sleep(60)";
    launched.control.exec_background(ExecSpec::new(["python3", "-c", listen])).await.unwrap();
    let mut stream = connected(&launched.control, 7000).await;
    fixture.end(&launched).await;
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the stream is still open");
}
