//! Published ports. Only the number inside is kept: outside, the engine chooses, so that stacks do not collide.

use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, Result};

use super::{Judge, Port, Service};
use crate::file::node::Node;

/// More than this from one service is a mistake.
const MAX_PORTS: usize = 256;

impl Judge<'_> {
    pub(super) fn ports(&mut self, service: &mut Service, node: &Node) -> Result<()> {
        for item in node.list("`ports`")? {
            match item.get("target") {
                Some(target) => {
                    let text = target.node.scalar("`target`")?;
                    let protocol =
                        item.get("protocol").map(|entry| entry.node.scalar("`protocol`")).transpose()?;
                    add(service, item, &text, protocol.as_deref().unwrap_or("tcp"))?;
                }
                None => {
                    let text = item.scalar("a port")?;
                    let (ports, protocol) = text.split_once('/').unwrap_or((&text, "tcp"));
                    // `IP:HOST:INSIDE`; the address may be in brackets and hold colons of its own.
                    let inside = ports.rsplit(':').next().unwrap_or(ports);
                    add(service, item, inside, protocol)?;
                }
            }
        }
        if !service.ports.is_empty() {
            self.note(format!(
                "{}: ports are reached at addresses that the engine chooses",
                printable(&service.name)
            ));
        }
        Ok(())
    }
}

fn add(service: &mut Service, node: &Node, range: &str, protocol: &str) -> Result<()> {
    let bad = || -> Error { node.place.invalid(format!("`{}` is no port", printable(range))) };
    let udp = match protocol {
        "tcp" => false,
        "udp" => true,
        other => return Err(node.place.invalid(format!("`{}` is no protocol of a port", printable(other)))),
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let first: u16 = first.trim().parse().map_err(|_| bad())?;
    let last: u16 = last.trim().parse().map_err(|_| bad())?;
    if first == 0 || last < first {
        return Err(bad());
    }
    for number in first..=last {
        let port = Port { number, udp };
        if !service.ports.contains(&port) {
            service.ports.push(port);
        }
        if service.ports.len() > MAX_PORTS {
            return Err(node.place.invalid(format!("more than {MAX_PORTS} ports of one service")));
        }
    }
    Ok(())
}
