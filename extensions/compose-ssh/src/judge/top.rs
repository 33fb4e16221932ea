//! The top level of the file, and what must hold between its parts.

use std::collections::BTreeSet;

use sandboxer_core::profile::Danger;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value as Json};

use super::{Judge, Source, unknown};
use crate::file::node::{Entry, Node, Value};

const MAX_SERVICES: usize = 64;
const KEYS: [&str; 7] = ["services", "networks", "volumes", "secrets", "configs", "name", "version"];

impl Judge<'_> {
    pub(super) fn root(&mut self, root: &Node, unset: &mut BTreeSet<String>) -> Result<()> {
        let entries = match &root.value {
            Value::Map(entries) => entries,
            Value::Null => return Err(root.place.invalid("the compose file is empty")),
            _ => return Err(root.place.invalid("a compose file is a mapping with `services`")),
        };
        // What services refer to comes first.
        for entry in entries {
            match entry.key.as_str() {
                "networks" => self.declare_networks(&entry.node)?,
                "volumes" => self.declare_volumes(&entry.node)?,
                "secrets" | "configs" => self.declare_files(entry)?,
                "include" => {
                    self.refuse(&entry.place, "`include` is not supported; put the stack into one file")
                }
                "services" | "name" | "version" => {}
                key if key.starts_with("x-") => {}
                _ => return Err(unknown(entry, "a compose file", &KEYS)),
            }
        }
        let services =
            root.get("services").ok_or_else(|| root.place.invalid("the compose file has no `services`"))?;
        let list = services.node.map("`services`")?;
        if list.is_empty() {
            return Err(services.place.invalid("the compose file has no services"));
        }
        if list.len() > MAX_SERVICES {
            return Err(services.place.invalid(format!("more than {MAX_SERVICES} services")));
        }
        for entry in list {
            self.one_service(entry, root, unset)?;
        }
        if self.refused.is_empty() { self.check_references(list) } else { Ok(()) }
    }

    fn one_service(&mut self, entry: &Entry, root: &Node, unset: &mut BTreeSet<String>) -> Result<()> {
        let name = &entry.key;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > 63 || !name.bytes().all(plain) || name.starts_with(['-', '.', '_'])
        {
            return Err(entry.place.invalid(format!("`{}` is no name for a service", printable(name))));
        }
        let merged = crate::file::extends::resolve(&entry.node, root, self.bundle, self.variables, unset)?;
        let service = self.service(name, &merged)?;
        self.stack.services.push(service);
        Ok(())
    }

    fn declare_volumes(&mut self, node: &Node) -> Result<()> {
        const KEYS: [&str; 5] = ["driver", "driver_opts", "external", "labels", "name"];
        for volume in node.map("`volumes`")? {
            let shown = printable(&volume.key);
            let mut config = Map::new();
            for entry in volume.node.map("a volume")? {
                match entry.key.as_str() {
                    "driver" => {
                        let driver = entry.node.scalar("`driver`")?;
                        if !matches!(driver.as_str(), "local" | "default" | "")
                            && self.ask(
                                &entry.place,
                                Danger::HostPaths,
                                format!("the volume `{shown}` has the driver `{}`", printable(&driver)),
                            )
                        {
                            config.insert("driver".into(), entry.node.json());
                        }
                    }
                    "driver_opts" => self.volume_options(&mut config, entry, &shown)?,
                    "external" if entry.node.is_on() => {
                        if self.ask(
                            &entry.place,
                            Danger::HostPaths,
                            format!("the volume `{shown}` is outside the stack"),
                        ) {
                            let name = volume.node.get("name").map(|name| name.node.json());
                            config.insert("external".into(), Json::Bool(true));
                            config.insert(
                                "name".into(),
                                name.unwrap_or_else(|| Json::String(volume.key.clone())),
                            );
                        }
                    }
                    "name" => self.note(format!(
                        "the volume `{shown}` gets a name of ours, so that stacks do not share it"
                    )),
                    "external" | "labels" => {}
                    key if key.starts_with("x-") => {}
                    _ => return Err(unknown(entry, "a volume", &KEYS)),
                }
            }
            self.stack.volumes.insert(volume.key.clone(), config);
        }
        Ok(())
    }

    /// A volume in memory is harmless; every other option mounts something of the host or of the network.
    fn volume_options(&mut self, config: &mut Map<String, Json>, entry: &Entry, shown: &str) -> Result<()> {
        let options = entry.node.map("`driver_opts`")?;
        if options.is_empty() {
            return Ok(());
        }
        let is = |key: &str, wanted: &str| {
            entry.node.get(key).is_some_and(|node| node.node.text() == Some(wanted))
        };
        let tmpfs = is("type", "tmpfs")
            && is("device", "tmpfs")
            && !options.iter().any(|option| {
                option.key == "o" && option.node.text().is_some_and(|text| text.contains("bind"))
            });
        let device = entry.node.get("device").and_then(|device| device.node.text()).unwrap_or_default();
        let mut fine = true;
        if device.ends_with(".sock") {
            fine &= self.ask(
                &entry.place,
                Danger::DockerSocket,
                format!("the volume `{shown}` mounts `{}`", printable(device)),
            );
        }
        if tmpfs
            || (fine
                && self.ask(
                    &entry.place,
                    Danger::HostPaths,
                    format!("the volume `{shown}` mounts something of the host by `driver_opts`"),
                ))
        {
            config.insert("driver_opts".into(), entry.node.json());
        }
        Ok(())
    }

    /// Names that are used must be declared; the tools would say so later and without the line.
    fn check_references(&mut self, list: &[Entry]) -> Result<()> {
        let names: BTreeSet<&str> = list.iter().map(|entry| entry.key.as_str()).collect();
        for (service, entry) in self.stack.services.iter().zip(list) {
            for mount in &service.mounts {
                if let Source::Volume(volume) = &mount.source
                    && !self.stack.volumes.contains_key(volume)
                {
                    return Err(entry
                        .place
                        .invalid(format!(
                            "the service `{}` uses the volume `{}`, which is not declared",
                            service.name,
                            printable(volume)
                        ))
                        .with_hint("declare it under the top-level `volumes`, or write `./` before a path"));
                }
            }
            let networks = service.config.get("networks").and_then(Json::as_object);
            for network in networks.into_iter().flat_map(Map::keys) {
                if network != "default" && !self.stack.networks.contains_key(network) {
                    return Err(entry.place.invalid(format!(
                        "the service `{}` is in the network `{}`, which is not declared",
                        service.name,
                        printable(network)
                    )));
                }
            }
            let depends: Vec<&str> = match service.config.get("depends_on") {
                Some(Json::Array(list)) => list.iter().filter_map(Json::as_str).collect(),
                Some(Json::Object(map)) => map.keys().map(String::as_str).collect(),
                _ => Vec::new(),
            };
            if let Some(missing) = depends.into_iter().find(|name| !names.contains(name)) {
                return Err(entry.place.invalid(format!(
                    "the service `{}` depends on `{}`, which does not exist",
                    service.name,
                    printable(missing)
                )));
            }
        }
        if self.stack.services.iter().all(|service| service.optional) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "no service of the compose file starts by itself",
            ));
        }
        Ok(())
    }
}
