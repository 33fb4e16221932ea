//! Networks: every one of them is internal unless the profile opens them.

use sandboxer_core::Result;
use sandboxer_core::profile::Danger;
use sandboxer_core::suggest::printable;
use serde_json::{Map, Value as Json, json};

use super::{Judge, Service, unknown};
use crate::file::node::{Entry, Node, Value};

impl Judge<'_> {
    pub(super) fn network_mode(&mut self, service: &mut Service, entry: &Entry) -> Result<()> {
        let mode = entry.node.scalar("`network_mode`")?;
        let shown = printable(&mode);
        let fine = match mode.as_str() {
            "none" => true,
            "host" => self.ask(
                &entry.place,
                Danger::HostNamespaces,
                "`network_mode: host` leaves the container's own namespace",
            ),
            "bridge" | "default" => self.ask(
                &entry.place,
                Danger::OpenNetwork,
                format!("`network_mode: {shown}` is a network that reaches out"),
            ),
            _ if mode.starts_with("service:") => true,
            _ if mode.starts_with("container:") => self.ask(
                &entry.place,
                Danger::HostNamespaces,
                format!("`network_mode: {shown}` joins a container outside the stack"),
            ),
            _ => self.ask(
                &entry.place,
                Danger::OpenNetwork,
                format!("`network_mode: {shown}` is a network outside the stack"),
            ),
        };
        if fine {
            service.config.insert("network_mode".into(), entry.node.json());
        }
        service.own_network_mode = Some(mode);
        Ok(())
    }

    /// The networks that a service is in. Fixed addresses would collide with the next stack of the same file.
    pub(super) fn service_networks(&mut self, service: &mut Service, entry: &Entry) -> Result<()> {
        const KEYS: [&str; 8] = [
            "aliases",
            "ipv4_address",
            "ipv6_address",
            "link_local_ips",
            "mac_address",
            "priority",
            "driver_opts",
            "gw_priority",
        ];
        let mut out = Map::new();
        if let Value::List(items) = &entry.node.value {
            for item in items {
                out.insert(item.scalar("a network")?, Json::Null);
            }
        } else {
            for network in entry.node.map("`networks`")? {
                let mut config = Map::new();
                for key in network.node.map("the network of a service")? {
                    match key.key.as_str() {
                        "aliases" => {
                            config.insert(key.key.clone(), key.node.json());
                        }
                        "ipv4_address" | "ipv6_address" | "link_local_ips" | "mac_address" => {
                            return Err(key
                                .place
                                .invalid(format!(
                                    "`{}` is fixed, so two stacks of this file would collide",
                                    key.key
                                ))
                                .with_hint("services reach each other by name"));
                        }
                        "priority" | "gw_priority" => {}
                        "driver_opts" => {
                            self.refuse(&key.place, "`driver_opts` of a service's network are not supported");
                        }
                        _ => return Err(unknown(key, "the network of a service", &KEYS)),
                    }
                }
                out.insert(
                    network.key.clone(),
                    if config.is_empty() { Json::Null } else { Json::Object(config) },
                );
            }
        }
        service.config.insert("networks".into(), Json::Object(out));
        Ok(())
    }

    /// The top-level `networks`.
    pub(super) fn declare_networks(&mut self, node: &Node) -> Result<()> {
        const KEYS: [&str; 10] = [
            "driver",
            "driver_opts",
            "external",
            "internal",
            "ipam",
            "enable_ipv6",
            "enable_ipv4",
            "attachable",
            "labels",
            "name",
        ];
        for network in node.map("`networks`")? {
            let shown = printable(&network.key);
            let mut config = Map::new();
            for entry in network.node.map("a network")? {
                match entry.key.as_str() {
                    "driver" => self.network_driver(entry, &shown)?,
                    "driver_opts" => {
                        for option in entry.node.map("`driver_opts`")? {
                            if option.key == "com.docker.network.driver.mtu" {
                                config.insert(
                                    "driver_opts".into(),
                                    json!({ option.key.clone(): option.node.json() }),
                                );
                            } else {
                                self.ask(
                                    &option.place,
                                    Danger::OpenNetwork,
                                    format!(
                                        "the option `{}` of the network `{shown}` is not allowed",
                                        printable(&option.key)
                                    ),
                                );
                            }
                        }
                    }
                    "external" if entry.node.is_on() => {
                        if self.ask(
                            &entry.place,
                            Danger::OpenNetwork,
                            format!("the network `{shown}` is outside the stack"),
                        ) {
                            let name = network.node.get("name").map(|name| name.node.json());
                            config.insert("external".into(), Json::Bool(true));
                            config.insert(
                                "name".into(),
                                name.unwrap_or_else(|| Json::String(network.key.clone())),
                            );
                        }
                    }
                    "ipam" => {
                        self.note(format!("the addresses of the network `{shown}` are chosen by the engine"))
                    }
                    "internal" if entry.node.is_on() => {
                        config.insert("internal".into(), Json::Bool(true));
                    }
                    "external" | "internal" | "enable_ipv6" | "enable_ipv4" | "attachable" | "labels"
                    | "name" => {}
                    key if key.starts_with("x-") => {}
                    _ => return Err(unknown(entry, "a network", &KEYS)),
                }
            }
            self.stack.networks.insert(network.key.clone(), config);
        }
        Ok(())
    }

    fn network_driver(&mut self, entry: &Entry, shown: &str) -> Result<()> {
        let driver = entry.node.scalar("`driver`")?;
        match driver.as_str() {
            "bridge" | "default" | "" => {}
            "host" => {
                self.ask(
                    &entry.place,
                    Danger::HostNamespaces,
                    format!("the network `{shown}` is the host's"),
                );
                self.refuse(
                    &entry.place,
                    "a network with `driver: host` is not supported; use `network_mode: host`",
                );
            }
            _ => self.refuse(
                &entry.place,
                format!(
                    "the network `{shown}` has the driver `{}`; only `bridge` can be kept internal",
                    printable(&driver)
                ),
            ),
        }
        Ok(())
    }
}
