//! The stream of a command that runs while it is read. Reading slowly slows the command; leaving ends it.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use futures::Stream;
use sandboxer_core::ExecId;

use super::record::{ExecRecord, ExitRecord, OutputRecord};
use super::run::millis_since;
use crate::error::ApiError;
use crate::output::{Encoding, Pieces};
use crate::pump::{Piece, Pump};
use crate::request_id::RequestContext;
use crate::stream::Form;

struct Running {
    /// Absent once the last record is made.
    pump: Option<Pump>,
    stdout: Pieces,
    stderr: Pieces,
    form: Form,
    exec_id: ExecId,
    started: Instant,
    context: RequestContext,
    /// Made and not yet read: what one piece became, never more.
    ready: VecDeque<Bytes>,
}

pub(super) fn records(
    pump: Pump,
    encoding: Encoding,
    form: Form,
    exec_id: ExecId,
    started: Instant,
    context: RequestContext,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let running = Running {
        pump: Some(pump),
        stdout: Pieces::new(encoding),
        stderr: Pieces::new(encoding),
        form,
        exec_id,
        started,
        context,
        ready: VecDeque::new(),
    };
    futures::stream::unfold(running, |mut running| async move {
        loop {
            if let Some(record) = running.ready.pop_front() {
                return Some((record, running));
            }
            let piece = running.pump.as_mut()?.next().await;
            running.take(piece);
        }
    })
}

impl Running {
    fn take(&mut self, piece: sandboxer_core::Result<Piece>) {
        match piece {
            Ok(Piece::Stdout(data)) => {
                let data = self.stdout.next(&data);
                self.output(data, ExecRecord::Stdout);
            }
            Ok(Piece::Stderr(data)) => {
                let data = self.stderr.next(&data);
                self.output(data, ExecRecord::Stderr);
            }
            Ok(Piece::Exit(outcome)) => {
                let (out, err) = (self.stdout.rest(), self.stderr.rest());
                self.output(out.unwrap_or_default(), ExecRecord::Stdout);
                self.output(err.unwrap_or_default(), ExecRecord::Stderr);
                let duration_ms = Some(millis_since(self.started));
                self.push(&ExecRecord::Exit(ExitRecord { exec_id: self.exec_id, outcome, duration_ms }));
                self.pump = None;
            }
            Err(error) => {
                let error = ApiError::from(error).envelope(self.context.id()).error;
                self.push(&ExecRecord::Error { error });
                self.pump = None;
            }
        }
    }

    fn output(&mut self, data: String, kind: fn(OutputRecord) -> ExecRecord) {
        if !data.is_empty() {
            self.push(&kind(OutputRecord::of(data)));
        }
    }

    fn push(&mut self, record: &ExecRecord) {
        self.ready.push_back(self.form.record(record.name(), None, record));
    }
}
