//! `config.toml`: what flags and variables do not say. Every key is known, or it is an error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sandboxer_core::profile::RouteSpec;
use sandboxer_core::route::ExtensionLimits;
use sandboxer_core::suggest::did_you_mean;
use sandboxer_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::status::io_error;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) server: Option<String>,
    pub(crate) api_key_file: Option<PathBuf>,
    pub(crate) home: Option<PathBuf>,
    pub(crate) host: Option<String>,
    pub(crate) state_hub_url: Option<String>,
    pub(crate) fin_hub_url: Option<String>,
    pub(crate) webhook_allow_private: Option<String>,
    #[serde(default)]
    pub(crate) profiles: Vec<PathBuf>,
    /// Folders of price files, after the one in the configuration folder.
    #[serde(default)]
    pub(crate) prices: Vec<PathBuf>,
    /// What applies where neither the profile nor the request says anything; its constraints always do.
    #[serde(default)]
    pub(crate) route: RouteSpec,
    /// Our own limits for each extension.
    #[serde(default)]
    pub(crate) extensions: BTreeMap<String, ExtensionLimits>,
    pub(crate) log: Option<String>,
    pub(crate) log_format: Option<String>,
}

#[cfg(test)]
const KEYS: [&str; 13] = [
    "server",
    "api_key_file",
    "home",
    "host",
    "state_hub_url",
    "fin_hub_url",
    "webhook_allow_private",
    "profiles",
    "prices",
    "route",
    "extensions",
    "log",
    "log_format",
];

impl Config {
    /// The file, or nothing where there is none.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(Self::default())
            }
            Err(error) => Err(io_error(format!("{} cannot be read", path.display()), error)),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let mut config: Self = toml::from_str(text).map_err(|error| refuse(text, path, &error))?;
        // Paths in a file are meant from where the file lies.
        let folder = path.parent().unwrap_or(Path::new("."));
        let lists = config.profiles.iter_mut().chain(&mut config.prices);
        for path in lists.chain(&mut config.api_key_file).chain(&mut config.home) {
            *path = folder.join(&*path);
        }
        config.route.validate().map_err(|error| in_file(path, &error))?;
        for (extension, limits) in &config.extensions {
            limits.validate(extension).map_err(|error| in_file(path, &error))?;
        }
        Ok(config)
    }
}

/// A value that can be read and cannot be meant; the error names its key.
fn in_file(path: &Path, error: &Error) -> Error {
    let refused = Error::new(ErrorKind::InvalidInput, format!("{}: {error}", path.display()));
    match error.hint() {
        Some(hint) => refused.with_hint(hint),
        None => refused,
    }
}

/// The words between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The mistake with its line and column, and the key that was probably meant.
fn refuse(text: &str, path: &Path, error: &toml::de::Error) -> Error {
    let place = error.span().map_or_else(String::new, |span| {
        let before = text.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!(":{line}:{column}")
    });
    let message = error.message().lines().next().unwrap_or_default();
    let refused = Error::new(ErrorKind::InvalidInput, format!("{}{place}: {message}", path.display()));
    let what = match () {
        () if message.starts_with("unknown field `") => "keys",
        () if message.starts_with("unknown variant `") => "values",
        () => return refused,
    };
    // The message itself lists what is known there, also inside of a table.
    match quoted(message).split_first() {
        Some((word, known)) if !known.is_empty() => refused.with_hint(
            did_you_mean(word, known.iter().copied())
                .unwrap_or_else(|| format!("the {what} are {}", known.join(", "))),
        ),
        _ => refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandboxer_core::profile::Strategy;

    fn parse(text: &str) -> Result<Config> {
        Config::parse(text, Path::new("/etc/x/config.toml"))
    }

    #[test]
    fn every_key_is_accepted() {
        let text = "server = 'a'\napi_key_file = 'key'\nhome = '/h'\nhost = 'local'\nstate_hub_url = 'b'\n\
                    fin_hub_url = 'c'\nwebhook_allow_private = '127.0.0.1'\nprofiles = ['p', '/q']\nprices = ['r']\nlog = 'debug'\nlog_format = 'json'\n\
                    route = { strategy = 'lowest-cost', ignore = ['ext.ssh'] }\n\
                    extensions = { 'ext.x' = { max_sandboxes = 3 } }\n";
        let config = parse(text).unwrap();
        assert_eq!(config.profiles, [Path::new("/etc/x/p"), Path::new("/q")]);
        assert_eq!(config.prices, [Path::new("/etc/x/r")]);
        assert_eq!(config.api_key_file.as_deref(), Some(Path::new("/etc/x/key")));
        assert_eq!(config.fin_hub_url.as_deref(), Some("c"));
        let known: std::collections::BTreeSet<&str> =
            text.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(known, KEYS.into_iter().collect());
    }

    #[test]
    fn routes_and_limits_are_tables() {
        let text = "[route]\nstrategy = 'lowest-latency'\norder = ['ext.native']\n\
                    [route.constraints]\nmax_cost_per_hour = '0.50'\n\
                    [extensions.\"ext.e2b\"]\nmax_sandboxes = 20\nmax_concurrent_creates = 4\ncreates_per_second = 0.5\n\
                    regions = ['eu']\n";
        let config = parse(text).unwrap();
        assert_eq!(config.route.strategy, Some(Strategy::LowestLatency));
        assert_eq!(config.route.order, ["ext.native"]);
        assert_eq!(config.route.constraints.max_cost_per_hour, Some("0.50".parse().unwrap()));
        let limits = &config.extensions["ext.e2b"];
        assert_eq!((limits.max_sandboxes, limits.max_concurrent_creates), (Some(20), Some(4)));
        assert_eq!(limits.creates_per_second, Some(0.5));
        for wrong in [
            "[route]\nstrategy = 'cheapest'\n",
            "[route]\nmax_cost = '1'\n",
            "[route.constraints]\nmax_cost_per_hour = '1 EUR'\n",
            "[extensions.\"ext.e2b\"]\nmax_sandboxes = -1\n",
            "[extensions.\"ext.e2b\"]\ncreates_per_second = nan\n",
            "[extensions.\"ext.e2b\"]\nsandboxes = 1\n",
        ] {
            assert_eq!(parse(wrong).unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong}");
        }
    }

    #[test]
    fn routes_and_limits_must_be_possible() {
        for (text, told, hint) in [
            ("[route]\nonly = ['native']\n", "route.only[0]", "ext.native"),
            ("[route]\nonly = []\n", "`only` is an empty list", ""),
            ("[route]\nonly = ['ext.a']\nignore = ['ext.a']\n", "route.ignore", ""),
            ("[route.constraints]\ncapabilities = ['snapshto']\n", "snapshto", "did you mean `snapshot`?"),
            ("[route.constraints]\nmax_cost_total = 0.1\n", "write \"0.1\"", ""),
            ("[route]\nhedge = 'soon'\n", "`{ after: 2s }`", ""),
            ("[route]\nstrategy = 'lowest-costs'\n", "config.toml:2:", "did you mean `lowest-cost`?"),
            ("[route]\nstratgy = 'explicit'\n", "config.toml:2:1", "did you mean `strategy`?"),
            ("[extensions.native]\nmax_sandboxes = 1\n", "`native` is not the id", "ext.native"),
            ("[extensions.\"ext.a\"]\nregions = ['e u']\n", "`regions` of `ext.a`", "letters"),
            ("[extensions.\"ext.a\"]\nmax_sandbox = 1\n", "unknown field", "did you mean `max_sandboxes`?"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind().exit_code(), 2, "{error:?}");
            assert!(error.to_string().starts_with("/etc/x/config.toml"), "{error}");
            assert!(error.to_string().contains(told), "{error}");
            assert!(error.hint().unwrap_or_default().contains(hint), "{:?}", error.hint());
        }
    }

    #[test]
    fn a_misspelled_key_is_found_with_its_place() {
        let error = parse("server = 'a'\nsevrer = 'b'\n").unwrap_err();
        assert_eq!(error.hint(), Some("did you mean `server`?"));
        assert!(error.to_string().starts_with("/etc/x/config.toml:2:1: "), "{error}");
    }
}
