//! Ports of a sandbox: HTTP through the proxy, anything else through the tunnel.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Server, error};

/// Reads a request's head, remembers it, and answers each connection with these bytes.
async fn listener(answer: &'static str) -> (u16, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, heads) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            let mut byte = [0_u8; 1];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.is_ok_and(|count| count == 1) {
                head.push(byte[0]);
            }
            let _ = sender.send(String::from_utf8(head).unwrap());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, heads)
}

#[tokio::test]
async fn requests_go_in_without_our_credentials_and_pages_come_out_without_power() {
    let server = Server::start().await;
    let id = server.create().await;
    let answer = "HTTP/1.0 200 OK\r\nSet-Cookie: a=b\r\nClear-Site-Data: \"*\"\r\nX-Own: yes\r\n\
                  Connection: close, X-Hop\r\nX-Hop: 1\r\nContent-Length: 5\r\n\r\nhello";
    let (port, mut heads) = listener(answer).await;
    let key = server.key(sandboxer_core::Actor::Adm).await;
    let page = server
        .http
        .request(
            "PURGE".parse().unwrap(),
            server.url(&format!("/v1/sandboxes/{id}/ports/{port}/a%2Fb/c?x=1&x=2")),
        )
        .bearer_auth(&key)
        .header("cookie", "session=secret")
        .header("x-mine", "1")
        .send()
        .await
        .unwrap();
    assert_eq!(page.status(), 200);
    let headers = page.headers().clone();
    assert_eq!(page.text().await.unwrap(), "hello");
    assert_eq!(headers["x-own"], "yes");
    for gone in ["set-cookie", "clear-site-data", "x-hop"] {
        assert!(!headers.contains_key(gone), "{gone}");
    }
    assert!(headers["content-security-policy"].to_str().unwrap().starts_with("sandbox "));
    let head = heads.recv().await.unwrap().to_ascii_lowercase();
    assert!(head.starts_with("purge /a%2fb/c?x=1&x=2 http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: localhost:{port}\r\n")) && head.contains("x-mine: 1"), "{head}");
    assert!(!head.contains("sbk_") && !head.contains("secret") && !head.contains("authorization"), "{head}");
    let nobody = server.get(&format!("/v1/sandboxes/{id}/ports/{port}/")).send().await.unwrap();
    assert_eq!(error(nobody).await.0, 401);
}

#[tokio::test]
async fn what_cannot_be_reached_is_said() {
    let server = Server::start().await;
    let id = server.create().await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let (status, nothing) =
        error(server.get(&format!("/v1/sandboxes/{id}/ports/{free}/x")).send().await.unwrap()).await;
    assert_eq!((status, nothing["code"].as_str()), (502, Some("backend_failed")));
    assert!(nothing["hint"].is_string());
    let (silent, _heads) = listener("this is not HTTP at all\r\n\r\n").await;
    let (status, _) =
        error(server.get(&format!("/v1/sandboxes/{id}/ports/{silent}/")).send().await.unwrap()).await;
    assert_eq!(status, 502);
    for bad in ["0", "65536", "-1", "http"] {
        let answer = server.get(&format!("/v1/sandboxes/{id}/ports/{bad}/")).send().await.unwrap();
        assert_eq!(error(answer).await.0, 400, "{bad}");
    }
    let bent = server.get("/v1/sandboxes/sbx_nobody/ports/80/").send().await.unwrap();
    assert_eq!(error(bent).await.0, 404);
    let redirect = reqwest::redirect::Policy::none();
    let plain = sandboxer_engine::http::client_builder().no_proxy().redirect(redirect).build().unwrap();
    let moved = plain.get(server.url(&format!("/v1/sandboxes/{id}/ports/80"))).send().await.unwrap();
    assert_eq!(
        (moved.status().as_u16(), moved.headers()["location"].to_str().unwrap()),
        (308, &*format!("/v1/sandboxes/{id}/ports/80/"))
    );
}

#[tokio::test]
async fn a_head_without_an_end_is_refused() {
    let server = Server::start().await;
    let id = server.create().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Long: ").await;
        while stream.write_all(&[b'a'; 4096]).await.is_ok() {}
    });
    let answer = server.get(&format!("/v1/sandboxes/{id}/ports/{port}/")).send().await.unwrap();
    assert_eq!(error(answer).await.0, 502);
}

#[tokio::test]
async fn bodies_are_streamed_both_ways() {
    let server = Server::start().await;
    let id = server.create().await;
    // Echoes a chunked body while it comes.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(request.into_body()))
        });
        let io = hyper_util::rt::TokioIo::new(stream);
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
    });
    let (mut feed, body) = futures::channel::mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
    let request = server.post(&format!("/v1/sandboxes/{id}/ports/{port}/echo"));
    feed.send(Ok(b"first".to_vec())).await.unwrap();
    let mut answer = request.body(reqwest::Body::wrap_stream(body)).send().await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "first");
    feed.send(Ok(b"second".to_vec())).await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "second");
    drop(feed);
    assert_eq!(answer.chunk().await.unwrap(), None);
}

#[tokio::test]
async fn a_websocket_inside_is_reached_through_the_proxy() {
    let server = Server::start().await;
    let id = server.create().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            while let Some(Ok(Message::Text(text))) = socket.next().await {
                socket.send(Message::text(format!("echo {text}"))).await.unwrap();
            }
        }
    });
    let url = format!("ws://{}/v1/sandboxes/{id}/ports/{port}/chat", server.address);
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    for word in ["one", "two"] {
        socket.send(Message::text(word)).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(format!("echo {word}")));
    }
}

#[tokio::test]
async fn the_tunnel_carries_any_protocol_and_its_ends() {
    let server = Server::start().await;
    let id = server.create().await;
    // Reads to the end, then answers what it read, backwards.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        all.reverse();
        stream.write_all(&all).await.unwrap();
    });
    let url = format!("ws://{}/v1/sandboxes/{id}/ports/{port}", server.address);
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    for part in ["ab", "cd"] {
        socket.send(Message::binary(part.as_bytes().to_vec())).await.unwrap();
    }
    socket.send(Message::text(r#"{"type":"eof"}"#)).await.unwrap();
    let mut got = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_secs(5), socket.next()).await.unwrap().unwrap().unwrap() {
            Message::Binary(data) => got.extend_from_slice(&data),
            Message::Text(text) => {
                assert_eq!(text.as_str(), r#"{"type":"eof"}"#);
                break;
            }
            _ => {}
        }
    }
    assert_eq!(got, b"dcba");
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let url = format!("ws://{}/v1/sandboxes/{id}/ports/{free}", server.address);
    let refused = tokio_tungstenite::connect_async(url).await.unwrap_err();
    assert!(matches!(refused, tokio_tungstenite::tungstenite::Error::Http(answer) if answer.status() == 502));
}
