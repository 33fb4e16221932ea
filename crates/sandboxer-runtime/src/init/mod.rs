//! PID 1 of a sandbox: starts execs, reaps, and ends process trees. Its only channel is the socket to
//! the supervisor; when that closes it leaves, and everything inside with it.

mod exec;
mod files;
mod kill;
mod passwd;
mod port;
pub(crate) mod setup;
mod workspace;

use crate::error::{AtStep as _, ErrorKind, Result, RuntimeError};
use crate::sys;
use crate::wire::{Conn, ExecRequest, FromInit, MAX_FRAME, ToInit};
use exec::{Record, RecordKind};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitStatus};
use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// A little longer than any other name in the list, so that `ps` inside shows what it is.
const NAME: &std::ffi::CStr = c"sbx-init";

/// An exec whose monitor lives.
struct Running {
    monitor: Pid,
    command: Option<i32>,
    /// The terminal's master, until it is handed over.
    terminal: Option<OwnedFd>,
    ended: bool,
    /// A signal that came before there was a command to take it.
    pending: Option<(i32, bool)>,
}

struct Init {
    channel: Conn,
    records: OwnedFd,
    record_writer: OwnedFd,
    signals: OwnedFd,
    execs: HashMap<u64, Running>,
    /// Whether there are users to change to.
    mapped: bool,
}

/// Sets the sandbox up and serves it. Never returns: the process ends here.
pub(crate) fn run(plan: &setup::Plan<'_>, channel: OwnedFd) -> ! {
    let mut channel = Conn::new(channel, MAX_FRAME);
    let enforced = match setup::run(plan, &mut channel) {
        Ok(enforced) => enforced,
        Err(error) => {
            let _ = channel.send_blocking(&FromInit::SetupFailed(error), Vec::new(), 5000);
            sys::process::leave(1);
        }
    };
    let mut channel = keep_only(channel);
    crate::fault::point("runtime.init.before_ready");
    if channel.send_blocking(&FromInit::Ready { enforced }, Vec::new(), 5000).is_err() {
        sys::process::leave(1);
    }
    let code = match Init::new(channel, plan).and_then(|mut init| init.serve()) {
        Ok(()) => 0,
        Err(_) => 1,
    };
    sys::process::leave(code);
}

/// Closes whatever was inherited from outside: only the channel stays.
fn keep_only(channel: Conn) -> Conn {
    const CHANNEL: i32 = 3;
    for number in 0..CHANNEL {
        sys::process::replace_with_null(number);
    }
    let Conn { fd, codec } = channel;
    if std::os::fd::AsRawFd::as_raw_fd(&fd) == CHANNEL {
        sys::process::close_from(4);
        return Conn { fd, codec };
    }
    if sys::process::move_to(&fd, CHANNEL).is_err() {
        sys::process::leave(1);
    }
    std::mem::forget(fd);
    sys::process::close_from(4);
    Conn { fd: sys::process::adopt(CHANNEL), codec }
}

impl Init {
    fn new(channel: Conn, plan: &setup::Plan<'_>) -> Result<Self> {
        let (records, record_writer) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).at("init", "cannot make the record pipe")?;
        let signals =
            sys::signal::descriptor(&[libc::SIGCHLD]).at("init", "cannot watch for ended processes")?;
        Ok(Self { channel, records, record_writer, signals, execs: HashMap::new(), mapped: plan.mapped })
    }

    fn serve(&mut self) -> Result<()> {
        loop {
            let mut wanted = PollFlags::IN;
            if self.channel.codec.wants_write() {
                wanted |= PollFlags::OUT;
            }
            let mut fds = [
                PollFd::new(&self.channel.fd, wanted),
                PollFd::new(&self.records, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).at("init", "cannot wait"),
            }
            let ready = [0, 1, 2].map(|i| !fds[i].revents().is_empty());
            if ready[1] {
                self.read_records()?;
            }
            if ready[2] {
                sys::signal::drain(&self.signals);
                self.reap()?;
            }
            if ready[0] && !self.serve_channel()? {
                return Ok(());
            }
        }
    }

    fn serve_channel(&mut self) -> Result<bool> {
        use std::os::fd::AsFd as _;
        self.channel.codec.flush(self.channel.fd.as_fd()).at("init", "cannot answer")?;
        let open = self.channel.codec.fill(self.channel.fd.as_fd()).at("init", "cannot listen")?;
        while let Some(frame) = self.channel.codec.next().at("init", "cannot understand")? {
            let message: ToInit = frame.parse().at("init", "cannot understand")?;
            match message {
                ToInit::Exec { number, request } => self.start(number, &request, frame.fds)?,
                ToInit::Signal { number, signal, whole_tree } => self.signal(number, signal, whole_tree),
                ToInit::Join => {}
                ToInit::Ping { number } => self.tell(&FromInit::Pong { number }, Vec::new())?,
                ToInit::Connect { number, port, ipv6 } => match port::open(port, ipv6) {
                    Ok(socket) => self.tell(&FromInit::Connected { number }, vec![socket])?,
                    Err(error) => self.tell(&FromInit::NotConnected { number, error }, Vec::new())?,
                },
            }
        }
        Ok(open)
    }

    fn tell(&mut self, message: &FromInit, fds: Vec<OwnedFd>) -> Result<()> {
        self.channel.send(message, &[], fds).at("init", "cannot answer")
    }

    fn start(&mut self, number: u64, request: &ExecRequest, fds: Vec<OwnedFd>) -> Result<()> {
        let prepared = exec::prepare(request, fds, self.mapped);
        let started = prepared.and_then(|prepared| {
            let monitor = exec::spawn(number, &prepared, &self.record_writer)?;
            Ok(Running { monitor, command: None, terminal: prepared.terminal, ended: false, pending: None })
        });
        match started {
            Ok(running) => {
                self.execs.insert(number, running);
                Ok(())
            }
            Err(error) => self.tell(&FromInit::Refused { number, error }, Vec::new()),
        }
    }

    fn signal(&mut self, number: u64, signal: i32, whole_tree: bool) {
        let Some(running) = self.execs.get_mut(&number) else { return };
        let monitor = running.monitor.as_raw_nonzero().get();
        match running.command {
            _ if running.ended => {}
            None => {
                running.pending = Some((signal, whole_tree));
                // A command may stop its monitor before that has reported the start, and then nothing would ever be due.
                if whole_tree {
                    kill::tree(monitor, None, signal);
                    kill::one(monitor, libc::SIGCONT);
                }
            }
            Some(command) if whole_tree => {
                kill::tree(monitor, Some(command), signal);
                // Where the monitor has the command's own user, the command may have stopped it; nobody is left to do
                // so again, and it still has to report.
                kill::one(monitor, libc::SIGCONT);
            }
            Some(command) => kill::one(command, signal),
        }
    }

    fn read_records(&mut self) -> Result<()> {
        let mut buffer = [0_u8; Record::SIZE * 64];
        while let Ok(count) = rustix::io::read(&self.records, &mut buffer) {
            for bytes in buffer[..count].chunks_exact(Record::SIZE) {
                if let Some(record) = Record::decode(bytes) {
                    self.handle_record(&record)?;
                }
            }
            if count < buffer.len() {
                break;
            }
        }
        Ok(())
    }

    fn handle_record(&mut self, record: &Record) -> Result<()> {
        let number = record.number;
        let Some(running) = self.execs.get_mut(&number) else { return Ok(()) };
        match record.kind {
            RecordKind::Started => {
                running.command = Some(record.value);
                let terminal = running.terminal.take().into_iter().collect();
                if let Some((signal, whole_tree)) = running.pending.take() {
                    self.signal(number, signal, whole_tree);
                }
                self.tell(&FromInit::Started { number, pid: record.value }, terminal)
            }
            RecordKind::Exited => {
                running.ended = true;
                self.tell(&FromInit::Exited { number, code: record.value & 0xff, signal: None }, Vec::new())
            }
            RecordKind::Signaled => {
                running.ended = true;
                let signal = record.value & 0x7f;
                self.tell(&FromInit::Exited { number, code: 128 + signal, signal: Some(signal) }, Vec::new())
            }
        }
    }

    fn reap(&mut self) -> Result<()> {
        while let Some((pid, status)) = sys::process::reap() {
            let Some(number) =
                self.execs.iter().find(|(_, running)| running.monitor == pid).map(|(number, _)| *number)
            else {
                continue;
            };
            // Its last record was written before it ended.
            self.read_records()?;
            if let Some(running) = self.execs.remove(&number)
                && !running.ended
            {
                self.lost_monitor(number, status)?;
            }
        }
        Ok(())
    }

    /// A monitor that was killed has lost its tree: what it watched is now ours, and is ended.
    fn lost_monitor(&mut self, number: u64, status: WaitStatus) -> Result<()> {
        let monitors: Vec<i32> =
            self.execs.values().map(|running| running.monitor.as_raw_nonzero().get()).collect();
        kill::orphans(&monitors);
        let signal = status.terminating_signal().unwrap_or(libc::SIGKILL);
        self.tell(&FromInit::Exited { number, code: 128 + signal, signal: Some(signal) }, Vec::new())
    }
}

/// The error of a fork that the pids limit or the host's memory refused.
fn fork_failed(error: &std::io::Error) -> RuntimeError {
    let mut failed = RuntimeError::io("fork", "cannot start a process", error);
    if error.raw_os_error() == Some(libc::EAGAIN) {
        failed.kind = ErrorKind::Busy;
        failed.hint = Some("the sandbox's limit of processes is reached".to_owned());
    }
    failed
}
