//! The listening server: refuse what is unsafe, reconcile, accept, and on the way out finish what is under way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_engine::{Engine, ReconcileReport};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::app::App;
use crate::auth::Peer;
use crate::limits::Limits;
use crate::{local_peer, router};

/// After an accept failed, for lack of file descriptors most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long the end waits for what is still to be written down.
const LAST_WORDS: Duration = Duration::from_secs(5);
const FORGET_IDLE_EVERY: Duration = Duration::from_secs(60);
/// A peer that is gone without a word is noticed after some minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

pub struct ServeOptions {
    pub listen: SocketAddr,
    pub limits: Limits,
    /// Told the bound address once requests are accepted; with port 0 nobody else knows it.
    pub on_bound: Option<oneshot::Sender<SocketAddr>>,
}

impl ServeOptions {
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, limits: Limits::default(), on_bound: None }
    }
}

/// Serves until `shutdown` is cancelled and what was under way has ended. Sandboxes live on.
pub async fn serve(engine: Engine, options: ServeOptions, shutdown: CancellationToken) -> Result<()> {
    refuse_open_door(&engine, options.listen).await?;
    let listener =
        TcpListener::bind(options.listen).await.map_err(|source| cannot_bind(options.listen, source))?;
    let bound = listener.local_addr().map_err(|source| cannot_bind(options.listen, source))?;
    // Callers that connect now wait until the rows are right.
    log_report(&engine.reconcile().await?);
    let maintenance = CancellationToken::new();
    let maintaining = tokio::spawn({
        let (engine, maintenance) = (engine.clone(), maintenance.clone());
        async move { engine.maintain(maintenance).await }
    });
    // Other hosts may be slow or away; nobody waits for them.
    let elsewhere = tokio::spawn({
        let engine = engine.clone();
        async move {
            match engine.reconcile_remote().await {
                Ok(report) => log_report(&report),
                Err(error) => tracing::warn!(error = ?error, "other hosts could not be reconciled"),
            }
        }
    });
    let app = App::new(engine.clone(), options.limits, shutdown.clone())?;
    if let Some(told) = options.on_bound {
        let _ = told.send(bound);
    }
    tracing::info!(address = %bound, "listening");
    accept_until(&listener, &app, bound, &shutdown).await;
    drop(listener);
    drain(&app).await;
    maintenance.cancel();
    // What takes longer stays written down, and the next server goes on with it.
    let _ = tokio::time::timeout(LAST_WORDS, engine.idle()).await;
    elsewhere.abort();
    if let Err(error) = maintaining.await {
        tracing::error!(%error, "maintenance broke off");
    }
    tracing::info!("stopped; sandboxes live on");
    Ok(())
}

/// Anybody on the network could get in otherwise.
async fn refuse_open_door(engine: &Engine, listen: SocketAddr) -> Result<()> {
    if listen.ip().is_loopback() || engine.has_keys().await? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Denied, format!("listening on {listen} needs an API key, and there is none"))
        .with_hint("make one with `sandboxer keys create --name NAME`, or listen on 127.0.0.1"))
}

fn cannot_bind(listen: SocketAddr, source: std::io::Error) -> Error {
    let kind = match source.kind() {
        std::io::ErrorKind::AddrInUse => ErrorKind::Conflict,
        std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        std::io::ErrorKind::AddrNotAvailable => ErrorKind::InvalidInput,
        _ => ErrorKind::Internal,
    };
    let error = Error::new(kind, format!("cannot listen on {listen}")).with_source(source);
    match kind {
        ErrorKind::Conflict => error.with_hint("another server has this address; choose one with `--listen`"),
        _ => error.with_hint("choose another address with `--listen`"),
    }
}

fn log_report(report: &ReconcileReport) {
    tracing::info!(
        adopted = report.adopted.len(),
        finished = report.finished.len(),
        expired = report.expired.len(),
        lost = report.lost.len(),
        removed = report.removed.len(),
        "reconciled"
    );
    for problem in &report.problems {
        tracing::warn!(problem, "not reconciled; it will be tried again");
    }
}

async fn accept_until(listener: &TcpListener, app: &App, bound: SocketAddr, shutdown: &CancellationToken) {
    let router = router(app.clone());
    let slots = Arc::new(Semaphore::new(app.limits().connections));
    let mut forget_idle = tokio::time::interval(FORGET_IDLE_EVERY);
    loop {
        let next = async {
            let slot = slots.clone().acquire_owned().await;
            (slot, listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            () = shutdown.cancelled() => return,
            _ = forget_idle.tick() => {
                app.buckets().forget_idle();
                continue;
            }
            next = next => next,
        };
        match (slot, accepted) {
            (Ok(slot), Ok((stream, address))) => {
                let peer = meet(&stream, address, bound);
                let connection = connection(app.clone(), router.clone(), stream, peer, slot);
                app.tasks().spawn(connection);
            }
            (_, Err(error)) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            (Err(_), _) => return,
        }
    }
}

/// Sets the socket up and finds out whose the other end is, once for all its requests.
fn meet(stream: &TcpStream, address: SocketAddr, bound: SocketAddr) -> Peer {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY was refused");
    }
    let keepalive = rustix::net::sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| rustix::net::sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE));
    if let Err(error) = keepalive {
        tracing::debug!(%error, "keepalive was refused");
    }
    Peer {
        address,
        server_port: bound.port(),
        is_own_user: bound.ip().is_loopback() && is_own_user(stream, address),
    }
}

fn is_own_user(stream: &TcpStream, address: SocketAddr) -> bool {
    let Ok(local) = stream.local_addr() else { return false };
    let owner = match local_peer::owner_of_peer(local, address) {
        Ok(owner) => owner,
        Err(error) => {
            tracing::debug!(%error, "the owner of a connection cannot be told");
            return false;
        }
    };
    // Still connected after the question: so the socket that was found is the other end of this one.
    owner == Some(rustix::process::geteuid().as_raw()) && stream.peer_addr().is_ok()
}

async fn connection(app: App, router: Router, stream: TcpStream, peer: Peer, slot: OwnedSemaphorePermit) {
    app.metrics().connections.inc();
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request.map(Body::new))
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.limits().header_timeout)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    let mut told = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, peer = %peer.address, "a connection ended in disorder");
                }
                break;
            }
            () = app.draining().cancelled(), if !told => {
                told = true;
                serving.as_mut().graceful_shutdown();
            }
            () = app.stopped().cancelled() => break,
        }
    }
    app.metrics().connections.dec();
    drop(slot);
}

/// Waits for what is under way, and ends what takes too long. Dropping a request cancels its create or exec.
async fn drain(app: &App) {
    app.tasks().close();
    let (count, patience) = (app.tasks().len(), app.limits().drain);
    if count > 0 {
        tracing::info!(connections = count, "finishing what is under way");
    }
    if tokio::time::timeout(patience, app.tasks().wait()).await.is_err() {
        tracing::warn!(connections = app.tasks().len(), "ending what did not finish in time");
        app.stopped().cancel();
        app.tasks().wait().await;
    }
}
