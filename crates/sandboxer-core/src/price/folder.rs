//! What one folder says: the files by extension, and what keeps its word from being known.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::card::PriceCard;
use super::{PriceFile, decode, whose};
use crate::error::{Error, ErrorKind, Result};

#[derive(Clone, Debug, Default)]
pub(super) struct Folder {
    slots: BTreeMap<String, Slot>,
    /// Of files that do not even tell whose price they are. Each might be anybody's.
    nameless: Vec<Error>,
}

/// The files of one folder for one extension.
#[derive(Clone, Debug, Default)]
struct Slot {
    files: Vec<PriceFile>,
    priced: OnceLock<Priced>,
}

/// What one folder says about one extension.
#[derive(Clone, Debug, Default)]
pub(super) struct Priced {
    /// By date, the oldest first.
    pub(super) cards: Vec<PriceCard>,
    /// With any of these none of the cards may be used: the broken file might be the newest of them.
    pub(super) errors: Vec<Error>,
}

impl Folder {
    pub(super) fn of(files: Vec<PriceFile>) -> Self {
        let mut folder = Self::default();
        for file in files {
            match whose::extension_of(&file) {
                Ok(extension) => folder.slots.entry(extension).or_default().files.push(file),
                Err(error) => folder.nameless.push(error),
            }
        }
        folder
    }

    /// Nothing where it has no file for the extension.
    pub(super) fn priced(&self, extension: &str) -> Option<&Priced> {
        self.slots.get(extension).map(|slot| slot.priced(extension))
    }

    /// Why nobody can tell what it says about an extension that it does not name.
    pub(super) fn doubt(&self) -> Option<&Error> {
        self.nameless.first()
    }

    pub(super) fn extensions(&self) -> impl Iterator<Item = &str> {
        self.slots.keys().map(String::as_str)
    }

    /// Every file that cannot be used, and why.
    pub(super) fn problems(&self) -> impl Iterator<Item = Error> {
        let named =
            self.slots.iter().flat_map(|(extension, slot)| slot.priced(extension).errors.iter().cloned());
        self.nameless.iter().map(with_effect).chain(named)
    }
}

/// The harm is larger than the file: it is said with it.
fn with_effect(error: &Error) -> Error {
    let message = format!(
        "{}; whose price it is cannot be told, so no metered extension has a price",
        error.chain().join(": ")
    );
    let mut out = Error::new(error.kind(), message);
    for (key, value) in error.context() {
        out = out.with_context(key, value.as_str());
    }
    out.with_hint(error.hint().unwrap_or("mend it, or move it out of the folder"))
}

impl Slot {
    fn priced(&self, extension: &str) -> &Priced {
        self.priced.get_or_init(|| {
            let mut priced = Priced::default();
            for file in &self.files {
                if let Err(error) = priced.add(extension, file) {
                    priced.errors.push(error);
                }
            }
            priced
        })
    }
}

impl Priced {
    fn add(&mut self, extension: &str, file: &PriceFile) -> Result<()> {
        let card = decode::file(file)?;
        let refuse = |why: String| {
            Error::new(ErrorKind::InvalidInput, format!("{}: {why}", file.name))
                .with_context("file", file.name.as_ref())
        };
        if card.extension != extension {
            return Err(refuse("`extension` must stand once, on a line of its own".into()));
        }
        if let Some(twin) = self.cards.iter().find(|other| other.as_of == card.as_of) {
            let why = format!("{extension} has a price as of {} already, in {}", card.as_of, twin.file);
            return Err(refuse(why).with_hint("keep one of them, or give the newer one its own `as_of`"));
        }
        let place = self.cards.partition_point(|other| other.as_of < card.as_of);
        self.cards.insert(place, card);
        Ok(())
    }
}
