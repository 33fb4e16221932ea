//! Events on their way to a webhook that fails about half the time, delivered by a process that is killed again and again.
//!
//! The parent makes the events, receives them and kills; the child delivers. Waits of hours pass in no time: the child
//! moves its clock on whenever nothing is due, and keeps how far beside the store for the next child.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sandboxer_core::event::{Event, NewEvent};
use sandboxer_core::request::CreateRequest;
use sandboxer_core::{Dur, Registry};
use sandboxer_engine::catalog::{Catalog, CatalogSources};
use sandboxer_engine::clock::{Clock, SystemClock};
use sandboxer_engine::{Caller, CreateOptions, Engine, Limits, NewWebhook, Parts};
use sandboxer_store::{SqliteStore, Store, StoreOptions};
use sandboxer_testkit::Scripted;

/// Per sandbox; those of a create and further facts.
const EVENTS_EACH: usize = 10;
/// An event is refused at most this often in a row, so that none is given up: that is another test.
const REFUSALS: u32 = 4;
/// How far the child moves its clock when nothing is due.
const STEP: Dur = Dur::from_secs(300);
const OFFSET_FILE: &str = "offset";

/// The system's clock and what the children have moved it by.
struct WarpClock(AtomicI64);

impl Clock for WarpClock {
    fn now(&self) -> jiff::Timestamp {
        let now = SystemClock.now().as_millisecond() + self.0.load(Ordering::Relaxed);
        jiff::Timestamp::from_millisecond(now).unwrap()
    }
}

struct House {
    engine: Engine,
    store: Arc<dyn Store>,
    clock: Arc<WarpClock>,
    home: PathBuf,
}

impl House {
    async fn open(home: &Path) -> Self {
        let options = StoreOptions { source: "outbox".into(), hubs: Vec::new() };
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&home.join("outbox.db"), options).await.unwrap());
        let offset = std::fs::read_to_string(home.join(OFFSET_FILE)).ok().and_then(|text| text.parse().ok());
        let clock = Arc::new(WarpClock(AtomicI64::new(offset.unwrap_or(0))));
        let mut registry = Registry::default();
        registry.register(Arc::new(Scripted::default()));
        let engine = Engine::new(Parts {
            store: store.clone(),
            registry,
            catalog: Catalog::load(&CatalogSources::default()),
            clock: clock.clone(),
            limits: Limits::default(),
            host: None,
            sinks: Vec::new(),
            prices: sandboxer_engine::prices::Prices::default(),
            route: Default::default(),
            extension_limits: Default::default(),
        });
        engine.keep_secrets_in(home);
        engine.allow_private_webhooks("127.0.0.0/8".parse().unwrap());
        Self { engine, store, clock, home: home.to_owned() }
    }

    async fn pending(&self) -> u64 {
        self.engine.sink_stats().await.unwrap().iter().map(|stats| stats.pending).sum()
    }

    /// Kept before it counts, so that no child's time is before that of the one before.
    fn move_on(&self) {
        let offset = self.clock.0.load(Ordering::Relaxed) + i64::try_from(STEP.as_millis()).unwrap();
        let unfinished = self.home.join("offset.new");
        std::fs::write(&unfinished, offset.to_string()).unwrap();
        std::fs::rename(&unfinished, self.home.join(OFFSET_FILE)).unwrap();
        self.clock.0.store(offset, Ordering::Relaxed);
    }
}

/// What the child does until nothing waits any more.
pub(crate) async fn deliver(home: &Path) {
    let house = House::open(home).await;
    while house.pending().await > 0 {
        house.engine.deliver_for(Duration::from_secs(60)).await.unwrap();
        house.move_on();
    }
}

/// What the receiver saw.
#[derive(Default)]
struct Seen {
    requests: u64,
    refused: u64,
    tries: HashMap<String, u32>,
    /// Per sandbox, each event once, in the order of its first arrival.
    taken: BTreeMap<String, Vec<u64>>,
    ids: HashSet<String>,
    repeats: u64,
}

impl Seen {
    /// Whether the event is taken.
    fn take(&mut self, event: &Event) -> bool {
        self.requests += 1;
        let id = event.id.to_string();
        let tries = self.tries.entry(id.clone()).or_default();
        *tries += 1;
        // About every second one, the same in every run with the same ids and in no pattern.
        let mixed = id
            .bytes()
            .fold(u64::from(*tries), |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        if !tries.is_multiple_of(REFUSALS + 1) && (mixed >> 20) & 1 == 0 {
            self.refused += 1;
            return false;
        }
        if self.ids.insert(id) {
            self.taken.entry(event.subject.to_string()).or_default().push(event.sequence);
        } else {
            self.repeats += 1;
        }
        true
    }
}

/// Receives on the loopback until the process ends. Returns where.
fn receive(seen: Arc<Mutex<Seen>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let seen = seen.clone();
            std::thread::spawn(move || while answer(&stream, &seen).is_some() {});
        }
    });
    url
}

/// Answers one request; nothing when the connection ended.
fn answer(stream: &TcpStream, seen: &Mutex<Seen>) -> Option<()> {
    let (mut reader, mut length) = (BufReader::new(stream), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let event: Event = serde_json::from_slice(&body).ok()?;
    let taken = seen.lock().unwrap().take(&event);
    let status = if taken { "204 No Content" } else { "503 Busy" };
    let mut stream = stream;
    stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).ok()
}

/// Ends the child with the parent, also when the parent fails.
struct Deliverer(Child);

impl Drop for Deliverer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The figures of a run that went well.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) events: usize,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) repeats: u64,
    pub(crate) kills: usize,
    pub(crate) took: Duration,
}

/// Makes the events, has them delivered by children that are killed, and makes sure that every one arrived.
pub(crate) async fn run(events: usize, kills: usize, child: impl Fn(&Path) -> Command) -> Figures {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let caller = Caller::local_admin();
    let events_wanted = vec!["*".parse().unwrap()];
    let wanted = NewWebhook { url: receive(seen.clone()), events: events_wanted, description: None };
    house.engine.webhook_create(&caller, wanted).await.unwrap();
    let sandboxes = events / EVENTS_EACH;
    for _ in 0..sandboxes {
        let made =
            house.engine.create(&caller, CreateRequest::default(), CreateOptions::default()).await.unwrap();
        let id = made.sandbox.sandbox_id;
        let filter = sandboxer_store::EventFilter { subject: Some(id), owner_key: None };
        let there = house.store.events(&filter, 0, Default::default()).await.unwrap().len();
        let now = house.engine.now();
        let note = |turn| NewEvent::fact("sandbox.note", now, serde_json::json!({"turn": turn}));
        house.store.facts(id, (there..EVENTS_EACH).map(note).collect()).await.unwrap();
    }
    assert_eq!(house.pending().await, (sandboxes * EVENTS_EACH) as u64);

    let started = Instant::now();
    let mut killed = 0;
    let mut deliverer = Deliverer(child(folder.path()).spawn().unwrap());
    loop {
        if let Some(status) = deliverer.0.try_wait().unwrap() {
            assert!(status.success(), "the deliverer failed: {status}");
            break;
        }
        let arrived = seen.lock().unwrap().ids.len();
        if killed < kills && arrived >= (killed + 1) * sandboxes * EVENTS_EACH / (kills + 1) {
            deliverer.0.kill().unwrap();
            deliverer.0.wait().unwrap();
            killed += 1;
            deliverer = Deliverer(child(folder.path()).spawn().unwrap());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let seen = seen.lock().unwrap();
    assert_eq!(killed, kills, "it was too quick to be killed that often");
    assert_eq!(seen.ids.len(), sandboxes * EVENTS_EACH, "events are missing");
    assert_eq!(seen.taken.len(), sandboxes);
    let in_order: Vec<u64> = (1..=EVENTS_EACH as u64).collect();
    for (subject, sequences) in &seen.taken {
        assert_eq!(*sequences, in_order, "{subject} got its events out of order");
    }
    Figures {
        events: seen.ids.len(),
        requests: seen.requests,
        refused: seen.refused,
        repeats: seen.repeats,
        kills: killed,
        took: started.elapsed(),
    }
}
