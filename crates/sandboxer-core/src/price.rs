//! The price book: what each extension asks, as data that anybody can read and replace.
//!
//! Files come in as text with their names, folder by folder. A broken file is reported for itself and takes the price
//! of its extension with it: nothing is ever free because a file could not be read. [`PriceBook::tariff`] applies a
//! price to the resources of one sandbox; what comes out is frozen with the sandbox.

mod apply;
mod card;
mod decode;
mod rate;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::error::{Error, ErrorKind, Result, Retry};
use crate::profile::Resources;
use crate::suggest::printable;
use crate::tariff::Tariff;

pub use card::{Basis, HostPrice, MeterName, PriceCard, PriceDefaults, PricePeriod, PriceRate, PriceUnit};

/// Every price that is known, each read when somebody asks for it: most processes need one or two.
#[derive(Clone, Debug, Default)]
pub struct PriceBook {
    /// By extension; later ones win.
    folders: Vec<BTreeMap<String, Slot>>,
    /// Of files that do not even tell whose price they are.
    nameless: Vec<Error>,
}

/// One file, or why it could not be read: its extension has no price then.
#[derive(Clone, Debug)]
pub struct PriceFile {
    pub name: Cow<'static, str>,
    pub text: Result<Cow<'static, str>>,
}

impl PriceFile {
    pub fn new(name: impl Into<Cow<'static, str>>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), text: Ok(text.into()) }
    }
}

/// The files of one folder for one extension.
#[derive(Clone, Debug, Default)]
struct Slot {
    files: Vec<PriceFile>,
    priced: OnceLock<Priced>,
}

/// What one folder says about one extension.
#[derive(Clone, Debug, Default)]
struct Priced {
    /// By date, the oldest first.
    cards: Vec<PriceCard>,
    /// With any of these none of the cards may be used: the broken file might be the newest of them.
    errors: Vec<Error>,
}

impl PriceBook {
    /// The book of one folder: the name and the text of each file. The errors name the files that cannot be used.
    pub fn parse<S: AsRef<str>>(files: &[(S, S)]) -> (Self, Vec<Error>) {
        let file = |(name, text): &(S, S)| PriceFile::new(name.as_ref().to_owned(), text.as_ref().to_owned());
        let book = Self::of_folders(vec![files.iter().map(file).collect()]);
        let problems = book.problems();
        (book, problems)
    }

    /// The book of several folders. Whatever a later one says about an extension replaces what earlier ones say.
    pub fn of_folders(folders: Vec<Vec<PriceFile>>) -> Self {
        let mut book = Self::default();
        for files in folders {
            let mut folder: BTreeMap<String, Slot> = BTreeMap::new();
            for file in files {
                match decode::extension_of(&file) {
                    Ok(extension) => folder.entry(extension).or_default().files.push(file),
                    Err(error) => book.nameless.push(error),
                }
            }
            book.folders.push(folder);
        }
        book
    }

    /// Every file that cannot be used, and why. What it would have priced has no price.
    pub fn problems(&self) -> Vec<Error> {
        let slots = self.folders.iter().flatten();
        let errors = slots.flat_map(|(extension, slot)| &slot.priced(extension).errors);
        self.nameless.iter().chain(errors).cloned().collect()
    }

    /// What the folders say about an extension, the deciding one first.
    fn priced<'a>(&'a self, extension: &str) -> impl Iterator<Item = &'a Priced> {
        let slots = self.folders.iter().rev().filter_map(move |folder| folder.get(extension));
        slots.map(move |slot| slot.priced(extension))
    }

    /// What one sandbox with these resources costs at this extension and host, by the price of `now`.
    ///
    /// An extension without any price costs nothing if it is self-hosted; otherwise it cannot be used.
    pub fn tariff(
        &self,
        extension: &str,
        host: &str,
        resources: &Resources,
        is_self_hosted: bool,
        now: Timestamp,
    ) -> Result<Tariff> {
        match self.card(extension, now)? {
            Some(card) => apply::tariff(card, host, resources),
            None if is_self_hosted => {
                let basis = Basis::SelfHosted.as_str().to_owned();
                Ok(Tariff { extension: extension.to_owned(), basis, ..Tariff::default() })
            }
            None => Err(self.unpriced(extension)),
        }
    }

    /// The price of an extension that applies now: the newest of the last folder that has one, none from the future.
    pub fn card(&self, extension: &str, now: Timestamp) -> Result<Option<&PriceCard>> {
        let today = day_of(now);
        for priced in self.priced(extension) {
            if let Some(why) = priced.errors.first() {
                return Err(refused(extension, &format!("its price file is broken: {why}")));
            }
            if let Some(card) = priced.cards.iter().rev().find(|card| card.as_of <= today) {
                return Ok(Some(card));
            }
        }
        Ok(None)
    }

    /// Every usable price, also what others replace and what begins later: by extension, the deciding folder first.
    pub fn cards(&self) -> Vec<&PriceCard> {
        self.extensions()
            .into_iter()
            .flat_map(|extension| self.priced(extension).flat_map(|priced| priced.cards.iter().rev()))
            .collect()
    }

    fn extensions(&self) -> BTreeSet<&str> {
        self.folders.iter().flat_map(BTreeMap::keys).map(String::as_str).collect()
    }

    /// The price of each extension that applies now, by extension. Those whose file is broken are left out.
    pub fn current(&self, now: Timestamp) -> Vec<&PriceCard> {
        self.extensions().into_iter().filter_map(|name| self.card(name, now).ok().flatten()).collect()
    }

    fn unpriced(&self, extension: &str) -> Error {
        let later = self.priced(extension).flat_map(|priced| &priced.cards);
        match later.map(|card| card.as_of).min() {
            Some(first) => refused(extension, &format!("its price begins on {first}")),
            None => refused(extension, "no price file names it"),
        }
    }
}

/// The day in UTC, which every price file means.
fn day_of(now: Timestamp) -> Date {
    now.to_zoned(TimeZone::UTC).date()
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

/// No sandbox is placed where its cost is not known.
fn refused(extension: &str, why: &str) -> Error {
    Error::new(ErrorKind::NoBackend, format!("{} has no price: {why}", printable(extension)))
        .with_retry(Retry::Permanent)
        .with_context("extension", printable(extension))
        .with_hint("a file in `prices/` of the configuration folder gives it one")
}

#[cfg(test)]
mod tests;
