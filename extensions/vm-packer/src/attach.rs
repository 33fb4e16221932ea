//! A workspace on a machine that is already running.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use sandboxer_core::extension::{BackendStatus, CleanupReport, Found, Handle, ProvisionRequest};
use sandboxer_core::{Error, HostDirectory, Result};

use crate::guest::Guest;

pub(crate) struct Attached {
    hosts: Arc<dyn HostDirectory>,
    root: PathBuf,
}

impl Attached {
    pub(crate) fn new(hosts: Arc<dyn HostDirectory>, state_dir: PathBuf) -> Self {
        Self { hosts, root: state_dir.join("attached") }
    }
    pub(crate) fn is(&self, tag: &str) -> bool {
        crate::vm::check_tag(tag).is_ok() && self.root.join(tag).exists()
    }
    pub(crate) async fn provision(&self, _vm: &str, _request: &ProvisionRequest) -> Result<Handle> {
        let _ = self.hosts.host("x").await;
        Err(Error::unsupported(crate::ID, "attach"))
    }
    pub(crate) async fn guest(&self, _tag: &str) -> Result<Guest> {
        Err(Error::unsupported(crate::ID, "attach"))
    }
    pub(crate) async fn teardown(&self, _tag: &str) -> Result<CleanupReport> {
        Ok(CleanupReport::default())
    }
    pub(crate) async fn list(&self, _prefix: &str) -> Result<Vec<Found>> {
        Ok(Vec::new())
    }
    pub(crate) async fn is_alive(&self, _tag: &str) -> Result<bool> {
        Err(Error::unsupported(crate::ID, "attach"))
    }
    pub(crate) async fn status(&self, _tag: &str) -> Result<BackendStatus> {
        Err(Error::unsupported(crate::ID, "attach"))
    }
    pub(crate) async fn extend(&self, _tag: &str, _until: Timestamp) -> Result<()> {
        Err(Error::unsupported(crate::ID, "attach"))
    }
}
