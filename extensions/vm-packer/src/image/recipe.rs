//! What an image is made from, read once: its hash is the image's name, and a build gets exactly what was hashed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use sandboxer_core::profile::PackerOptions;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use sha2::{Digest as _, Sha256};

use crate::files::{failed, private_file};

/// A template is text that somebody wrote.
const MAX_TEMPLATE: u64 = 4 << 20;
/// Files of one recipe.
const MAX_FILES: usize = 50_000;
const MAX_DEPTH: usize = 64;
/// How much of the hash names an image: enough that nobody finds two, short enough for paths of sockets.
const NAME_CHARS: usize = 40;

/// The templates that come with the extension, by name: each file with its content.
const BUILTIN: &[(&str, &[(&str, &str)])] = &[(
    "small",
    &[
        ("template.json", include_str!("../../templates/small/template.json")),
        ("build.sh", include_str!("../../templates/small/build.sh")),
        ("init", include_str!("../../templates/small/init")),
        ("rc", include_str!("../../templates/small/rc")),
    ],
)];

/// `builtin:NAME` instead of a path.
const BUILTIN_PREFIX: &str = "builtin:";

#[derive(Debug)]
pub(crate) struct Recipe {
    /// The file name of the template, whose ending tells Packer its language.
    pub(crate) template: String,
    pub(crate) variables: BTreeMap<String, String>,
    parts: BTreeMap<PathBuf, Part>,
    pub(crate) hash: String,
}

#[derive(Debug)]
enum Part {
    Text(Vec<u8>),
    File { from: PathBuf, executable: bool, digest: String },
    Folder,
    Link(PathBuf),
}

impl Recipe {
    /// Reads and hashes everything.
    pub(crate) fn read(options: &PackerOptions) -> Result<Self> {
        let given = options.template.as_deref().unwrap_or_default();
        let mut parts = BTreeMap::new();
        let mut foreign = BTreeMap::new();
        let template = match given.strip_prefix(BUILTIN_PREFIX) {
            Some(name) => builtin(name, &mut parts)?,
            None => from_disk(Path::new(given), &options.files, &mut parts, &mut foreign)?,
        };
        let variables = options.variables.clone();
        let hash = hash(&template, &variables, &parts, &foreign);
        Ok(Self { template, variables, parts, hash })
    }

    /// Writes the template and its files into a folder of a build. What changed since it was hashed is an error.
    pub(crate) fn stage(&self, folder: &Path) -> Result<()> {
        for (path, part) in &self.parts {
            let target = folder.join(path);
            let made = match part {
                Part::Text(text) => return_to(private_file(&target, text))?,
                Part::Folder => std::fs::create_dir(&target),
                Part::Link(to) => std::os::unix::fs::symlink(to, &target),
                Part::File { from, executable, digest } => {
                    let mode = if *executable { 0o700 } else { 0o600 };
                    let mut out = std::fs::OpenOptions::new();
                    let out = out.write(true).create_new(true).mode(mode).open(&target);
                    let copied = out.and_then(|mut out| digest_of(from, Some(&mut out)));
                    match copied {
                        Ok(now) if now == *digest => Ok(()),
                        Ok(_) => return Err(changed(from)),
                        Err(source) => Err(source),
                    }
                }
            };
            made.map_err(|source| failed("written", &target, source))?;
        }
        Ok(())
    }
}

fn return_to(result: Result<()>) -> Result<io::Result<()>> {
    result.map(Ok)
}

fn changed(path: &Path) -> Error {
    Error::new(ErrorKind::Conflict, format!("{} changed while it was being read", path.display()))
        .with_hint("try again when nobody writes to it")
}

fn builtin(name: &str, parts: &mut BTreeMap<PathBuf, Part>) -> Result<String> {
    let Some((_, files)) = BUILTIN.iter().find(|(known, _)| *known == name) else {
        let known: Vec<String> =
            BUILTIN.iter().map(|(known, _)| format!("{BUILTIN_PREFIX}{known}")).collect();
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("there is no built-in template `{}`", printable(name)),
        )
        .with_hint(format!("there is: {}", known.join(", "))));
    };
    for (path, text) in *files {
        parts.insert(PathBuf::from(path), Part::Text(text.as_bytes().to_vec()));
    }
    Ok(files[0].0.to_owned())
}

/// The template, and what it declares: paths relative to its folder are staged beside it, absolute ones only hashed.
fn from_disk(
    path: &Path,
    files: &[String],
    parts: &mut BTreeMap<PathBuf, Part>,
    foreign: &mut BTreeMap<PathBuf, Part>,
) -> Result<String> {
    let missing = |source| {
        Error::new(ErrorKind::InvalidInput, format!("the template {} cannot be read", path.display()))
            .with_source(source)
            .with_hint(
                "packer.template is a file, absolute or relative to the working directory, or builtin:small",
            )
    };
    let path = path.canonicalize().map_err(missing)?;
    let mut text = Vec::new();
    File::open(&path).and_then(|file| file.take(MAX_TEMPLATE + 1).read_to_end(&mut text)).map_err(missing)?;
    if text.len() as u64 > MAX_TEMPLATE {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("the template is larger than {MAX_TEMPLATE} bytes"),
        ));
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("template.json").to_owned();
    let folder = path.parent().unwrap_or(Path::new("/"));
    for file in files {
        let file = Path::new(file);
        let into = if file.is_absolute() { &mut *foreign } else { &mut *parts };
        if !file.is_absolute() {
            add_parents(file, into)?;
        }
        add(&folder.join(file), file, into, 0)?;
    }
    parts.insert(PathBuf::from(&name), Part::Text(text));
    Ok(name)
}

/// The folders on the way to a relative path, which must not lead upwards.
fn add_parents(path: &Path, parts: &mut BTreeMap<PathBuf, Part>) -> Result<()> {
    if path.components().any(|part| !matches!(part, Component::Normal(_))) || path.as_os_str().is_empty() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "packer.files: `{}` leads out of the template's folder",
                printable(&path.to_string_lossy())
            ),
        )
        .with_hint("name files below the template's folder, or by their absolute path"));
    }
    for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
        parts.insert(parent.to_owned(), Part::Folder);
    }
    Ok(())
}

/// One file or folder under the name that it has for the template.
fn add(from: &Path, name: &Path, parts: &mut BTreeMap<PathBuf, Part>, depth: usize) -> Result<()> {
    if parts.len() >= MAX_FILES || depth > MAX_DEPTH {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("packer.files: more than {MAX_FILES} files or {MAX_DEPTH} levels"),
        ));
    }
    let unreadable = |source| {
        Error::new(ErrorKind::InvalidInput, format!("packer.files: {} cannot be read", from.display()))
            .with_source(source)
    };
    let data = from.symlink_metadata().map_err(unreadable)?;
    let part = if data.is_symlink() {
        let to = std::fs::read_link(from).map_err(unreadable)?;
        if !stays_inside(name, &to) {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("packer.files: the link {} leads to something that was not declared", from.display()),
            )
            .with_hint(
                "the image's name is the hash of its files, so name the file that it leads to instead",
            ));
        }
        Part::Link(to)
    } else if data.is_dir() {
        let mut names: Vec<_> = std::fs::read_dir(from)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>())
            .map_err(unreadable)?;
        names.sort();
        for entry in names {
            add(&from.join(&entry), &name.join(&entry), parts, depth + 1)?;
        }
        Part::Folder
    } else if data.is_file() {
        let digest = digest_of(from, None::<&mut File>).map_err(unreadable)?;
        Part::File { from: from.to_owned(), executable: data.permissions().mode() & 0o111 != 0, digest }
    } else {
        return Err(Error::new(
            ErrorKind::Refused,
            format!("packer.files: {} is neither a file nor a folder", from.display()),
        ));
    };
    parts.insert(name.to_owned(), part);
    Ok(())
}

/// Whether a link under this name, followed inside the staged folder, stays there.
fn stays_inside(name: &Path, to: &Path) -> bool {
    let mut depth = name.components().count().saturating_sub(1);
    for part in to.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    true
}

/// The hash of a file's content, which is copied on the way if there is somewhere to copy it to.
fn digest_of(path: &Path, mut copy: Option<&mut File>) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..count]);
        if let Some(copy) = copy.as_mut() {
            copy.write_all(&buffer[..count])?;
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every piece with its length before it, so that no two recipes run together to the same bytes.
fn hash(
    template: &str,
    variables: &BTreeMap<String, String>,
    parts: &BTreeMap<PathBuf, Part>,
    foreign: &BTreeMap<PathBuf, Part>,
) -> String {
    let mut hasher = Sha256::new();
    let mut put = |piece: &[u8]| {
        hasher.update((piece.len() as u64).to_le_bytes());
        hasher.update(piece);
    };
    put(b"sandboxer image 1");
    put(template.as_bytes());
    for (name, value) in variables {
        put(b"variable");
        put(name.as_bytes());
        put(value.as_bytes());
    }
    for (path, part) in parts.iter().chain(foreign) {
        put(path.as_os_str().as_encoded_bytes());
        match part {
            Part::Text(text) => {
                put(b"text");
                put(text);
            }
            Part::File { executable, digest, .. } => {
                put(if *executable { b"program" } else { b"file" });
                put(digest.as_bytes());
            }
            Part::Folder => put(b"folder"),
            Part::Link(to) => {
                put(b"link");
                put(to.as_os_str().as_encoded_bytes());
            }
        }
    }
    hex(&hasher.finalize())[..NAME_CHARS].to_owned()
}

#[cfg(test)]
#[path = "recipe_tests.rs"]
mod tests;
