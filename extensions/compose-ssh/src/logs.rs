//! What the services themselves log.

use sandboxer_core::exec::BoxRead;
use sandboxer_core::extension::Handle;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::Command;

use crate::site::Site;

/// Lines of each service, before what is followed.
const LINES: &str = "10000";

/// `compose logs`, one line prefixed by its service each.
pub(crate) async fn open(site: &Site, handle: &Handle, follow: bool) -> Result<BoxRead> {
    let folder = site.folder(&handle.tag);
    let there = site.script("[ -f \"$1/compose.json\" ]", &[&folder]).await?;
    if !there.success() {
        return Err(Error::new(ErrorKind::SandboxNotFound, format!("{} is gone", handle.tag)));
    }
    let tool = site.tool().await?;
    let (file, project) = (format!("{folder}/compose.json"), format!("{folder}/project"));
    let empty = format!("{folder}/empty.env");
    let mut argv: Vec<&str> = tool.program().to_vec();
    argv.extend(["-p", &handle.tag, "-f", &file, "--project-directory", &project, "--env-file", &empty]);
    argv.extend(["logs", "--no-color", "--tail", LINES]);
    if follow {
        argv.push("--follow");
    }
    let command = Command::script("exec \"$@\" 2>&1", argv);
    let session = site.remote.start(site.with_engine(command)).await?;
    Ok(Box::pin(Held { inner: session.stdout, _control: session.control }))
}

/// The command lives as long as somebody reads.
struct Held {
    inner: BoxRead,
    _control: std::sync::Arc<dyn sandboxer_core::exec::ExecControl>,
}

impl tokio::io::AsyncRead for Held {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        self.inner.as_mut().poll_read(cx, buf)
    }
}
