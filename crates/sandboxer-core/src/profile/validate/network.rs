//! What may leave the sandbox and which secrets go with it.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{MAX_NAME, Rules};
use crate::error::Result;
use crate::exec::is_env_name;
use crate::profile::node::Path;
use crate::profile::schema::{EgressRule, Inject, Profile, Secret};
use crate::suggest::{did_you_mean, printable};

const HOST_HINT: &str = "a host is a name such as `api.example.com`, a pattern such as `*.example.com`, an address, or a CIDR block";

pub(super) fn secrets(rules: &Rules<'_>, profile: &Profile) -> Result<()> {
    let list = Path::of(&["secrets"]);
    rules.bounded_list(&list, profile.secrets.len())?;
    for (index, secret) in profile.secrets.iter().enumerate() {
        let path = list.item(index);
        rules.name(&path.key("name"), &secret.name)?;
        if profile.secrets[..index].iter().any(|other| other.name == secret.name) {
            return Err(rules.refuse(&path.key("name"), format!("`{}` is there twice", secret.name)));
        }
        rules.line(&path.key("ref"), &secret.reference, "the reference")?;
        inject(rules, &path, secret)?;
    }
    let list = Path::of(&["secret_refs"]);
    rules.bounded_list(&list, profile.secret_refs.len())?;
    for (index, reference) in profile.secret_refs.iter().enumerate() {
        rules.line(&list.item(index), reference, "the reference")?;
    }
    Ok(())
}

fn inject(rules: &Rules<'_>, path: &Path, secret: &Secret) -> Result<()> {
    let inject_path = path.key("inject");
    match &secret.inject {
        Some(Inject::Header { host, header }) => {
            check_host(host).map_err(|why| {
                rules
                    .refuse(&inject_path.key("host"), format!("`{}` {why}", printable(host)))
                    .with_hint(HOST_HINT)
            })?;
            let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if header.is_empty() || header.len() > MAX_NAME || !header.chars().all(token) {
                let why = format!("`{}` is not the name of a header", printable(header));
                return Err(rules.refuse(&inject_path.key("header"), why));
            }
        }
        Some(Inject::Env { env }) if !is_env_name(env) => {
            let why = format!("`{}` is not a variable name", printable(env));
            return Err(rules.refuse(&inject_path.key("env"), why));
        }
        Some(Inject::Env { .. }) => {}
        None if secret.expose => {}
        None => {
            return Err(rules
                .refuse(path, format!("the secret `{}` is never used", secret.name))
                .with_hint("say how with `inject: { host, header }`, `inject: { env }` or `expose: true`"));
        }
    }
    Ok(())
}

pub(super) fn egress(rules: &Rules<'_>, profile: &Profile) -> Result<()> {
    let list = Path::of(&["network", "egress"]);
    rules.bounded_list(&list, profile.network.egress.len())?;
    for (index, rule) in profile.network.egress.iter().enumerate() {
        let path = list.item(index);
        check_host(&rule.host).map_err(|why| {
            rules.refuse(&path.key("host"), format!("`{}` {why}", printable(&rule.host))).with_hint(HOST_HINT)
        })?;
        egress_words(rules, &path, rule)?;
        if let Some(name) = &rule.credential {
            let known = || profile.secrets.iter().map(|secret| secret.name.as_str());
            if !known().any(|secret| secret == name) {
                let why = format!("there is no secret `{}`", printable(name));
                let hint = did_you_mean(name, known())
                    .unwrap_or_else(|| "a credential is the name of an entry of `secrets`".into());
                return Err(rules.refuse(&path.key("credential"), why).with_hint(hint));
            }
        }
    }
    Ok(())
}

fn egress_words(rules: &Rules<'_>, path: &Path, rule: &EgressRule) -> Result<()> {
    for (key, length) in [
        ("ports", rule.ports.len()),
        ("methods", rule.methods.len()),
        ("paths", rule.paths.len()),
        ("binaries", rule.binaries.len()),
    ] {
        rules.bounded_list(&path.key(key), length)?;
    }
    if let Some(index) = rule.ports.iter().position(|port| *port == 0) {
        return Err(rules.refuse(&path.key("ports").item(index), "0 is not a port"));
    }
    if let Some(protocol) = &rule.protocol {
        rules.name(&path.key("protocol"), protocol)?;
    }
    let is_method =
        |text: &str| text == "*" || (!text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase()));
    if let Some(index) = rule.methods.iter().position(|method| !is_method(method)) {
        let why = format!("`{}` is not a method", printable(&rule.methods[index]));
        let hint = "methods are written `GET`, `POST`, or `*` for all";
        return Err(rules.refuse(&path.key("methods").item(index), why).with_hint(hint));
    }
    for (key, texts) in [("paths", &rule.paths), ("binaries", &rule.binaries)] {
        for (index, text) in texts.iter().enumerate() {
            let path = path.key(key).item(index);
            rules.line(&path, text, "the path")?;
            if !text.starts_with('/') {
                return Err(rules.refuse(&path, format!("`{}` does not begin with `/`", printable(text))));
            }
        }
    }
    Ok(())
}

/// Why `host` is not a name, a pattern, an address or a block of addresses.
fn check_host(host: &str) -> Result<(), &'static str> {
    if host.contains("://") {
        return Err("has a scheme, only the host was expected");
    }
    if host.is_empty() || host.len() > 253 {
        return Err("is empty or longer than 253 characters");
    }
    if host == "*" || is_address(host) {
        return Ok(());
    }
    if host.contains('/') {
        return Err("has a path, which belongs in `paths`");
    }
    if host.contains(':') {
        return Err("has a port, which belongs in `ports`");
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    let good = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if !name.split('.').all(good) {
        return Err("is not a host name or pattern");
    }
    Ok(())
}

/// An address, or a block in CIDR notation.
fn is_address(text: &str) -> bool {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, length.parse::<u8>().ok()),
        None => (text, Some(0)),
    };
    let bits = if address.parse::<Ipv4Addr>().is_ok() {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    length.is_some_and(|length| length <= bits)
}
