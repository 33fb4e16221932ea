//! One table from what compose says to our errors.

use sandboxer_core::{Error, ErrorKind};
use sandboxer_remote::Output;

use crate::site::Site;

/// Words of either generation of compose and of the engine, in the order in which they are looked for.
const TABLE: &[(&[&str], ErrorKind, &str, &str)] = &[
    (
        &["no space left on device", "disk quota exceeded"],
        ErrorKind::NoSpace,
        "the host has no disk space left for the stack",
        "free some with `docker system prune`, or choose another host",
    ),
    (
        &["non-overlapping IPv4 address pool", "all predefined address pools"],
        ErrorKind::NoSpace,
        "the engine has no addresses left for another network",
        "remove networks, or give the engine more `default-address-pools`",
    ),
    (
        &["failed to build", "failed to solve", "returned a non-zero code", "Build failed"],
        ErrorKind::BuildFailed,
        "an image of the stack could not be built",
        "builds have no network unless the profile says `dangerously_allow: [open_network]`",
    ),
    (
        &[
            "pull access denied",
            "manifest unknown",
            "manifest for",
            "repository does not exist",
            "No such image",
            "not found: manifest",
            "/v2/",
            "name unknown",
            "failed to resolve reference",
        ],
        ErrorKind::ImageNotFound,
        "an image of the stack is neither on the host nor to be had",
        "check the name, or load the image on the host with `docker load`",
    ),
    (
        &[
            "Cannot connect to the Docker daemon",
            "Couldn't connect to Docker daemon",
            "Error while fetching server API version",
            "connection refused",
        ],
        ErrorKind::Unreachable,
        "the docker engine stopped answering",
        "start it again; nothing is lost by trying again",
    ),
];

/// Why a compose command failed, with its last words.
pub(super) fn of(site: &Site, tag: &str, output: &Output) -> Error {
    let words = output.last_words();
    let all =
        format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.outcome.timed_out {
        return Error::new(
            ErrorKind::Timeout,
            format!("starting {tag} on {} took too long", site.remote.name()),
        )
        .with_source(std::io::Error::other(words));
    }
    for (signs, kind, message, hint) in TABLE {
        if signs.iter().any(|sign| all.contains(sign)) {
            return Error::new(*kind, format!("{message} ({})", site.remote.name()))
                .with_hint(*hint)
                .with_source(std::io::Error::other(words));
        }
    }
    Error::new(
        ErrorKind::BackendFailed,
        format!("compose could not start the stack on {}", site.remote.name()),
    )
    .with_source(std::io::Error::other(words))
}
