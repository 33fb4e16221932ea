//! What callers may ask of a supervisor, and what init answers.

use super::background::Background;
use super::serve::Supervisor;
use super::verify;
use crate::error::{AtStep as _, ErrorKind, Result, RuntimeError};
use crate::report::{ExecExit, ExecState, Status};
use crate::spec::{ExecSpec, Stream};
use crate::wire::{ExecRequest, Frame, FromInit, Program, Reply, Request, ToInit};
use std::os::fd::OwnedFd;

/// A caller that waits for more output.
pub(super) struct Follower {
    client: u64,
    exec: u64,
    stream: Stream,
    offset: u64,
}

const MAX_FOLLOWERS: usize = 512;

impl Supervisor {
    pub(super) fn handle(&mut self, client: u64, frame: Frame) {
        let outcome = match frame.parse() {
            Ok(request) => self.perform(client, request, frame),
            Err(error) => Err(RuntimeError::protocol(format!("unreadable request: {error}"))),
        };
        match outcome {
            Ok(None) => {}
            Ok(Some(reply)) => self.answer(client, &reply, &[], Vec::new()),
            Err(error) => self.answer(client, &Reply::Failed(error), &[], Vec::new()),
        }
    }

    /// Does it; `None` means that the answer comes later.
    fn perform(&mut self, client: u64, request: Request, frame: Frame) -> Result<Option<Reply>> {
        match request {
            Request::Exec(exec) => self.exec(client, *exec, frame.fds).map(|()| None),
            Request::Signal { signal, whole_tree } => {
                if let Some(exec) = self.clients.get(&client).and_then(|client| client.exec) {
                    self.signal_exec(exec, signal, whole_tree);
                }
                Ok(Some(Reply::Done))
            }
            Request::Ping => {
                let number = client;
                self.tell_init(&ToInit::Ping { number }, Vec::new())?;
                Ok(None)
            }
            Request::Connect { port, ipv6 } => {
                self.touch();
                self.tell_init(&ToInit::Connect { number: client, port, ipv6 }, Vec::new())?;
                Ok(None)
            }
            Request::Status { verify } => Ok(Some(Reply::Status(Box::new(self.status(verify))))),
            Request::Extend { deadline_unix_ms } => {
                self.set_deadline(deadline_unix_ms);
                self.touch();
                Ok(Some(Reply::Done))
            }
            Request::Adopt { spec } => self.adopt(*spec).map(|()| Some(Reply::Done)),
            Request::Stop => {
                if let Some(client) = self.clients.get_mut(&client) {
                    client.wants_report = true;
                }
                self.ending = true;
                Ok(None)
            }
            Request::Execs => Ok(Some(Reply::Execs(self.execs.infos()))),
            Request::ExecStatus { id } => Ok(Some(Reply::Execs(vec![self.execs.by_id(&id)?.1.info()]))),
            Request::ExecLogs { id, stream, offset, follow } => {
                self.logs(client, &id, stream, offset, follow)
            }
            Request::ExecStdin { id, eof } => {
                self.touch();
                let (_, exec) = self.execs.by_id(&id)?;
                let background = exec.background.as_mut().ok_or_else(not_background)?;
                background.write(&frame.data, eof)?;
                Ok(Some(Reply::Done))
            }
            Request::ExecSignal { id, signal, whole_tree } => {
                let (number, exec) = self.execs.by_id(&id)?;
                if exec.info.state == ExecState::Running {
                    self.signal_exec(number, signal, whole_tree);
                }
                Ok(Some(Reply::Done))
            }
        }
    }

    fn tell_init(&mut self, message: &ToInit, fds: Vec<OwnedFd>) -> Result<()> {
        let init =
            self.sandbox.init.as_mut().ok_or_else(|| RuntimeError::not_running(&self.sandbox.spec.id))?;
        init.channel.send(message, &[], fds).at("init", "cannot reach init")
    }

    pub(super) fn signal_exec(&mut self, number: u64, signal: i32, whole_tree: bool) {
        if self.tell_init(&ToInit::Signal { number, signal, whole_tree }, Vec::new()).is_err() {
            self.ending = true;
        }
    }

    fn exec(&mut self, client: u64, mut request: ExecRequest, fds: Vec<OwnedFd>) -> Result<()> {
        let hidden = match &request.program {
            Program::Command => {
                request.spec.validate()?;
                false
            }
            Program::File(op) => {
                op.validate()?;
                true
            }
        };
        if self.clients.get(&client).is_none_or(|client| client.exec.is_some()) {
            return Err(RuntimeError::invalid("this connection has an exec already"));
        }
        self.execs.check(&request.spec)?;
        self.fill_in(&mut request.spec);
        self.touch();
        let number = self.number();
        if request.spec.background && !hidden {
            request.spec.tty = None;
            request.streams = [true; 3];
            let (background, streams) = Background::new(self.execs.logs(), &number.to_string())?;
            self.execs.add(number, &request.spec, client, Some(background), hidden);
            self.start(number, request, streams)
        } else {
            self.execs.add(number, &request.spec, client, None, hidden);
            if let Some(client) = self.clients.get_mut(&client) {
                client.exec = Some(number);
            }
            self.start(number, request, fds)
        }
    }

    /// What the sandbox says and the exec does not. Init is not asked: it may be older than its sandbox's identity.
    fn fill_in(&self, exec: &mut ExecSpec) {
        let sandbox = &self.sandbox.spec;
        for (name, value) in &sandbox.env {
            exec.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        if exec.cwd.is_none() {
            exec.cwd.clone_from(&sandbox.cwd);
        }
    }

    fn start(&mut self, number: u64, request: ExecRequest, fds: Vec<OwnedFd>) -> Result<()> {
        let sent = self.tell_init(&ToInit::Exec { number, request: Box::new(request) }, fds);
        if sent.is_err() {
            self.execs.forget(number);
        }
        sent
    }

    fn logs(
        &mut self,
        client: u64,
        id: &str,
        stream: Stream,
        offset: u64,
        follow: bool,
    ) -> Result<Option<Reply>> {
        let (number, exec) = self.execs.by_id(id)?;
        let log = exec.background.as_ref().ok_or_else(not_background)?.log(stream);
        if follow && !log.has_news(offset) {
            if self.followers.len() >= MAX_FOLLOWERS {
                return Err(RuntimeError::new(ErrorKind::Busy, "logs", "too many readers wait for output"));
            }
            self.followers.push(Follower { client, exec: number, stream, offset });
            return Ok(None);
        }
        let mut chunk = log.read(offset);
        let data = std::mem::take(&mut chunk.data);
        self.answer(client, &Reply::Log(chunk), &data, Vec::new());
        Ok(None)
    }

    /// Wakes those who wait for output that has come.
    pub(super) fn answer_followers(&mut self) {
        let waiting = std::mem::take(&mut self.followers);
        for follower in waiting {
            if !self.clients.contains_key(&follower.client) {
                continue;
            }
            let log = self.execs.get(follower.exec).and_then(|exec| exec.background.as_ref());
            let chunk = log
                .map(|background| background.log(follower.stream))
                .map(|log| (log.has_news(follower.offset), log));
            match chunk {
                Some((false, _)) => self.followers.push(follower),
                Some((true, log)) => {
                    let mut chunk = log.read(follower.offset);
                    let data = std::mem::take(&mut chunk.data);
                    self.answer(follower.client, &Reply::Log(chunk), &data, Vec::new());
                }
                None => {
                    let gone =
                        RuntimeError::new(ErrorKind::NotFound, "logs", "the exec is no longer remembered");
                    self.answer(follower.client, &Reply::Failed(gone), &[], Vec::new());
                }
            }
        }
    }

    fn status(&self, verify: bool) -> Status {
        let sandbox = &self.sandbox;
        Status {
            id: sandbox.spec.id.clone(),
            supervisor_pid: rustix::process::getpid().as_raw_nonzero().get(),
            init_pid: sandbox.init.as_ref().map_or(0, |init| init.pid.as_raw_nonzero().get()),
            started_unix_ms: sandbox.started_unix_ms,
            deadline_unix_ms: self.deadline_unix_ms,
            idle_timeout_ms: sandbox.spec.idle_timeout_ms,
            last_activity_unix_ms: self.last_activity_unix_ms,
            execs_running: u32::try_from(self.execs.running()).unwrap_or(u32::MAX),
            execs_total: self.execs.total,
            usage: sandbox.cgroup.usage(),
            enforced: if verify { verify::verify(sandbox) } else { sandbox.enforced.clone() },
        }
    }

    pub(super) fn heard_from_init(&mut self, message: FromInit, fds: Vec<OwnedFd>) {
        match message {
            FromInit::Pong { number } => self.answer(number, &Reply::Pong, &[], Vec::new()),
            FromInit::Connected { number } => self.answer(number, &Reply::Connected, &[], fds),
            FromInit::NotConnected { number, error } => {
                self.answer(number, &Reply::Failed(error), &[], Vec::new());
            }
            FromInit::Started { number, pid } => self.started(number, pid, fds),
            FromInit::Exited { number, code, signal } => self.exited(number, code, signal),
            FromInit::Refused { number, error } => {
                if let Some(client) = self.execs.forget(number).and_then(|exec| exec.client) {
                    if let Some(client) = self.clients.get_mut(&client) {
                        client.exec = None;
                    }
                    self.answer(client, &Reply::Failed(error), &[], Vec::new());
                }
            }
            FromInit::Ready { .. } | FromInit::SetupFailed(_) => self.ending = true,
        }
    }

    fn started(&mut self, number: u64, pid: i32, fds: Vec<OwnedFd>) {
        let Some(exec) = self.execs.get(number) else { return };
        exec.info.pid = Some(pid);
        let (id, client, background) = (exec.info.id.clone(), exec.client, exec.info.background);
        if background {
            exec.client = None;
        }
        if let Some(client) = client {
            self.answer(client, &Reply::Started { id, pid }, &[], fds);
        }
    }

    fn exited(&mut self, number: u64, code: i32, signal: Option<i32>) {
        // A command that killed its monitor at once ends without a word about its start.
        if self.execs.get(number).is_some_and(|exec| exec.info.pid.is_none()) {
            self.started(number, 0, Vec::new());
        }
        let Some(exec) = self.execs.get(number) else { return };
        let (client, timed_out, oom_before) = (exec.client, exec.timed_out, exec.oom_before);
        let killed = signal == Some(libc::SIGKILL) || code == 128 + libc::SIGKILL;
        let mut oom = false;
        if killed && !timed_out {
            let kills = self.sandbox.cgroup.oom_kills();
            oom = kills > oom_before;
            self.execs.oom_seen = kills;
        }
        let code = if timed_out { 124 } else { code.clamp(0, 255) };
        let exit = ExecExit { code, signal, timed_out, oom };
        self.execs.finish(number, exit);
        self.touch();
        if let Some(id) = client {
            if let Some(client) = self.clients.get_mut(&id) {
                client.exec = None;
            }
            self.answer(id, &Reply::Exited(exit), &[], Vec::new());
        }
    }
}

fn not_background() -> RuntimeError {
    RuntimeError::invalid("the exec does not run in the background")
}
