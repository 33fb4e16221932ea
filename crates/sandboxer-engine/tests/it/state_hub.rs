//! The State Hub over real HTTP: a hub that fails, hangs and comes back gets every event, in order, and costs a create nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sandboxer_core::event::Event;
use sandboxer_core::request::CreateRequest;
use sandboxer_engine::{Caller, CreateOptions, Engine, Limits, STATE_HUB_SINK, Sink, StateHub};
use sandboxer_testkit::Workshop;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const WORKS: u8 = 0;
const FAILS: u8 = 1;
const HANGS: u8 = 2;
const TAKES_AND_FAILS: u8 = 3;

/// A hub that behaves as told and remembers what it took.
#[derive(Default)]
struct Hub {
    mood: AtomicU8,
    taken: Mutex<Vec<Event>>,
    calls: Mutex<u32>,
}

impl Hub {
    async fn start() -> (Arc<Self>, String) {
        let hub = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let serving = hub.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        (hub, url)
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        while let Some(body) = read_request(&mut stream).await {
            *self.calls.lock().unwrap() += 1;
            let mood = self.mood.load(Ordering::SeqCst);
            if mood == HANGS {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
            }
            if mood == WORKS || mood == TAKES_AND_FAILS {
                self.taken.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
            }
            let status = if mood == WORKS { "204 No Content" } else { "500 Oh No" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn be(&self, mood: u8) {
        self.mood.store(mood, Ordering::SeqCst);
    }

    fn calls(&self) -> u32 {
        *self.calls.lock().unwrap()
    }

    fn taken(&self) -> Vec<Event> {
        self.taken.lock().unwrap().clone()
    }
}

/// One request with its body by content-length; `None` when the connection ends.
async fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut text, mut byte) = (Vec::new(), [0_u8; 1]);
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).await.ok()?;
        text.push(byte[0]);
    }
    let head = String::from_utf8(text).unwrap().to_lowercase();
    assert!(head.contains("content-type: application/cloudevents+json"), "{head}");
    assert!(head.contains("idempotency-key: evt_"), "{head}");
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().trim().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(body)
}

/// Every event of every sandbox arrived, and per sandbox in order once repeats are taken out.
fn assert_complete(taken: &[Event], sandboxes: usize, events_each: usize) {
    let mut by_sandbox: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in taken {
        let sequences = by_sandbox.entry(event.subject.to_string()).or_default();
        if sequences.last() != Some(&event.sequence) {
            sequences.push(event.sequence);
        }
    }
    assert_eq!(by_sandbox.len(), sandboxes);
    for (subject, sequences) in by_sandbox {
        assert_eq!(sequences, (1..=events_each as u64).collect::<Vec<_>>(), "{subject}");
    }
}

async fn workshop(url: &str) -> (Workshop, Engine) {
    let sink: Arc<dyn Sink> = Arc::new(StateHub::new(url).unwrap());
    let workshop = Workshop::with(Limits::default(), vec![sink]).await.unwrap();
    let engine = workshop.engine.clone();
    (workshop, engine)
}

async fn lives(engine: &Engine, count: usize) -> Duration {
    let started = Instant::now();
    for _ in 0..count {
        let made = engine
            .create(&Caller::local_admin(), CreateRequest::default(), CreateOptions::default())
            .await
            .unwrap();
        engine.destroy(&Caller::local_admin(), made.sandbox.sandbox_id).await.unwrap();
    }
    started.elapsed()
}

async fn until(what: &str, done: impl AsyncFn() -> bool) {
    for _ in 0..1_500 {
        if done().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not happen in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_fails_and_comes_back_gets_everything_in_order() {
    let (hub, url) = Hub::start().await;
    let (workshop, engine) = workshop(&url).await;
    let cancel = CancellationToken::new();
    let maintaining = tokio::spawn({
        let (engine, cancel) = (engine.clone(), cancel.clone());
        async move { engine.maintain(cancel).await }
    });
    hub.be(FAILS);
    lives(&engine, 3).await;
    until("a failed delivery", async || hub.calls() > 0).await;
    hub.be(TAKES_AND_FAILS);
    workshop.clock.advance(sandboxer_core::Dur::from_secs(2));
    until("a taken delivery whose answer got lost", async || !hub.taken().is_empty()).await;
    hub.be(WORKS);
    until("the delivery of all", async || {
        // Back-off is measured by the engine's clock, which only the test moves.
        workshop.clock.advance(sandboxer_core::Dur::from_secs(5));
        workshop.store.outbox_stats(STATE_HUB_SINK).await.unwrap().pending == 0
    })
    .await;
    assert_complete(&hub.taken(), 3, 5);
    cancel.cancel();
    maintaining.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_hangs_or_is_not_there_costs_a_create_nothing() {
    let (hub, url) = Hub::start().await;
    hub.be(HANGS);
    for url in [url.as_str(), "http://127.0.0.1:9/events"] {
        let (workshop, engine) = workshop(url).await;
        let cancel = CancellationToken::new();
        let maintaining = tokio::spawn({
            let (engine, cancel) = (engine.clone(), cancel.clone());
            async move { engine.maintain(cancel).await }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        // The hub's own time-out is ten seconds: one wait for it would be seen here, machine noise is not.
        assert!(lives(&engine, 20).await < Duration::from_secs(8));
        assert!(workshop.store.outbox_stats(STATE_HUB_SINK).await.unwrap().pending > 0);
        cancel.cancel();
        maintaining.abort();
    }
}

#[test]
fn an_address_that_is_no_hub_is_refused() {
    for url in ["", "hub", "ftp://hub/", "file:///etc/passwd"] {
        let error = StateHub::new(url).err().unwrap();
        assert!(error.hint().unwrap().contains("SANDBOXER_STATE_HUB_URL"), "{url}");
    }
}
