//! Builds: from folders of the bundle, without network unless the profile opens it.

use sandboxer_core::Result;
use sandboxer_core::profile::Danger;
use sandboxer_core::suggest::printable;
use serde_json::{Map, Value as Json};

use super::{Build, Judge, env, unknown};
use crate::bundle::Located;
use crate::file::node::{Entry, Node, Value, escape};

const KEYS: [&str; 12] = [
    "context",
    "dockerfile",
    "args",
    "target",
    "network",
    "labels",
    "cache_from",
    "shm_size",
    "extra_hosts",
    "tags",
    "no_cache",
    "pull",
];

impl Judge<'_> {
    pub(super) fn build(&mut self, entry: &Entry) -> Result<Build> {
        let mut config = Map::new();
        let mut context = (".".to_owned(), entry.node.clone());
        let mut dockerfile = None;
        if let Value::Map(entries) = &entry.node.value {
            for key in entries {
                match key.key.as_str() {
                    "context" => context = (key.node.scalar("`context`")?, key.node.clone()),
                    "dockerfile" => dockerfile = Some((key.node.scalar("`dockerfile`")?, key.node.clone())),
                    _ => self.build_key(&mut config, key)?,
                }
            }
        } else {
            context = (entry.node.scalar("`build`")?, entry.node.clone());
        }
        let folder = self.build_context(&context.0, &context.1)?;
        let (file, node) = dockerfile.unwrap_or_else(|| ("Dockerfile".to_owned(), context.1));
        match self.bundle.index.locate(&folder, &file) {
            Located::Inside { directory: false, .. } => {
                config.insert("dockerfile".into(), Json::String(escape(&file)));
            }
            Located::Outside => self
                .refuse(&node.place, format!("the Dockerfile `{}` is outside the bundle", printable(&file))),
            // What is wrong with the context has been said already.
            _ if !self.refused.is_empty() => {}
            _ => {
                return Err(node
                    .place
                    .invalid(format!("there is no Dockerfile `{}` in the bundle", printable(&file))));
            }
        }
        if !self.allowed.contains(&Danger::OpenNetwork) && !config.contains_key("network") {
            config.insert("network".into(), Json::String("none".into()));
        }
        Ok(Build { context: folder, config })
    }

    fn build_context(&mut self, path: &str, node: &Node) -> Result<String> {
        let shown = printable(path);
        if path.contains("://") || path.starts_with("git@") || path.starts_with("github.com/") {
            self.refuse(
                &node.place,
                format!("the build context `{shown}` would be fetched by the host; put it into the bundle"),
            );
            return Ok(String::new());
        }
        match self.bundle.index.locate(crate::file::folder_of(&node.place.file), path) {
            Located::Inside { path, directory: true } => Ok(path),
            Located::Outside => {
                self.refuse(&node.place, format!("the build context `{shown}` is outside the bundle"));
                Ok(String::new())
            }
            _ => Err(node.place.invalid(format!("the build context `{shown}` is no folder of the bundle"))),
        }
    }

    fn build_key(&mut self, config: &mut Map<String, Json>, key: &Entry) -> Result<()> {
        match key.key.as_str() {
            "args" => {
                let args = self.environment(&key.node)?;
                config.insert("args".into(), args);
            }
            "labels" => {
                let labels = self.labels(&key.node)?;
                config.insert("labels".into(), Json::Object(labels));
            }
            "target" | "shm_size" | "cache_from" => {
                config.insert(key.key.clone(), key.node.json());
            }
            "extra_hosts" => {
                env::pairs(&key.node, "`extra_hosts`")?;
                config.insert(key.key.clone(), key.node.json());
            }
            "network" => {
                let network = key.node.scalar("`network`")?;
                let fine = match network.as_str() {
                    "none" => true,
                    "host" => {
                        self.ask(&key.place, Danger::HostNamespaces, "the build uses the host's network")
                    }
                    _ => {
                        self.ask(&key.place, Danger::OpenNetwork, "the build uses a network that reaches out")
                    }
                };
                if fine {
                    config.insert("network".into(), key.node.json());
                }
            }
            "privileged" | "entitlements" => {
                if key.node.is_on() {
                    self.ask(&key.place, Danger::Privileged, "the build is privileged");
                }
            }
            "ssh" => self.refuse(&key.place, "the build asks for SSH keys of the host"),
            "secrets" => self.refuse(&key.place, "secrets of builds are not supported"),
            "additional_contexts" => self.refuse(&key.place, "additional build contexts are not supported"),
            "tags" => {
                self.note("tags of built images are left out: they would replace those of others on the host")
            }
            "no_cache" | "pull" | "platforms" | "cache_to" | "isolation" | "provenance" | "sbom"
            | "ulimits" => {}
            name if name.starts_with("x-") => {}
            _ => return Err(unknown(key, "a build", &KEYS)),
        }
        Ok(())
    }
}
