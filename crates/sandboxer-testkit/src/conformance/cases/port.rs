//! Connections to ports inside.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::Case;
use crate::conformance::rig::{Outcome, Rig, ensure, fail};
use crate::conformance::sandbox::{Sandbox, noise, script};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "port.reached",
            "a listener inside is reached, by several at a time",
            &["port", "exec"],
            reached,
        ),
        Case::new("port.closed", "a port that nobody listens on is an error", &["port"], closed),
    ]
}

const PORT: u16 = 47_110;

async fn reached(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let mut spec = script("", &[]);
    let port = PORT.to_string();
    spec.argv = rig.subject.listener.iter().map(|piece| piece.replace("{port}", &port)).collect();
    spec.timeout = None;
    let _listener = sandbox.start(spec).await?;
    let mut tries = 0;
    while echo(&sandbox, b"hello".to_vec()).await.is_err() {
        tries += 1;
        ensure(tries < 40, || "the listener was never reached".into())?;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let mut running = JoinSet::new();
    for round in 0..4 {
        let sandbox = sandbox.clone();
        running.spawn(async move { echo(&sandbox, noise(60_000 + round)).await });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap_or_else(|broken| fail(broken.to_string()))?;
    }
    Ok(())
}

async fn echo(sandbox: &Sandbox, data: Vec<u8>) -> Outcome {
    let connection = sandbox.extension.port_connect(&sandbox.handle, PORT).await?;
    let (mut read, mut write) = tokio::io::split(connection);
    let talk = async {
        let send = async {
            write.write_all(&data).await?;
            write.flush().await
        };
        let mut back = vec![0; data.len()];
        let (sent, received) = tokio::join!(send, read.read_exact(&mut back));
        sent?;
        received?;
        ensure(back == data, || "an echo came back changed".into())
    };
    match tokio::time::timeout(Duration::from_secs(15), talk).await {
        Ok(done) => done,
        Err(_) => fail("an echo never came back"),
    }
}

async fn closed(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let connect = sandbox.extension.port_connect(&sandbox.handle, 47_999);
    match tokio::time::timeout(Duration::from_secs(20), connect).await {
        Ok(Err(_)) => Ok(()),
        Ok(Ok(_)) => fail("a connection to nothing is made"),
        Err(_) => fail("a connection to nothing hangs"),
    }
}
