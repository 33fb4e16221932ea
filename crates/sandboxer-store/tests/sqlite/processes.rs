//! Several processes on one file: at the same moment from the first creation on, and with one of them killed.
//!
//! The children are this test binary again, running one of the ignored tests below.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::suite::books::*;
use crate::suite::events::sequences;
use crate::suite::fixture::*;
use rusqlite::Connection;
use sandboxer_core::{SandboxId, State};
use sandboxer_store::{Filter, SqliteStore, Store as _, StoreOptions};

const STORE: &str = "SANDBOXER_TEST_STORE";
const PROCESSES: usize = 8;
const WRITES: usize = 50;

fn child(test: &str, store: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([&format!("processes::{test}"), "--exact", "--ignored", "--nocapture"])
        .env(STORE, store)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn store_path() -> PathBuf {
    std::env::var_os(STORE).expect("started by another test").into()
}

async fn open(path: &Path) -> SqliteStore {
    let options = StoreOptions { source: SOURCE.into(), hubs: SINKS.map(Into::into).to_vec() };
    SqliteStore::open(path, options).await.unwrap()
}

#[tokio::test]
#[ignore = "a child of many_processes_write_from_the_first_moment_on"]
async fn child_writes() {
    let store = open(&store_path()).await;
    for turn in 0..WRITES {
        let new = put(&store, record(), State::Provisioning).await;
        let ready = go(&store, &new, &[State::Ready]).await;
        assert_eq!(store.get(new.record.id()).await.unwrap(), Some(ready));
        if turn % 10 == 0 {
            store.outbox_claim(SINKS[0], "child", at(0), at(30), 3).await.unwrap();
        }
    }
    store.close().await;
}

#[tokio::test]
async fn many_processes_write_from_the_first_moment_on() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("new/store.db");
    let children: Vec<Child> = (0..PROCESSES).map(|_| child("child_writes", &path)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
    let store = open(&path).await;
    assert_eq!(store.living().await.unwrap().len(), PROCESSES * WRITES);
    let found = sequences(&store).await;
    assert_eq!(found.len(), PROCESSES * WRITES);
    assert!(found.values().all(|sequences| *sequences == [1, 2, 3]));
    check_file(&path).await;
}

#[tokio::test]
#[ignore = "a child of opening_for_the_first_time_is_no_race"]
async fn child_opens() {
    for turn in 0..20 {
        let store = open(&store_path().join(format!("{turn}/store.db"))).await;
        put(&store, record(), State::Requested).await;
        store.close().await;
    }
}

#[tokio::test]
async fn opening_for_the_first_time_is_no_race() {
    let home = tempfile::tempdir().unwrap();
    let children: Vec<Child> = (0..10).map(|_| child("child_opens", home.path())).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
    for turn in 0..20 {
        let store = open(&home.path().join(format!("{turn}/store.db"))).await;
        assert_eq!(store.living().await.unwrap().len(), 10);
    }
}

#[tokio::test]
#[ignore = "a child of a_killed_process_loses_nothing_and_leaves_nothing_half"]
async fn child_writes_until_killed() {
    let store = open(&store_path()).await;
    let mut stdout = std::io::stdout();
    loop {
        let mut labelled = record();
        labelled.sandbox.labels = labels([("team", "a")]);
        let new = put(&store, labelled, State::Requested).await;
        // Only what was acknowledged is said, and what is said must be there afterwards.
        writeln!(stdout, "made {}", new.record.id()).unwrap();
        let ready = go(&store, &new, &[State::Provisioning, State::Ready]).await;
        let active = go(&store, &ready, &[State::Active]).await;
        go(&store, &active, &[State::Destroying, State::Destroyed]).await;
        for delivery in store.outbox_claim(SINKS[0], "child", at(0), at(0), 5).await.unwrap() {
            store.outbox_done(delivery.id).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_killed_process_loses_nothing_and_leaves_nothing_half() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let mut said = Vec::new();
    // Ten rounds; more on a machine that is so busy that they write next to nothing.
    for round in 0..60_u64 {
        if round >= 10 && said.len() > 20 {
            break;
        }
        let mut children =
            [child("child_writes_until_killed", &path), child("child_writes_until_killed", &path)];
        // Somewhere in the middle: of the creation at first, of any write later.
        std::thread::sleep(Duration::from_millis(10 + round * 37 % 150));
        for child in &mut children {
            child.kill().unwrap();
        }
        for mut child in children {
            let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            // libtest writes its own words on the same line as the first of ours.
            let made = lines.filter_map(|line| line.rsplit_once("made ").map(|(_, id)| id.to_owned()));
            said.extend(made.filter_map(|id| id.parse::<SandboxId>().ok()));
            assert!(!child.wait().unwrap().success());
        }
        if path.exists() {
            let store = open(&path).await;
            for id in &said {
                assert!(store.get(*id).await.unwrap().is_some(), "{id} was lost");
            }
            store.close().await;
            check_file(&path).await;
        }
    }
    assert!(said.len() > 20, "only {} writes in all", said.len());
    let store = open(&path).await;
    let all = Filter { all: true, labels: labels([("team", "a")]), ..Filter::default() };
    assert!(listed(&store, &all).await.len() >= said.len());
}

#[tokio::test]
#[ignore = "a child of a_killed_process_leaves_the_books_sound"]
async fn child_pays_until_killed() {
    let store = open(&store_path()).await;
    let mut stdout = std::io::stdout();
    for turn in 0.. {
        fund(&store, ACCOUNT, "1").await;
        let new = record();
        let running = meter(new.id(), "vcpu", 1, at(0));
        let mut books = hold("0.5");
        books.meters = vec![running.clone()];
        let one = start(&store, new, books).await.unwrap();
        let one = book(&store, &one, hold("0.75")).await.unwrap();
        let mut books = settle("0.2", "0.05");
        books.meters = vec![ended(&running, at(60), "0.2")];
        end(&store, &one, books).await.unwrap();
        writeln!(stdout, "made {turn}").unwrap();
    }
}

#[tokio::test]
async fn a_killed_process_leaves_the_books_sound() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let store = open(&path).await;
    let mut said = 0;
    for round in 0..8_u64 {
        let mut children = [child("child_pays_until_killed", &path), child("child_pays_until_killed", &path)];
        std::thread::sleep(Duration::from_millis(60 + round * 41 % 150));
        for child in &mut children {
            child.kill().unwrap();
        }
        for mut child in children {
            let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            said += lines.filter(|line| line.contains("made ")).count();
            assert!(!child.wait().unwrap().success());
        }
        assert_sound(&store).await;
    }
    assert!(said > 10, "only {said} lives in all");
    // Each life that was told is there with its charge, its interval and nothing held; of the others, all or nothing.
    let charged = balance(&store, PROVIDER).await.nanos();
    assert!(charged >= said as i128 * usd("0.2").nanos() && charged % usd("0.2").nanos() == 0);
    assert_eq!(balance(&store, "fees").await.nanos() * 4, charged);
    let living = store.living().await.unwrap().len() as i128;
    let held = balance(&store, HELD).await.nanos();
    assert!(
        held >= living * usd("0.5").nanos() && held <= living * usd("0.75").nanos(),
        "{living} hold {held}"
    );
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The file is sound, and no transaction is there by half.
async fn check_file(path: &Path) {
    let raw = Connection::open(path).unwrap();
    let integrity: String = raw.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
    assert!(!raw.prepare("PRAGMA foreign_key_check").unwrap().exists([]).unwrap());
    let halves = "SELECT count(*) FROM sandboxes s WHERE \
        s.last_sequence <> (SELECT count(*) FROM events e WHERE e.subject = s.id) \
        OR s.last_sequence <> (SELECT max(e.sequence) FROM events e WHERE e.subject = s.id) \
        OR 'dev.sandboxer.sandbox.' || s.state <> (SELECT e.json ->> 'type' FROM events e \
            WHERE e.subject = s.id AND e.sequence = s.last_sequence) \
        OR s.state <> s.doc ->> 'state' \
        OR s.labels <> (SELECT json_group_object(name, value) FROM sandbox_labels l WHERE l.id = s.id)";
    assert_eq!(number(&raw, halves), 0, "state, events and labels agree");
    let heads = "SELECT count(*) FROM (SELECT 1 FROM outbox GROUP BY sink, subject \
        HAVING sum(head) <> 1 OR min(id) <> min(id) FILTER (WHERE head = 1))";
    assert_eq!(number(&raw, heads), 0, "the oldest of each sandbox is its head");
    let audit = "SELECT (SELECT count(*) FROM outbox WHERE sink = 'audit') - (SELECT count(*) FROM events)";
    assert_eq!(number(&raw, audit), 0, "every event has its row for the sink that nobody serves");
}
