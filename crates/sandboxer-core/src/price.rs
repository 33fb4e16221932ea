//! The price book: what each extension asks, as data that anybody can read and replace.
//!
//! Files come in as text with their names, folder by folder. A broken file is reported for itself and takes the price
//! of its extension with it; one that does not tell whose price it is takes those of all metered extensions. Nothing is
//! ever free, or at an older price, because a file could not be read. [`PriceBook::tariff`] applies a
//! price to the resources of one sandbox; what comes out is frozen with the sandbox.

mod apply;
mod card;
mod decode;
mod folder;
mod rate;
mod whose;

use std::borrow::Cow;
use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::error::{Error, ErrorKind, Result, Retry};
use crate::profile::Resources;
use crate::suggest::printable;
use crate::tariff::Tariff;
use folder::{Folder, Priced};

pub use card::{Basis, HostPrice, MeterName, PriceCard, PriceDefaults, PricePeriod, PriceRate, PriceUnit};

/// Every price that is known, each read when somebody asks for it: most processes need one or two.
#[derive(Clone, Debug, Default)]
pub struct PriceBook {
    /// Later ones win.
    folders: Vec<Folder>,
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

    /// A folder, or a part of one, that cannot be read. What it says about any extension is not known.
    pub fn unread(error: Error) -> Self {
        Self { name: Cow::Borrowed(""), text: Err(error) }
    }

    /// Without the mark that some editors put before a text.
    fn text(&self) -> Result<&str> {
        let text = self.text.as_ref().map_err(Clone::clone)?;
        Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
    }
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
        Self { folders: folders.into_iter().map(Folder::of).collect() }
    }

    /// Every file that cannot be used, and why. What it would have priced has no price.
    pub fn problems(&self) -> Vec<Error> {
        self.problems_after(0)
    }

    /// Those of all folders but the first ones, whose files are then not parsed for it.
    pub fn problems_after(&self, folders: usize) -> Vec<Error> {
        self.folders.iter().skip(folders).flat_map(Folder::problems).collect()
    }

    /// Prices of machines of one's own for extensions that are none: a provider would be used for nothing.
    pub fn misfits(&self, is_metered: impl Fn(&str) -> bool) -> Vec<Error> {
        let own = self.cards().into_iter().filter(|card| card.basis == Basis::SelfHosted);
        own.filter(|card| is_metered(&card.extension)).map(misfit).collect()
    }

    /// What the folders say about an extension, the deciding one first.
    fn priced<'a>(&'a self, extension: &str) -> impl Iterator<Item = &'a Priced> {
        self.folders.iter().rev().filter_map(move |folder| folder.priced(extension))
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
        match self.card(extension, is_self_hosted, now)? {
            Some(card) => apply::tariff(card, host, resources),
            None if is_self_hosted => {
                let basis = Basis::SelfHosted.as_str().to_owned();
                Ok(Tariff { extension: extension.to_owned(), basis, ..Tariff::default() })
            }
            None => Err(self.unpriced(extension)),
        }
    }

    /// The price of an extension that applies now: the newest of the last folder that has one, none from the future.
    ///
    /// A folder with a file that does not tell whose price it is might say anything about anybody. Machines of one's own
    /// go on as long as the folder does not name them: otherwise one slip of the pen would stop a laptop.
    pub fn card(&self, extension: &str, is_self_hosted: bool, now: Timestamp) -> Result<Option<&PriceCard>> {
        let today = day_of(now);
        for folder in self.folders.iter().rev() {
            let priced = folder.priced(extension);
            if let Some(why) = priced.and_then(|priced| priced.errors.first()) {
                return Err(refused(
                    extension,
                    &format!("its price file is broken: {}", why.chain().join(": ")),
                ));
            }
            if let Some(why) = folder.doubt().filter(|_| !is_self_hosted || priced.is_some()) {
                let why = why.chain().join(": ");
                return Err(refused(extension, &format!("it may be in what cannot be read: {why}")));
            }
            let mut cards = priced.into_iter().flat_map(|priced| priced.cards.iter().rev());
            if let Some(card) = cards.find(|card| card.as_of <= today) {
                if card.basis == Basis::SelfHosted && !is_self_hosted {
                    return Err(misfit(card));
                }
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
        self.folders.iter().flat_map(Folder::extensions).collect()
    }

    /// The price of each extension that applies now, by extension. Those whose file is broken are left out.
    pub fn current(&self, now: Timestamp) -> Vec<&PriceCard> {
        let is_own = |name: &str| {
            self.priced(name).flat_map(|priced| &priced.cards).all(|card| card.basis == Basis::SelfHosted)
        };
        let names = self.extensions().into_iter();
        names.filter_map(|name| self.card(name, is_own(name), now).ok().flatten()).collect()
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

/// A provider's bill does not go away because a file calls its machines one's own.
fn misfit(card: &PriceCard) -> Error {
    refused(
        &card.extension,
        &format!("{}: `basis: self-hosted` is for machines of one's own, and it is metered", card.file),
    )
    .with_context("file", card.file.as_str())
    .with_hint("write `basis: metered`, with rates for what the provider charges, or remove the file")
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
