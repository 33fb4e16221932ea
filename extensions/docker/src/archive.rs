//! Tar archives, by the `tar` inside: an archive cannot reach further than the sandbox's own user.

use sandboxer_core::Result;
use sandboxer_core::exec::BoxRead;

use crate::exec::Place;
use crate::files::{absolute, shown, stream_out};

const PACK: &str = include_str!("scripts/pack.sh");
const UNPACK: &str = include_str!("scripts/unpack.sh");

impl Place {
    pub(crate) async fn archive_get(&self, path: &str) -> Result<BoxRead> {
        let path = absolute(path)?;
        let launch = self.script(&self.user, PACK, &[&path]);
        stream_out(self.start(launch).await?, &format!("pack `{}`", shown(&path))).await
    }

    pub(crate) async fn archive_put(&self, path: &str, tar: BoxRead) -> Result<()> {
        let path = absolute(path)?;
        let launch = self.script(&self.user, UNPACK, &[&path]);
        self.stream_in(launch, tar, b"", &format!("unpack into `{}`", shown(&path))).await
    }
}
