//! Hosts: the book of them, and what an operator does with it.

mod address;
mod book;
mod check;
mod facts;
mod key;
mod scan;
mod view;

use sandboxer_core::host::{Host, HostAccess, HostCapacity, LOCAL, SshAccess, validate_name};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::caller::Action;
use crate::{Caller, Engine};
use key::{MOST_KEYS, PublicKey};

pub use book::HostBook;
pub(crate) use book::absent;
pub(crate) use check::check_one;
pub use view::{ExtensionCheck, HostCheck, HostView, NewHost};

impl Engine {
    /// Every host, the engine's own machine first.
    pub async fn hosts(&self, caller: &Caller) -> Result<Vec<HostView>> {
        caller.require(Action::Operate)?;
        let mut loads = self.inner.store.host_loads().await?;
        let now = self.now();
        let records = self.book().all().await?;
        Ok(records
            .into_iter()
            .map(|record| {
                let load = loads.remove(&record.host.name).unwrap_or_default();
                HostView::of(record, load, now)
            })
            .collect())
    }

    /// Registers a host under a key that somebody has confirmed.
    pub async fn host_add(&self, caller: &Caller, new: &NewHost) -> Result<HostView> {
        caller.require(Action::ManageHosts)?;
        let mut ssh = validate(new)?;
        if self.inner.store.host_get(&new.name).await?.is_some() {
            // Said before the host is asked for its keys; the store says it again if somebody was quicker.
            return Err(taken(&new.name));
        }
        ssh.host_keys = confirmed_keys(new, &ssh).await?;
        let host = Host {
            name: new.name.clone(),
            access: HostAccess::Ssh(ssh),
            labels: new.labels.clone(),
            region: new.region.clone(),
            capacity: new.capacity.clone(),
            added_at: self.now(),
        };
        let record = self.inner.store.host_put(&host).await?;
        Ok(HostView::of(record, Default::default(), self.now()))
    }

    /// Forgets a host on which nothing of ours lives.
    pub async fn host_remove(&self, caller: &Caller, name: &str) -> Result<HostView> {
        caller.require(Action::ManageHosts)?;
        if name == LOCAL {
            return Err(Error::new(ErrorKind::Conflict, "the engine's own machine is always a host")
                .with_hint("a profile's `placement.prefer` or --host chooses another one"));
        }
        self.book().get(name).await?;
        let record = self.inner.store.host_remove(name).await?;
        Ok(HostView::of(record, Default::default(), self.now()))
    }
}

/// The name under which `known_hosts` has the host of this address.
pub fn known_host_name(address: &str) -> Result<String> {
    let ssh = address::parse(address)?;
    Ok(if ssh.port == 22 { ssh.address } else { format!("[{}]:{}", ssh.address, ssh.port) })
}

fn taken(name: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("there is a host `{name}` already"))
        .with_hint(format!("`sandboxer hosts remove {name}` first, or choose another name"))
}

/// Every word that will become an argument, a path or a label.
fn validate(new: &NewHost) -> Result<SshAccess> {
    let refuse = |why: String| Err(Error::new(ErrorKind::InvalidInput, why));
    validate_name(&new.name)?;
    if new.name == LOCAL {
        return Err(taken(LOCAL).with_hint("it is the engine's own machine; choose another name"));
    }
    let mut ssh = address::parse(&new.address)?;
    if let Some(region) = &new.region {
        word("region", region)?;
    }
    if new.labels.len() > 64 {
        return refuse("a host has at most 64 labels".into());
    }
    for (key, value) in &new.labels {
        word("label", key)?;
        word("label", value)?;
    }
    let HostCapacity { cpu, .. } = &new.capacity;
    if cpu.is_some_and(|cpu| !cpu.is_finite() || cpu < 0.0) {
        return refuse("the number of processors is not a number above zero".into());
    }
    if let Some(file) = &new.identity_file {
        let is_plain = file.starts_with('/') && file.len() <= 4_096 && !file.chars().any(char::is_control);
        if !is_plain || !std::path::Path::new(file).is_file() {
            return refuse(format!(
                "`{}` is not a key file: it must be an absolute path to a file on the engine's machine",
                printable(file)
            ));
        }
        ssh.identity_file = Some(file.clone());
    }
    Ok(ssh)
}

fn word(what: &str, text: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.is_empty() || text.len() > 128 || !text.chars().all(plain) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("`{}` is not a {what}", printable(text)))
            .with_hint("letters, digits, `.`, `_` and `-`, at most 128"));
    }
    Ok(())
}

/// The keys to pin: those that were given, or of those that the host shows the ones that somebody vouches for.
async fn confirmed_keys(new: &NewHost, ssh: &SshAccess) -> Result<Vec<String>> {
    if new.host_keys.len() > MOST_KEYS || new.fingerprints.len() > MOST_KEYS {
        return Err(Error::new(ErrorKind::InvalidInput, format!("more than {MOST_KEYS} keys")));
    }
    if !new.host_keys.is_empty() {
        let mut keys: Vec<String> = Vec::new();
        for text in &new.host_keys {
            keys.push(PublicKey::parse(text)?.text().to_owned());
        }
        keys.dedup();
        return Ok(keys);
    }
    let wanted: Vec<String> =
        new.fingerprints.iter().map(|text| key::fingerprint(text)).collect::<Result<_>>()?;
    let offered = scan::offered(ssh).await?;
    if new.accept_key && wanted.is_empty() {
        return Ok(offered.iter().map(|key| key.text().to_owned()).collect());
    }
    let is_offered = |wanted: &String| offered.iter().any(|key| key.fingerprint() == wanted);
    if !wanted.is_empty() && wanted.iter().all(is_offered) {
        let chosen = offered.iter().filter(|key| wanted.iter().any(|wanted| wanted == key.fingerprint()));
        return Ok(chosen.map(|key| key.text().to_owned()).collect());
    }
    Err(unconfirmed(new, ssh, &offered, wanted.is_empty()))
}

/// Nobody vouches for what the host shows.
fn unconfirmed(new: &NewHost, ssh: &SshAccess, offered: &[PublicKey], unasked: bool) -> Error {
    let shown: Vec<String> =
        offered.iter().map(|key| format!("{} {}", key.kind(), key.fingerprint())).collect();
    let place = address::write(ssh);
    let message = if unasked {
        format!("nobody has confirmed the key of {place}, which shows {}", shown.join(", "))
    } else {
        format!("{place} does not show the key that was confirmed; it shows {}", shown.join(", "))
    };
    let first = offered.first().map(PublicKey::fingerprint).unwrap_or_default();
    let hint = if unasked {
        format!(
            "compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host itself; if it is the same: \
             sandboxer hosts add {} {place} --fingerprint {first}, with the other options as before",
            new.name
        )
    } else {
        "the fingerprint is mistyped, or somebody else answers in the host's place".to_owned()
    };
    let fingerprints: Vec<&str> = offered.iter().map(PublicKey::fingerprint).collect();
    Error::new(ErrorKind::HostKeyRefused, message)
        .with_hint(hint)
        .with_context("address", place)
        .with_context("fingerprints", fingerprints.join(","))
}
