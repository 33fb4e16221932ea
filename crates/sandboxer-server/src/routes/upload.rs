//! Bodies that are passed on as they come: bounded in size, and in the time between two pieces.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::HeaderMap;
use sandboxer_core::exec::BoxRead;
use sandboxer_core::{Error, ErrorKind, Result};
use tokio_util::io::StreamReader;

use crate::app::App;
use crate::error::ApiError;
use crate::json::content_length;

/// An upload on its way to a backend, and whether it turned out too large.
pub(super) struct Upload {
    limit: u64,
    over: Arc<AtomicBool>,
}

/// The reader for the backend. A body that announces too much is refused before anything is done.
pub(super) fn begin(app: &App, headers: &HeaderMap, body: Body) -> Result<(Upload, BoxRead)> {
    let limit = app.limits().upload;
    let upload = Upload { limit, over: Arc::new(AtomicBool::new(false)) };
    if content_length(headers).is_some_and(|length| length > limit) {
        return Err(upload.too_large());
    }
    let pieces = bounded(body, limit, app.limits().upload_idle, upload.over.clone());
    Ok((upload, Box::pin(StreamReader::new(Box::pin(pieces)))))
}

impl Upload {
    fn too_large(&self) -> Error {
        Error::new(
            ErrorKind::TooLarge,
            format!("the upload is larger than the {} bytes that fit here", self.limit),
        )
    }

    /// The backend's word, unless it failed because we cut the upload off.
    pub(super) fn settle(&self, outcome: Result<()>) -> Result<(), ApiError> {
        match outcome {
            Err(_) if self.over.load(Ordering::Acquire) => Err(self.too_large().into()),
            other => Ok(other?),
        }
    }
}

fn bounded(
    body: Body,
    limit: u64,
    idle: Duration,
    over: Arc<AtomicBool>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let state = Some((body.into_data_stream(), limit));
    futures::stream::unfold(state, move |state| {
        let over = over.clone();
        async move {
            let (mut body, left) = state?;
            let piece = match tokio::time::timeout(idle, body.next()).await {
                Err(_) => {
                    return Some((Err(io::Error::new(io::ErrorKind::TimedOut, "the upload stalled")), None));
                }
                Ok(None) => return None,
                Ok(Some(Err(source))) => return Some((Err(io::Error::other(source)), None)),
                Ok(Some(Ok(piece))) => piece,
            };
            match left.checked_sub(piece.len() as u64) {
                Some(left) => Some((Ok(piece), Some((body, left)))),
                None => {
                    over.store(true, Ordering::Release);
                    Some((Err(io::Error::new(io::ErrorKind::FileTooLarge, "the upload is too large")), None))
                }
            }
        }
    })
}
