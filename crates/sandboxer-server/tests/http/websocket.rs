//! Commands over a WebSocket.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::support::{Server, error};

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

async fn open(server: &Server, id: &str) -> Socket {
    let url = format!("ws://{}/v1/sandboxes/{id}/execs/ws", server.address);
    tokio_tungstenite::connect_async(url).await.unwrap().0
}

async fn next(socket: &mut Socket) -> Message {
    loop {
        let message =
            tokio::time::timeout(Duration::from_secs(5), socket.next()).await.expect("a frame in time");
        match message.unwrap().unwrap() {
            Message::Ping(_) | Message::Pong(_) => {}
            other => return other,
        }
    }
}

async fn word(socket: &mut Socket) -> Value {
    match next(socket).await {
        Message::Text(text) => serde_json::from_str(&text).unwrap(),
        other => panic!("{other:?} is no text"),
    }
}

fn text(value: Value) -> Message {
    Message::Text(value.to_string().into())
}

/// Everything until the end: stdout, stderr and the last word.
async fn rest(socket: &mut Socket) -> (Vec<u8>, Vec<u8>, Value) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        match next(socket).await {
            Message::Binary(data) if data[0] == 1 => out.extend_from_slice(&data[1..]),
            Message::Binary(data) if data[0] == 2 => err.extend_from_slice(&data[1..]),
            Message::Text(text) => return (out, err, serde_json::from_str(&text).unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn input_output_and_the_end() {
    let server = Server::start().await;
    let id = server.create().await;
    let mut socket = open(&server, &id).await;
    socket.send(text(json!({ "command": "cat; echo bye >&2; exit 7" }))).await.unwrap();
    let started = word(&mut socket).await;
    assert_eq!(started["type"], "started");
    let big: Vec<u8> = (0..=255).cycle().take(500_000).collect();
    for piece in big.chunks(70_000) {
        socket.send(Message::Binary(piece.to_vec().into())).await.unwrap();
    }
    socket.send(Message::Ping(b"are you there".as_slice().into())).await.unwrap();
    socket.send(text(json!({ "type": "eof" }))).await.unwrap();
    let (out, err, last) = rest(&mut socket).await;
    assert!(out == big, "{} bytes of {}", out.len(), big.len());
    assert_eq!(err, b"bye\n");
    assert_eq!((last["type"].as_str(), last["exit_code"].as_i64()), (Some("exit"), Some(7)));
    assert_eq!(last["exec_id"], started["exec_id"]);
    assert!(matches!(next(&mut socket).await, Message::Close(_)));
}

#[tokio::test]
async fn pings_are_answered() {
    let server = Server::start().await;
    let id = server.create().await;
    let mut socket = open(&server, &id).await;
    socket.send(text(json!({ "command": ["sleep", "60"] }))).await.unwrap();
    word(&mut socket).await;
    socket.send(Message::Ping(b"x".as_slice().into())).await.unwrap();
    let pong = async {
        while let Some(Ok(message)) = socket.next().await {
            if matches!(&message, Message::Pong(data) if data.as_ref() == b"x") {
                return;
            }
        }
        panic!("it closed");
    };
    tokio::time::timeout(Duration::from_secs(5), pong).await.unwrap();
}

#[tokio::test]
async fn signals_pass_a_command_that_does_not_read() {
    let server = Server::start().await;
    let id = server.create().await;
    let mut socket = open(&server, &id).await;
    socket.send(text(json!({ "command": ["sleep", "60"] }))).await.unwrap();
    word(&mut socket).await;
    for _ in 0..6 {
        socket.send(Message::Binary(vec![b'x'; 100_000].into())).await.unwrap();
    }
    socket.send(text(json!({ "type": "resize", "rows": 50, "cols": 100 }))).await.unwrap();
    socket.send(text(json!({ "type": "signal", "signal": 2 }))).await.unwrap();
    let (_, _, last) = rest(&mut socket).await;
    assert_eq!((last["exit_code"].as_i64(), last["signal"].as_i64()), (Some(130), Some(2)));
}

#[tokio::test]
async fn leaving_ends_the_command() {
    let server = Server::start().await;
    let id = server.create().await;
    let mut socket = open(&server, &id).await;
    socket.send(text(json!({ "command": "echo $$; exec sleep 60" }))).await.unwrap();
    word(&mut socket).await;
    let Message::Binary(pid) = next(&mut socket).await else { panic!("no output") };
    let pid = String::from_utf8_lossy(&pid[1..]).trim().to_owned();
    drop(socket);
    crate::support::eventually("it ended", || {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z"))
    })
    .await;
}

#[tokio::test]
async fn mistakes_are_told_in_the_envelope() {
    let server = Server::start().await;
    let id = server.create().await;
    for (first, code) in [
        (json!({ "comand": "x" }), "invalid_input"),
        (json!({ "command": "x", "background": true }), "invalid_input"),
        (json!({ "command": [] }), "invalid_input"),
    ] {
        let mut socket = open(&server, &id).await;
        socket.send(text(first)).await.unwrap();
        let wrong = word(&mut socket).await;
        assert_eq!((wrong["type"].as_str(), wrong["error"]["code"].as_str()), (Some("error"), Some(code)));
        assert!(matches!(next(&mut socket).await, Message::Close(_)));
    }
    let mut socket = open(&server, "sbx_00000000000000000000000000").await;
    socket.send(text(json!({ "command": "true" }))).await.unwrap();
    assert_eq!(word(&mut socket).await["error"]["code"], "sandbox_not_found");
    let plain = server.get(&format!("/v1/sandboxes/{id}/execs/ws")).send().await.unwrap();
    let (status, wrong) = error(plain).await;
    assert_eq!((status, wrong["code"].as_str()), (426, Some("upgrade_required")));
}

#[tokio::test]
async fn strangers_and_foreign_pages_get_no_socket() {
    let server = Server::start().await;
    let id = server.create().await;
    let url = format!("ws://{}/v1/sandboxes/{id}/execs/ws", server.address);
    let mut request = tungstenite::client::IntoClientRequest::into_client_request(url).unwrap();
    request.headers_mut().insert("Origin", "http://evil.example".parse().unwrap());
    let refused = tokio_tungstenite::connect_async(request).await.unwrap_err();
    assert!(matches!(refused, tungstenite::Error::Http(answer) if answer.status() == 401));
}

#[tokio::test]
async fn a_stop_ends_a_terminal_at_once() {
    let mut server = Server::start().await;
    let id = server.create().await;
    let mut socket = open(&server, &id).await;
    socket.send(text(json!({ "command": ["sleep", "60"], "tty": true }))).await.unwrap();
    word(&mut socket).await;
    tokio::time::timeout(Duration::from_secs(3), server.stop())
        .await
        .expect("it does not wait for terminals");
    let wrong = word(&mut socket).await;
    assert_eq!(wrong["error"]["code"], "cancelled");
}
