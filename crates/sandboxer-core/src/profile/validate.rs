//! The rules that a resolved profile keeps beyond its types. Lexical only: whether a path or a host exists is
//! for whoever provisions to find out.

mod content;
mod network;

use super::node::{Node, Path, refuse_source};
use super::parse::fault;
use super::reference::check_prefixed;
use super::schema::{Image, Placement, Profile, Resources, RouteSpec, Strategy, Ttl};
use crate::duration::Dur;
use crate::error::{Error, Result};
use crate::suggest::printable;

const MAX_TEXT: usize = 16 * 1024;
const MAX_LIST: usize = 256;
const MAX_NAME: usize = 128;

/// Refuses the first thing in `profile` that breaks a rule, with the place where it was written.
pub(super) fn check(profile: &Profile, root: &Node, source: &str) -> Result<()> {
    let rules = Rules { root, source };
    rules.general(profile)?;
    rules.ttl(&profile.ttl)?;
    rules.resources(&profile.resources)?;
    content::variables(&rules, &profile.variables)?;
    content::mounts(&rules, &profile.mounts)?;
    content::setup(&rules, &profile.setup)?;
    network::secrets(&rules, profile)?;
    network::egress(&rules, profile)?;
    rules.route(profile.extension.as_deref(), &profile.route)?;
    rules.placement(&profile.placement)?;
    rules.options(profile)?;
    rules.names(profile)
}

struct Rules<'a> {
    root: &'a Node,
    source: &'a str,
}

impl Rules<'_> {
    /// An error at the value of `path`.
    fn refuse(&self, path: &Path, why: impl std::fmt::Display) -> Error {
        fault(self.root, self.source, path, format!("`{path}`: {why}"))
    }

    /// An error at the key of `path`.
    fn refuse_key(&self, path: &Path, why: impl std::fmt::Display) -> Error {
        let message = format!("`{path}`: {why}");
        match self.root.place_of_key(path) {
            Some(place) => place.refuse(message),
            None => refuse_source(self.source, message),
        }
    }

    fn bounded_list(&self, path: &Path, length: usize) -> Result<()> {
        if length > MAX_LIST {
            return Err(self.refuse(path, format!("more than {MAX_LIST} entries")));
        }
        Ok(())
    }

    /// A short printable word: the name of a host, a region, a tag.
    fn name(&self, path: &Path, name: &str) -> Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
            return Err(self
                .refuse(path, format!("`{}` is not a name", printable(name)))
                .with_hint(format!("letters, digits, `.`, `_` and `-`, at most {MAX_NAME}")));
        }
        Ok(())
    }

    /// Text for people or programs that no NUL or terminal escape may hide in.
    fn line(&self, path: &Path, text: &str, what: &str) -> Result<()> {
        if text.trim().is_empty() {
            return Err(self.refuse(path, format!("{what} is empty")));
        }
        if text.len() > MAX_TEXT || text.chars().any(char::is_control) {
            return Err(self.refuse(path, format!("{what} is too long or has control characters")));
        }
        Ok(())
    }

    fn general(&self, profile: &Profile) -> Result<()> {
        if let Some(text) = &profile.description
            && (text.len() > MAX_TEXT || text.contains('\0'))
        {
            return Err(self.refuse(&Path::of(&["description"]), "it is too long or contains NUL"));
        }
        if let Some(id) = &profile.extension {
            self.extension_id(&Path::of(&["extension"]), id)?;
        }
        if let Image::Oci(text) | Image::RootfsTar(text) = &profile.image {
            let path = Path::of(&["image"]);
            self.line(&path, text, "the image")?;
            if text.contains(char::is_whitespace) {
                return Err(self.refuse(&path, format!("`{}` contains a space", printable(text))).with_hint(
                    "an image is `host`, an OCI reference or the path of a root file system tar",
                ));
            }
        }
        Ok(())
    }

    fn extension_id(&self, path: &Path, id: &str) -> Result<()> {
        check_prefixed(id, "ext.").map_err(|why| {
            self.refuse(path, format!("`{}` is not the id of an extension: {why}", printable(id)))
                .with_hint("extensions are named like `ext.native` or `ext.docker`")
        })
    }

    fn ttl(&self, ttl: &Ttl) -> Result<()> {
        let path = |key| Path::of(&["ttl", key]);
        for (key, value) in
            [("default", Some(ttl.default)), ("max", Some(ttl.max)), ("idle_reap", ttl.idle_reap)]
        {
            if value == Some(Dur::ZERO) {
                return Err(self.refuse(&path(key), "it must be longer than zero"));
            }
        }
        if ttl.default > ttl.max {
            return Err(self
                .refuse(&path("default"), format!("{} is above `ttl.max`, {}", ttl.default, ttl.max))
                .with_hint("lower `ttl.default` or raise `ttl.max`"));
        }
        Ok(())
    }

    fn resources(&self, resources: &Resources) -> Result<()> {
        let path = |key| Path::of(&["resources", key]);
        if let Some(cpu) = resources.cpu
            && !(0.01..=1024.0).contains(&cpu)
        {
            return Err(self.refuse(&path("cpu"), format!("{cpu} is not between 0.01 and 1024")));
        }
        let bounds = [
            ("memory_mb", resources.memory_mb, 16, 16 * 1024 * 1024),
            ("disk_mb", resources.disk_mb, 1, 1024 * 1024 * 1024),
            ("pids", resources.pids, 8, 4_194_304),
            ("gpu", resources.gpu.map(u64::from), 0, 64),
        ];
        for (key, value, least, most) in bounds {
            if let Some(value) = value
                && !(least..=most).contains(&value)
            {
                return Err(self.refuse(&path(key), format!("{value} is not between {least} and {most}")));
            }
        }
        Ok(())
    }

    fn route(&self, extension: Option<&str>, route: &RouteSpec) -> Result<()> {
        route.check().map_err(|wrong| {
            let error = self.refuse(&wrong.path, wrong.why);
            match wrong.hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        })?;
        if let Some(index) = route.fallback.iter().position(|id| extension == Some(id.as_str())) {
            let path = Path::of(&["route", "fallback"]).item(index);
            return Err(self.refuse(&path, format!("`{}` is already in the route", route.fallback[index])));
        }
        let is_named = extension.is_some() || !route.fallback.is_empty() || !route.order.is_empty();
        if route.strategy == Some(Strategy::Explicit) && !is_named {
            return Err(self
                .refuse(&Path::of(&["route", "strategy"]), "`explicit` needs an extension to use")
                .with_hint("name one in `extension`, `route.order` or `route.fallback`"));
        }
        Ok(())
    }

    fn placement(&self, placement: &Placement) -> Result<()> {
        for (key, hosts) in [("prefer", &placement.prefer), ("fallback", &placement.fallback)] {
            let path = Path::of(&["placement", key]);
            self.bounded_list(&path, hosts.len())?;
            for (index, host) in hosts.iter().enumerate() {
                // A host by its name, or every host with a label.
                for word in host.splitn(2, '=') {
                    self.name(&path.item(index), word)?;
                }
            }
        }
        Ok(())
    }

    /// What single extensions read.
    fn options(&self, profile: &Profile) -> Result<()> {
        let names: [(&[&str], &Option<String>); 3] = [
            (&["docker", "runtime"], &profile.docker.runtime),
            (&["compose", "service"], &profile.compose.service),
            (&["packer", "ssh_user"], &profile.packer.ssh_user),
        ];
        for (keys, name) in names {
            if let Some(name) = name {
                self.name(&Path::of(keys), name)?;
            }
        }
        if let Some(file) = &profile.compose.file {
            let path = Path::of(&["compose", "file"]);
            self.line(&path, file, "the file")?;
            if file.starts_with('/') || file.split('/').any(|part| part == "..") {
                return Err(self.refuse(&path, format!("`{}` leaves the bundle", printable(file))));
            }
        }
        if let Some(template) = &profile.packer.template {
            self.line(&Path::of(&["packer", "template"]), template, "the template")?;
        }
        let path = Path::of(&["packer", "files"]);
        self.bounded_list(&path, profile.packer.files.len())?;
        for (index, file) in profile.packer.files.iter().enumerate() {
            self.line(&path.item(index), file, "the file")?;
        }
        for (name, value) in &profile.packer.variables {
            let path = Path::of(&["packer", "variables", name]);
            if !crate::exec::is_env_name(name) || value.len() > MAX_TEXT || value.contains('\0') {
                return Err(self.refuse(&path, "it is not a variable that a build can take"));
            }
        }
        Ok(())
    }

    /// The remaining free words.
    fn names(&self, profile: &Profile) -> Result<()> {
        let words: [(&[&str], &Option<String>); 4] = [
            (&["requires", "region"], &profile.requires.region),
            (&["reachability", "tunnel"], &profile.reachability.tunnel),
            (&["reachability", "identity"], &profile.reachability.identity),
            (&["metadata", "latency_class"], &profile.metadata.latency_class),
        ];
        for (keys, word) in words {
            if let Some(word) = word {
                self.name(&Path::of(keys), word)?;
            }
        }
        let path = Path::of(&["metadata", "tags"]);
        self.bounded_list(&path, profile.metadata.tags.len())?;
        for (index, tag) in profile.metadata.tags.iter().enumerate() {
            self.name(&path.item(index), tag)?;
        }
        Ok(())
    }
}
