//! From an image to a machine that lets us in.

use std::path::Path;
use std::time::{Duration, Instant};

use sandboxer_core::extension::Progress;
use sandboxer_core::profile::Resources;
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;

use super::identity::{self, Identity};
use super::launch::own_user;
use super::machine::Machine;
use super::process::{self, Process};
use super::seed::{self, Seed};
use super::{Accelerator, Place, Qmp, Record, Size, console, controls};
use crate::files::{failed, private_folder};
use crate::image::Image;
use crate::tools::{Tools, call};

/// How long QEMU may take until its control socket is there.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a guest may take until its SSH server speaks.
const BOOT_LIMIT_KVM: Duration = Duration::from_secs(180);
const BOOT_LIMIT_TCG: Duration = Duration::from_secs(600);
/// How long the console's last words may be on their way.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// What the lowest disk is called in a machine's folder.
pub(crate) const BASE: &str = "base";

/// Everything that a machine is made of.
pub(crate) struct Boot<'a> {
    pub(crate) place: &'a Place,
    pub(crate) image: &'a Image,
    /// Disks of snapshots above the image's, lowest first: their name in the machine's folder, and its format is qcow2.
    pub(crate) layers: Vec<(String, std::path::PathBuf)>,
    pub(crate) size: Size,
    pub(crate) accelerator: Accelerator,
    pub(crate) wanted: &'a Resources,
    pub(crate) ssh_user: String,
    pub(crate) variables: std::collections::BTreeMap<String, String>,
    pub(crate) progress: &'a Progress,
}

/// Prepares the machine's folder, starts QEMU and waits until the guest's SSH server speaks. The record is for the caller
/// to write when the rest is done too.
pub(crate) async fn boot(boot: Boot<'_>, tools: &Tools) -> Result<Record> {
    let Boot { place, image, size, .. } = boot;
    let accelerator = boot.accelerator;
    let mut user = own_user(&place.tag, tools);
    let folder = place.machine();
    private_folder(&folder)?;
    link(&image.disk_path(), &folder.join(BASE))?;
    for name in [&image.kernel, &image.initrd].into_iter().flatten() {
        link(&image.folder.join(name), &folder.join(name))?;
    }
    for (name, path) in &boot.layers {
        link(path, &folder.join(name))?;
    }
    let identity = identity::generate(place, tools).await?;
    let drive = folder.join("seed.img");
    seed::write(&drive, &Seed { tag: &place.tag, user: &boot.ssh_user, identity: &identity })?;
    overlay(&boot, tools).await?;
    if let Some(id) = user
        && let Err(source) = give(&[&folder, &drive, &place.disk()], id)
    {
        // In a container that has no such users; the report says that QEMU runs as we do.
        tracing::warn!("QEMU gets no user of its own: {source}");
        give(&[&folder, &drive, &place.disk()], 0).map_err(|source| failed("taken back", &folder, source))?;
        user = None;
    }

    let machine = Machine { place, image, size, accelerator, user };
    boot.progress.say(format!("booting with {}", accelerator.as_str()));
    let process = machine.start(tools)?;
    let mut qmp = connect(place, process).await?;
    let port = qmp.ssh_port().await?;
    let controls = controls::read_back(&mut qmp, process, accelerator, size, boot.wanted).await?;
    drop(qmp);
    wait_for_ssh(place, process, port, accelerator).await?;
    let Identity { host_key, .. } = identity;
    let layers =
        std::iter::once(BASE.to_owned()).chain(boot.layers.into_iter().map(|(name, _)| name)).collect();
    Ok(Record {
        tag: place.tag.clone(),
        image: image.clone(),
        layers,
        size,
        accelerator,
        process,
        port,
        ssh_user: boot.ssh_user,
        host_key,
        controls,
        workspace: String::new(),
        variables: boot.variables,
    })
}

/// The same file under a second name: nothing is copied, and what is cached outlives the machine.
pub(crate) fn link(from: &Path, to: &Path) -> Result<()> {
    std::fs::hard_link(from, to).map_err(|source| failed("linked", to, source))
}

/// A new disk that holds only what the guest changes.
async fn overlay(boot: &Boot<'_>, tools: &Tools) -> Result<()> {
    let (below, format) = match boot.layers.last() {
        Some((name, _)) => (name.as_str(), "qcow2"),
        None => (BASE, boot.image.format.as_str()),
    };
    let mut command = Command::new(tools.qemu_img.path()?);
    command.args(["create", "-q", "-f", "qcow2", "-F", format, "-b", below, "disk.qcow2"]);
    call(command.arg(boot.size.disk_bytes.to_string()).current_dir(boot.place.machine())).await.map(drop)
}

fn give(paths: &[&Path], user: u32) -> std::io::Result<()> {
    paths.iter().try_for_each(|path| std::os::unix::fs::chown(path, Some(user), Some(user)))
}

async fn connect(place: &Place, process: Process) -> Result<Qmp> {
    let start = Instant::now();
    loop {
        match Qmp::connect(&place.socket()).await {
            Ok(qmp) => return Ok(qmp),
            Err(_) if !process.is_alive() => {
                return Err(ended(place, "QEMU ended before the machine started").await);
            }
            Err(error) if start.elapsed() > START_LIMIT => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Waits until an SSH server says its name through the forwarded port.
async fn wait_for_ssh(place: &Place, process: Process, port: u16, accelerator: Accelerator) -> Result<()> {
    let limit = match accelerator {
        Accelerator::Kvm => BOOT_LIMIT_KVM,
        Accelerator::Tcg => BOOT_LIMIT_TCG,
    };
    let start = Instant::now();
    loop {
        if greeting(port).await {
            return Ok(());
        }
        if console::panicked(place) {
            return Err(ended(place, "the guest's kernel panicked").await);
        }
        if !process.is_alive() {
            return Err(ended(place, "the machine ended while it was booting").await);
        }
        if start.elapsed() > limit {
            let what = format!("the guest's SSH server did not speak within {} s", limit.as_secs());
            return Err(with_console(Error::new(ErrorKind::Timeout, what), place));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// QEMU takes the connection before the guest does, so only words count.
async fn greeting(port: u16) -> bool {
    let words = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let mut start = [0; 4];
        stream.read_exact(&mut start).await.ok()?;
        (&start == b"SSH-").then_some(())
    };
    // A guest whose network is not up yet drops the connection silently, so that a new one is needed soon.
    matches!(tokio::time::timeout(Duration::from_millis(1_500), words).await, Ok(Some(())))
}

async fn ended(place: &Place, what: &str) -> Error {
    // The console's last words are on their way through a pipe, and over when nobody works in the folder any more.
    let start = Instant::now();
    while start.elapsed() < LAST_WORDS && !process::working_in(&place.machine()).is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    with_console(
        Error::new(ErrorKind::BackendFailed, what).with_retry(sandboxer_core::Retry::Permanent),
        place,
    )
}

/// The error with the last lines of the console as its cause.
fn with_console(error: Error, place: &Place) -> Error {
    let words = console::last_lines(place);
    let words = if words.is_empty() { "the console said nothing".to_owned() } else { words };
    error
        .with_source(std::io::Error::other(format!("the console's last lines:\n{words}")))
        .with_hint("the image has to start an SSH server that takes its keys from the seed drive, and a console on ttyS0")
}
