//! A receiver that answers as told and remembers every request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandboxer_core::event::Event;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn event(&self) -> Event {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Status(&'static str),
    /// A status with one more header line.
    With(&'static str, String),
    /// 200 with half of the body that it promises.
    Cut,
    /// 200 with a body that does not end.
    Endless,
    Hang,
}

type Behaviour = Box<dyn Fn(&Request, usize) -> Answer + Send + Sync>;

pub(crate) struct Receiver {
    behaviour: Mutex<Behaviour>,
    requests: Mutex<Vec<(Request, bool)>>,
    pub(crate) url: String,
}

impl Receiver {
    /// `behaviour` gets the request and how many came before it.
    pub(crate) async fn start(
        behaviour: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static,
    ) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Arc::new(Self {
            url: format!("http://{}/hook", listener.local_addr().unwrap()),
            behaviour: Mutex::new(Box::new(behaviour)),
            requests: Mutex::default(),
        });
        let serving = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        receiver
    }

    pub(crate) async fn fine() -> Arc<Self> {
        Self::start(|_, _| Answer::Status("204 No Content")).await
    }

    pub(crate) fn be(&self, behaviour: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) {
        *self.behaviour.lock().unwrap() = Box::new(behaviour);
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Some(request) = read_request(&mut stream).await {
            let answer = {
                let mut requests = self.requests.lock().unwrap();
                let answer = (self.behaviour.lock().unwrap())(&request, requests.len());
                let taken = matches!(&answer, Answer::Status(status) if status.starts_with('2'));
                requests.push((request, taken));
                answer
            };
            let is_cut = matches!(answer, Answer::Cut);
            let text = match answer {
                Answer::Status(status) => format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"),
                Answer::With(status, line) => {
                    format!("HTTP/1.1 {status}\r\n{line}\r\ncontent-length: 0\r\n\r\n")
                }
                Answer::Cut => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n".to_owned() + &"x".repeat(50),
                Answer::Endless => {
                    "HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n".to_owned() + &"x".repeat(200_000)
                }
                Answer::Hang => {
                    tokio::time::sleep(Duration::from_secs(3_600)).await;
                    return;
                }
            };
            if stream.get_mut().write_all(text.as_bytes()).await.is_err() || is_cut {
                return;
            }
        }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().iter().map(|(request, _)| request.clone()).collect()
    }

    /// The events that were answered with success, in the order in which they came.
    pub(crate) fn taken(&self) -> Vec<Event> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|(_, taken)| *taken).map(|(request, _)| request.event()).collect()
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let (mut text, mut byte) = (Vec::new(), [0_u8; 1]);
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).await.ok()?;
        text.push(byte[0]);
    }
    let head = String::from_utf8(text).unwrap();
    let headers: HashMap<_, _> = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut body = vec![0; headers.get("content-length")?.parse().unwrap()];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { headers, body })
}
