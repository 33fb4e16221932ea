//! Mounts, and the files behind secrets and configs: the bundle and volumes of the stack, nothing else of the host.

use sandboxer_core::Result;
use sandboxer_core::profile::Danger;
use sandboxer_core::suggest::printable;
use serde_json::{Map, Value as Json};

use super::{Judge, Mount, Service, Source, unknown};
use crate::bundle::Located;
use crate::file::node::{Entry, Node, Place, escape};

/// Sockets that command a container engine.
const SOCKETS: [&str; 5] = ["docker.sock", "containerd.sock", "podman.sock", "crio.sock", "buildkitd.sock"];
/// Folders that such sockets live in, and those above them.
const COVERING: [&str; 7] =
    ["/", "/run", "/var", "/var/run", "/run/docker", "/run/containerd", "/run/podman"];

impl Judge<'_> {
    pub(super) fn volumes(&mut self, service: &mut Service, node: &Node) -> Result<()> {
        for item in node.list("`volumes`")? {
            let mount = match item.text() {
                Some(text) => self.short_mount(item, text)?,
                None => self.long_mount(item)?,
            };
            let Some(mount) = mount else { continue };
            if !mount.target.starts_with('/') || mount.target.trim_matches('/').is_empty() {
                return Err(item
                    .place
                    .invalid(format!("`{}` is no place to mount at", printable(&mount.target))));
            }
            // Of two mounts at one place the later counts, as where a service extends another.
            service
                .mounts
                .retain(|there| there.target.trim_end_matches('/') != mount.target.trim_end_matches('/'));
            service.mounts.push(mount);
        }
        Ok(())
    }

    /// `[SOURCE:]TARGET[:MODE]`.
    fn short_mount(&mut self, item: &Node, text: &str) -> Result<Option<Mount>> {
        let parts: Vec<&str> = text.split(':').collect();
        let (source, target, mode) = match parts.as_slice() {
            [target] => ("", *target, ""),
            [source, target] => (*source, *target, ""),
            [source, target, mode] => (*source, *target, *mode),
            _ => return Err(item.place.invalid(format!("`{}` is no mount", printable(text)))),
        };
        if source.is_empty() && parts.len() > 1 {
            return Err(item.place.invalid(format!("`{}` is no mount", printable(text))));
        }
        let read_only = mode.split(',').any(|option| option == "ro");
        let source = if source.is_empty() {
            Source::Anonymous
        } else if source.starts_with(['/', '.', '~']) {
            match self.bind(&item.place, item, source, true)? {
                Some(source) => source,
                None => return Ok(None),
            }
        } else {
            Source::Volume(source.to_owned())
        };
        Ok(Some(Mount { source, target: target.to_owned(), read_only, rest: Map::new() }))
    }

    fn long_mount(&mut self, item: &Node) -> Result<Option<Mount>> {
        const KEYS: [&str; 8] =
            ["type", "source", "target", "read_only", "bind", "volume", "tmpfs", "consistency"];
        let (mut kind, mut source, mut target, mut read_only) = (String::new(), None, None, false);
        let mut rest = Map::new();
        let mut create = true;
        for entry in item.map("a mount")? {
            match entry.key.as_str() {
                "type" => kind = entry.node.scalar("`type`")?,
                "source" => source = Some(entry.node.scalar("`source`")?),
                "target" => target = Some(entry.node.scalar("`target`")?),
                "read_only" => read_only = entry.node.is_on(),
                "volume" => {
                    if entry.node.get("nocopy").is_some_and(|nocopy| nocopy.node.is_on()) {
                        rest.insert("volume".into(), serde_json::json!({ "nocopy": true }));
                    }
                }
                "tmpfs" => {
                    if let Some(size) = entry.node.get("size") {
                        rest.insert("tmpfs".into(), serde_json::json!({ "size": size.node.json() }));
                    }
                }
                "bind" => {
                    create = entry.node.get("create_host_path").is_none_or(|create| create.node.is_on());
                }
                "consistency" => {}
                _ => return Err(unknown(entry, "a mount", &KEYS)),
            }
        }
        let target = target.ok_or_else(|| item.place.invalid("the mount has no `target`"))?;
        let source = match (kind.as_str(), source) {
            ("bind", Some(source)) => match self.bind(&item.place, item, &source, create)? {
                Some(source) => source,
                None => return Ok(None),
            },
            ("volume", Some(name)) => Source::Volume(name),
            ("volume", None) => Source::Anonymous,
            ("tmpfs", _) => Source::Tmpfs,
            ("bind", None) => return Err(item.place.invalid("the mount has no `source`")),
            (other, _) => {
                return Err(item
                    .place
                    .invalid(format!("`{}` is no type of mount that is known here", printable(other))));
            }
        };
        Ok(Some(Mount { source, target, read_only, rest }))
    }

    /// A host path as source: inside the bundle, or lifted by the profile. `None` when it was refused.
    fn bind(&mut self, place: &Place, item: &Node, source: &str, create: bool) -> Result<Option<Source>> {
        let base = crate::file::folder_of(&place.file).to_owned();
        match self.bundle.index.locate(&base, source) {
            Located::Inside { path, .. } => return Ok(Some(Source::Bundle { path, missing: false })),
            Located::Missing { path } => {
                if !create || self.bundle.left_out.contains(&path) {
                    return Err(self.left_behind(item, source, &path));
                }
                self.note(format!(
                    "`{}` is not in the bundle; an empty folder is made there",
                    printable(&path)
                ));
                return Ok(Some(Source::Bundle { path, missing: true }));
            }
            Located::Outside => {}
        }
        Ok(self.outside(place, source))
    }

    /// A path of the host itself.
    fn outside(&mut self, place: &Place, source: &str) -> Option<Source> {
        let shown = printable(source);
        let plain = normal(source);
        let last = plain.rsplit('/').next().unwrap_or_default();
        let is_socket = SOCKETS.contains(&last);
        let mut fine = true;
        if is_socket || COVERING.contains(&plain.as_str()) {
            let what = if is_socket { "is" } else { "holds" };
            fine &= self.ask(
                place,
                Danger::DockerSocket,
                format!("`{shown}` {what} the socket of a container engine"),
            );
        }
        if !is_socket {
            fine &= self.ask(
                place,
                Danger::HostPaths,
                format!("`{shown}` is a path of the host outside the bundle"),
            );
        }
        if fine && !source.starts_with('/') {
            self.refuse(place, format!("`{shown}` means nothing on the host; write an absolute path"));
            return None;
        }
        fine.then(|| Source::Host(source.to_owned()))
    }

    pub(super) fn volumes_from(&mut self, service: &mut Service, entry: &Entry) -> Result<()> {
        let mut kept = Vec::new();
        for item in entry.node.list("`volumes_from`")? {
            let text = item.scalar("`volumes_from`")?;
            let foreign = text.starts_with("container:");
            if !foreign
                || self.ask(
                    &item.place,
                    Danger::HostPaths,
                    "`volumes_from` takes volumes of a container outside the stack",
                )
            {
                kept.push(Json::String(escape(&text)));
            }
        }
        service.config.insert("volumes_from".into(), Json::Array(kept));
        Ok(())
    }

    /// `secrets` and `configs` of a service become read-only mounts, which both generations of compose can do.
    pub(super) fn file_references(&mut self, service: &mut Service, entry: &Entry) -> Result<()> {
        let is_secret = entry.key == "secrets";
        for item in entry.node.list(&format!("`{}`", entry.key))? {
            let (name, target) = match item.text() {
                Some(name) => (name.to_owned(), None),
                None => {
                    let source = item
                        .get("source")
                        .ok_or_else(|| item.place.invalid("the reference has no `source`"))?;
                    let target =
                        item.get("target").map(|target| target.node.scalar("`target`")).transpose()?;
                    (source.node.scalar("`source`")?, target)
                }
            };
            let files = if is_secret { &self.stack.secrets } else { &self.stack.configs };
            let Some(source) = files.get(&name).cloned() else {
                return Err(item.place.invalid(format!(
                    "`{}` is not declared under `{}`",
                    printable(&name),
                    entry.key
                )));
            };
            let folder = if is_secret { "/run/secrets/" } else { "/" };
            let target = match target {
                Some(target) if target.starts_with('/') => target,
                Some(target) => format!("{folder}{target}"),
                None => format!("{folder}{name}"),
            };
            service.mounts.push(Mount { source, target, read_only: true, rest: Map::new() });
        }
        Ok(())
    }

    /// The top-level `secrets` and `configs`: files of the bundle.
    pub(super) fn declare_files(&mut self, entry: &Entry) -> Result<()> {
        for declared in entry.node.map(&format!("`{}`", entry.key))? {
            let Some(file) = declared.node.get("file") else {
                if !declared.node.is_null() {
                    self.refuse(
                        &declared.place,
                        format!(
                            "`{}` is no file of the bundle; only `file:` is supported",
                            printable(&declared.key)
                        ),
                    );
                }
                continue;
            };
            let path = file.node.scalar("`file`")?;
            let base = crate::file::folder_of(&file.place.file).to_owned();
            let source = match self.bundle.index.locate(&base, &path) {
                Located::Inside { path, .. } => Some(Source::Bundle { path, missing: false }),
                Located::Missing { path: inside } => return Err(self.left_behind(&file.node, &path, &inside)),
                Located::Outside => self.outside(&file.node.place, &path),
            };
            let Some(source) = source else { continue };
            let files =
                if entry.key == "secrets" { &mut self.stack.secrets } else { &mut self.stack.configs };
            files.insert(declared.key.clone(), source);
        }
        Ok(())
    }
}

/// An absolute path without `.`, `..` and doubled slashes, as the engine would read it.
fn normal(path: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    for piece in path.split('/') {
        match piece {
            "" | "." => {}
            ".." => {
                out.pop();
            }
            piece => out.push(piece),
        }
    }
    format!("/{}", out.join("/"))
}
