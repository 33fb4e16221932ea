//! What is remembered of a machine that runs. It is written when everything else is done; a folder without it is half a
//! machine.

use jiff::Timestamp;
use sandboxer_core::extension::Handle;
use sandboxer_core::host::{HostAccess, SshAccess};
use sandboxer_core::isolation::{Control, IsolationLevel};
use sandboxer_core::{Error, ErrorKind, Host, Result};
use serde::{Deserialize, Serialize};

use super::process::Process;
use super::{Accelerator, Place, Size};
use crate::files::{failed, replace};
use crate::image::Image;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) tag: String,
    pub(crate) image: Image,
    /// The disks below the overlay, lowest first: the image's, then those of snapshots.
    pub(crate) layers: Vec<String>,
    pub(crate) size: Size,
    pub(crate) accelerator: Accelerator,
    pub(crate) process: Process,
    pub(crate) port: u16,
    pub(crate) ssh_user: String,
    pub(crate) host_key: String,
    pub(crate) controls: Vec<Control>,
    /// Where commands start; known when the guest has answered.
    #[serde(default)]
    pub(crate) workspace: String,
    /// Visible to every command inside.
    #[serde(default)]
    pub(crate) variables: std::collections::BTreeMap<String, String>,
}

impl Record {
    /// The record of a complete machine.
    pub(crate) fn read(place: &Place) -> Result<Option<Self>> {
        let path = place.record_file();
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|source| {
                Error::new(ErrorKind::BackendFailed, format!("{} is damaged", path.display()))
                    .with_source(source)
            }),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed("read", &path, source)),
        }
    }

    pub(crate) fn write(&self, place: &Place) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|source| {
            Error::new(ErrorKind::Internal, "a machine cannot be described").with_source(source)
        })?;
        replace(&place.record_file(), &text)
    }

    /// The guest as a host that is reached by SSH: over a port of this machine that leads into it, known by the key that it
    /// was given before its first start.
    pub(crate) fn guest(&self, place: &Place) -> Host {
        let access = SshAccess {
            address: "127.0.0.1".into(),
            port: self.port,
            user: self.ssh_user.clone(),
            identity_file: Some(place.identity().display().to_string()),
            host_keys: vec![self.host_key.clone()],
        };
        Host {
            name: self.tag.clone(),
            access: HostAccess::Ssh(access),
            labels: Default::default(),
            region: None,
            capacity: Default::default(),
            added_at: Timestamp::UNIX_EPOCH,
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle {
            tag: self.tag.clone(),
            host: sandboxer_core::host::LOCAL.to_owned(),
            effective: IsolationLevel::Microvm,
            controls: self.controls.clone(),
            degraded: false,
            data: serde_json::json!({ "kind": "machine", "port": self.port, "process": self.process }),
        }
    }
}
