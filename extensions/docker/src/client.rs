//! The connection to the engine: bollard for documents, a raw stream where the engine hands its connection over.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker as Api};
use sandboxer_core::Result;
use tokio::sync::OnceCell;

use crate::config::Settings;
use crate::errors::{map, unreachable};

/// How long the engine may take for one answer; pulls and copies have limits of their own.
const ANSWER_LIMIT: u64 = 120;
/// How long a connection may take before the engine counts as not answering.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Client {
    settings: Settings,
    api: OnceCell<Connected>,
}

/// An engine that has answered and told its version.
#[derive(Clone)]
pub(crate) struct Connected {
    pub(crate) api: Api,
    socket: PathBuf,
}

impl Client {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, api: OnceCell::new() }
    }

    pub(crate) fn state_dir(&self) -> &Path {
        &self.settings.state_dir
    }

    /// The engine; the first call agrees on a version, and is made again after a failure.
    pub(crate) async fn connect(&self) -> Result<&Connected> {
        self.api
            .get_or_try_init(|| async {
                let socket = self.settings.socket()?;
                let address = socket.display().to_string();
                let api = Api::connect_with_unix(&address, ANSWER_LIMIT, API_DEFAULT_VERSION)
                    .map_err(|error| map(error, "be reached"))?;
                let agreed = tokio::time::timeout(CONNECT_LIMIT, api.negotiate_version()).await;
                let api = agreed.map_err(unreachable)?.map_err(|error| map(error, "tell its version"))?;
                Ok(Connected { api, socket })
            })
            .await
    }
}

impl Connected {
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The path of a call with the version that was agreed on.
    pub(crate) fn versioned(&self, path: &str) -> String {
        let version = self.api.client_version();
        format!("/v{}.{}{path}", version.major_version, version.minor_version)
    }
}
