//! What a sandbox itself offers: ports inside, and the logs of its backend.

use std::time::Duration;

use sandboxer_core::exec::BoxRead;
use sandboxer_core::extension::BoxDuplex;
use sandboxer_core::{Error, ErrorKind, Result, SandboxId};

use crate::{Caller, Engine};

/// How long a backend may take to connect.
const CONNECT: Duration = Duration::from_secs(15);

impl Engine {
    /// A connection to what listens on a port inside, on its loopback.
    pub async fn port_connect(&self, caller: &Caller, id: SandboxId, port: u16) -> Result<BoxDuplex> {
        if port == 0 {
            return Err(Error::new(ErrorKind::InvalidInput, "port 0 is no port")
                .with_hint("ports go from 1 to 65535"));
        }
        let (stored, extension, handle) = self.usable_backend(caller, id).await?;
        if !extension.describe().capability.port {
            return Err(extension.unsupported("ports"));
        }
        let connected = tokio::time::timeout(CONNECT, extension.port_connect(&handle, port)).await;
        let connected = connected.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, format!("no connection within {} s", CONNECT.as_secs())))
        });
        let connected = self.or_settle(stored, connected).await;
        connected.map_err(|error| match error.kind() {
            ErrorKind::IllegalState | ErrorKind::SandboxNotFound | ErrorKind::Unsupported => error,
            _ => unreached(id, port, error),
        })
    }

    /// What the backend itself logged; with `follow` until somebody stops reading.
    pub async fn backend_logs(&self, caller: &Caller, id: SandboxId, follow: bool) -> Result<BoxRead> {
        let (stored, extension, handle) = self.usable_backend(caller, id).await?;
        if !extension.describe().capability.backend_logs {
            return Err(extension.unsupported("logs of the backend"));
        }
        let logs = extension.backend_logs(&handle, follow).await;
        self.or_settle(stored, logs).await
    }
}

/// One answer for every backend: most often nothing listens there.
fn unreached(id: SandboxId, port: u16, source: Error) -> Error {
    let hint = source.hint().map_or_else(
        || format!("is something listening? `sandboxer exec --background {id} -- CMD` starts it"),
        str::to_owned,
    );
    Error::new(ErrorKind::BackendFailed, format!("port {port} of sandbox {id} cannot be reached"))
        .with_source(source)
        .with_hint(hint)
}
