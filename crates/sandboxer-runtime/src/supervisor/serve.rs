//! The supervisor's loop: one thread, one `poll`, no wait anywhere else.

use super::execs::Execs;
use super::requests::Follower;
use super::{Sandbox, launch, teardown};
use crate::ends;
use crate::fault;
use crate::report::CleanupReport;
use crate::spec::unix_ms;
use crate::sys;
use crate::wire::{Conn, FromInit, MAX_FRAME, Reply};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// More connections than this wait in the socket's backlog.
const MAX_CLIENTS: usize = 1024;
/// A deadline further away than this is as good as none, and is not offered.
const MAX_AHEAD_MS: u64 = 366 * 24 * 3600 * 1000;

/// The connection on which the launch was asked for.
const LAUNCH_CLIENT: u64 = 0;

/// One connected caller.
pub(super) struct Client {
    pub(super) conn: Conn,
    /// The foreground exec of this connection; it ends with it.
    pub(super) exec: Option<u64>,
    pub(super) wants_report: bool,
    pub(super) gone: bool,
}

pub(super) struct Supervisor {
    pub(super) sandbox: Sandbox,
    pub(super) clients: BTreeMap<u64, Client>,
    pub(super) execs: Execs,
    pub(super) followers: Vec<Follower>,
    next: u64,
    /// By the clock that goes on while the machine sleeps and that nobody sets.
    pub(super) deadline_ms: u64,
    pub(super) deadline_unix_ms: u64,
    pub(super) last_activity_ms: u64,
    pub(super) last_activity_unix_ms: u64,
    /// Whether to end, and who wants to hear of it.
    pub(super) ending: bool,
    signals: Option<OwnedFd>,
}

/// What a descriptor in the poll set belongs to.
#[derive(Clone, Copy)]
enum Token {
    Listener,
    Init,
    InitProcess,
    Signals,
    Client(u64),
    Background(u64, usize),
}

/// Serves until the deadline, a stop, or the end of init; then removes everything.
pub(super) fn serve(sandbox: Sandbox, caller: Conn) {
    let mut supervisor = Supervisor::new(sandbox, caller);
    fault::point("runtime.launch.before_reply");
    if supervisor.answer_launch() {
        launch::write_holder(&supervisor.sandbox);
        while !supervisor.ending {
            supervisor.turn();
        }
        supervisor.note_end();
    }
    supervisor.end();
}

pub(super) fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

impl Supervisor {
    fn new(sandbox: Sandbox, caller: Conn) -> Self {
        let client = Client { conn: caller, exec: None, wants_report: false, gone: false };
        let mut supervisor = Self {
            execs: Execs::new(&sandbox.dirs.sandbox(&sandbox.spec.id)),
            clients: BTreeMap::from([(LAUNCH_CLIENT, client)]),
            followers: Vec::new(),
            next: 1,
            deadline_ms: 0,
            deadline_unix_ms: 0,
            last_activity_ms: 0,
            last_activity_unix_ms: 0,
            ending: false,
            signals: sys::signal::descriptor(&[libc::SIGTERM, libc::SIGINT]).ok(),
            sandbox,
        };
        supervisor.set_deadline(supervisor.sandbox.spec.deadline_unix_ms);
        supervisor.touch();
        supervisor
    }

    /// A caller that has gone meanwhile does not want the sandbox any more.
    fn answer_launch(&mut self) -> bool {
        let reply = launch::launched(&self.sandbox);
        self.clients
            .get_mut(&LAUNCH_CLIENT)
            .is_some_and(|client| client.conn.send_blocking(&reply, Vec::new(), 5000).is_ok())
    }

    pub(super) fn set_deadline(&mut self, unix: u64) {
        let ahead = unix.saturating_sub(unix_ms()).min(MAX_AHEAD_MS);
        self.deadline_unix_ms = unix;
        self.deadline_ms = boot_ms() + ahead;
    }

    pub(super) fn touch(&mut self) {
        self.last_activity_ms = boot_ms();
        self.last_activity_unix_ms = unix_ms();
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// One round: wait, then handle what is ready, then what is due.
    fn turn(&mut self) {
        let (ready, failed) = self.wait();
        if failed {
            self.ending = true;
            return;
        }
        for (token, flags) in ready {
            match token {
                Token::Listener => self.accept(),
                Token::Init => self.serve_init(flags),
                Token::InitProcess => self.ending = true,
                Token::Signals => self.ending = true,
                Token::Client(id) => self.serve_client(id, flags),
                Token::Background(number, stream) => self.execs.pump(number, stream),
            }
            if self.ending {
                return;
            }
        }
        self.answer_followers();
        self.drop_gone();
        self.check_times();
    }

    fn wait(&self) -> (Vec<(Token, PollFlags)>, bool) {
        let mut tokens = Vec::with_capacity(self.clients.len() + 4);
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(self.clients.len() + 4);
        self.collect(&mut |token, fd, flags| {
            tokens.push(token);
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        });
        let timeout = self.until_next();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {
                let ready = tokens.into_iter().zip(&fds).map(|(token, fd)| (token, fd.revents()));
                (ready.filter(|(_, flags)| !flags.is_empty()).collect(), false)
            }
            Err(rustix::io::Errno::INTR) => (Vec::new(), false),
            Err(_) => (Vec::new(), true),
        }
    }

    /// Every descriptor that something can happen on.
    fn collect<'a>(&'a self, add: &mut dyn FnMut(Token, BorrowedFd<'a>, PollFlags)) {
        if let Some(listener) = self.sandbox.listener.as_ref().filter(|_| self.clients.len() < MAX_CLIENTS) {
            add(Token::Listener, listener.as_fd(), PollFlags::IN);
        }
        if let Some(init) = &self.sandbox.init {
            let writing = if init.channel.codec.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
            add(Token::Init, init.channel.fd.as_fd(), PollFlags::IN | writing);
            add(Token::InitProcess, init.pidfd.as_fd(), PollFlags::IN);
        }
        if let Some(signals) = &self.signals {
            add(Token::Signals, signals.as_fd(), PollFlags::IN);
        }
        for (id, client) in &self.clients {
            let writing = if client.conn.codec.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
            add(Token::Client(*id), client.conn.fd.as_fd(), PollFlags::IN | writing);
        }
        for (number, stream, fd, flags) in self.execs.descriptors() {
            add(Token::Background(number, stream), fd, flags);
        }
    }

    fn until_next(&self) -> Option<Timespec> {
        let now = boot_ms();
        let mut due = self.deadline_ms;
        if let Some(idle) = self.idle_due() {
            due = due.min(idle);
        }
        if let Some(exec) = self.execs.next_deadline() {
            due = due.min(exec);
        }
        let wait = due.saturating_sub(now);
        Some(Timespec {
            tv_sec: i64::try_from(wait / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(wait % 1000).unwrap_or(0) * 1_000_000,
        })
    }

    fn idle_due(&self) -> Option<u64> {
        let idle = self.sandbox.spec.idle_timeout_ms.filter(|_| self.execs.running() == 0)?;
        Some(self.last_activity_ms.saturating_add(idle))
    }

    fn check_times(&mut self) {
        let now = boot_ms();
        if now >= self.deadline_ms || self.idle_due().is_some_and(|due| now >= due) {
            self.ending = true;
            return;
        }
        for number in self.execs.overdue(now) {
            self.signal_exec(number, libc::SIGKILL, true);
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.sandbox.listener else { return };
        let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
        if let Ok(fd) = rustix::net::accept_with(listener, flags) {
            let id = self.number();
            let client =
                Client { conn: Conn::new(fd, MAX_FRAME), exec: None, wants_report: false, gone: false };
            self.clients.insert(id, client);
        }
    }

    fn serve_client(&mut self, id: u64, flags: PollFlags) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let conn = &mut client.conn;
        if flags.contains(PollFlags::OUT) && conn.codec.flush(conn.fd.as_fd()).is_err() {
            client.gone = true;
            return;
        }
        if !flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            return;
        }
        let open = conn.codec.fill(conn.fd.as_fd()).unwrap_or(false);
        loop {
            let Some(client) = self.clients.get_mut(&id) else { return };
            match client.conn.codec.next() {
                Ok(Some(frame)) => self.handle(id, frame),
                Ok(None) => break,
                Err(_) => {
                    client.gone = true;
                    break;
                }
            }
        }
        if !open && let Some(client) = self.clients.get_mut(&id) {
            client.gone = true;
        }
    }

    /// Answers a caller; one that does not take its answers is dropped.
    pub(super) fn answer(&mut self, id: u64, reply: &Reply, data: &[u8], fds: Vec<OwnedFd>) {
        if let Some(client) = self.clients.get_mut(&id)
            && client.conn.send(reply, data, fds).is_err()
        {
            client.gone = true;
        }
    }

    fn drop_gone(&mut self) {
        let gone: Vec<u64> =
            self.clients.iter().filter(|(_, client)| client.gone).map(|(id, _)| *id).collect();
        // A warm sandbox is for whoever launched it and for nobody else.
        if self.sandbox.spec.warm && gone.contains(&LAUNCH_CLIENT) {
            self.ending = true;
        }
        for id in gone {
            if let Some(exec) = self.clients.remove(&id).and_then(|client| client.exec) {
                // Nobody is left to take its output.
                self.signal_exec(exec, libc::SIGKILL, true);
            }
        }
    }

    /// Init is inside, so it is not believed: anything it should not say ends the sandbox.
    fn serve_init(&mut self, flags: PollFlags) {
        let Some(init) = &mut self.sandbox.init else { return };
        let channel = &mut init.channel;
        if flags.contains(PollFlags::OUT) && channel.codec.flush(channel.fd.as_fd()).is_err() {
            self.ending = true;
            return;
        }
        let open = channel.codec.fill(channel.fd.as_fd()).unwrap_or(false);
        let mut messages = Vec::new();
        loop {
            match channel.codec.next() {
                Ok(Some(frame)) => match frame.parse::<FromInit>() {
                    Ok(message) => messages.push((message, frame.fds)),
                    Err(_) => return self.ending = true,
                },
                Ok(None) => break,
                Err(_) => return self.ending = true,
            }
        }
        for (message, fds) in messages {
            self.heard_from_init(message, fds);
        }
        if !open {
            self.ending = true;
        }
    }

    /// Whoever asks later learns when it ended, unless somebody asked for the end and knows.
    fn note_end(&self) {
        let is_asked_for = self.clients.values().any(|client| client.wants_report);
        if !is_asked_for && !self.sandbox.spec.warm {
            ends::note(&self.sandbox.dirs, &self.sandbox.spec.id);
        }
    }

    /// Removes everything; whoever asked for it is told, and the connection is the last thing to close.
    fn end(mut self) {
        let mut report = CleanupReport::default();
        self.sandbox.listener = None;
        teardown::teardown(&mut self.sandbox, &mut report);
        for client in self.clients.values_mut().filter(|client| client.wants_report) {
            let _ = client.conn.send_blocking(&Reply::Stopped(report.clone()), Vec::new(), 1000);
        }
    }
}
