//! How the provider behaves, in words: `latency=200ms,create=429,create_times=2`.
//!
//! The same words come from a file, from the environment and from a request, each over what was said before.

#[cfg(test)]
mod tests;
mod words;

use sandboxer_core::{Dur, Error, ErrorKind, Money, Result};

use crate::record::hash_of;

/// The longest text that is read.
const LONGEST_TEXT: usize = 4_096;
/// What hangs is longer away than anybody waits.
const DEFAULT_HANG: Dur = Dur::from_secs(86_400);

/// What a create answers instead of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CreateFault {
    #[default]
    Ok,
    /// Makes it, and never says so.
    TimeoutAfter,
    /// Neither makes it nor answers.
    TimeoutBefore,
    TooManyRequests,
    PaymentRequired,
    Unauthorized,
    ServerError,
    /// Makes it, and answers that it broke.
    ServerErrorAfter,
    Capacity,
}

/// What any other call answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallFault {
    #[default]
    Ok,
    ServerError,
    Hang,
}

/// How the provider behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Behaviour {
    /// How long a create, an extension of the TTL, a pause and a teardown take.
    pub latency: Dur,
    /// Up to this much longer, the same for the same sandbox each time.
    pub jitter: Dur,
    /// How long it takes from the create to the first answer.
    pub ready_latency: Dur,
    /// How long what hangs does so; then it is a time-out.
    pub hang: Dur,
    pub create: CreateFault,
    /// Only so many creates fail, counted in the provider's folder.
    pub create_times: Option<u64>,
    /// Only this part of the creates fails, chosen by the tag.
    pub create_rate: Option<f64>,
    /// When to come again, said with 429.
    pub retry_after: Dur,
    /// The sandbox ends by itself at this age.
    pub death: Option<Dur>,
    /// The provider forgets the sandbox at this age.
    pub lost: Option<Dur>,
    pub teardown: CallFault,
    /// Only so many teardowns of one sandbox fail.
    pub teardown_times: Option<u64>,
    pub status: CallFault,
    pub list: CallFault,
    /// More than so many at a time are refused.
    pub max_sandboxes: Option<u64>,
    /// A create without a key of the caller's own is refused.
    pub require_key: bool,
    /// What the provider's own bill asks for a second of a processor.
    pub vcpu_second: Money,
    /// And of a gibibyte of memory.
    pub gib_second: Money,
    /// And for a create.
    pub create_fee: Money,
    /// Where it says that its sandboxes are.
    pub region: Option<String>,
    pub residency: Option<String>,
    /// Nothing runs behind it.
    pub nothing_behind: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            latency: Dur::ZERO,
            jitter: Dur::ZERO,
            ready_latency: Dur::ZERO,
            hang: DEFAULT_HANG,
            create: CreateFault::Ok,
            create_times: None,
            create_rate: None,
            retry_after: Dur::from_secs(1),
            death: None,
            lost: None,
            teardown: CallFault::Ok,
            teardown_times: None,
            status: CallFault::Ok,
            list: CallFault::Ok,
            max_sandboxes: None,
            require_key: false,
            vcpu_second: Money::from_nanos(14_000),
            gib_second: Money::from_nanos(4_500),
            create_fee: Money::from_nanos(100_000),
            region: None,
            residency: None,
            nothing_behind: false,
        }
    }
}

impl Behaviour {
    /// Words over what was said before: `key=value`, separated by commas. A fault that is named anew begins anew, with
    /// no times and no rate of the old one.
    pub fn apply(&mut self, text: &str) -> Result<()> {
        self.apply_pairs(&pairs(text)?)
    }

    /// The words of one request, which may not change what the provider is.
    pub(crate) fn apply_request(&mut self, text: &str) -> Result<()> {
        let pairs = pairs(text)?;
        let own = words::OF_THE_PROVIDER.iter().find(|word| pairs.iter().any(|(key, _)| key == *word));
        if let Some(word) = own {
            return Err(words::of_the_provider(word));
        }
        self.apply_pairs(&pairs)
    }

    /// The same from a TOML file with these keys.
    pub fn apply_toml(&mut self, text: &str) -> Result<()> {
        let table: toml::Table = text.parse().map_err(|source: toml::de::Error| {
            Error::new(ErrorKind::InvalidInput, "the stub's behaviour is not TOML").with_source(source)
        })?;
        let mut pairs = Vec::new();
        for (key, value) in table {
            let value = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                toml::Value::Boolean(flag) => flag.to_string(),
                _ => return Err(words::not_a_value(&key)),
            };
            pairs.push((key, value));
        }
        self.apply_pairs(&pairs)
    }

    fn apply_pairs(&mut self, pairs: &[(String, String)]) -> Result<()> {
        let names = |word: &str| pairs.iter().any(|(key, _)| key == word);
        let plain = Self::default();
        if names("create") {
            self.create_times = plain.create_times;
            self.create_rate = plain.create_rate;
        }
        if names("teardown") {
            self.teardown_times = plain.teardown_times;
        }
        pairs.iter().try_for_each(|(key, value)| words::set(self, key, value))
    }

    /// How long a call about this sandbox takes.
    pub fn delay(&self, tag: &str) -> Dur {
        let most = self.jitter.as_millis();
        let more = if most == 0 { 0 } else { hash_of(tag) % (most + 1) };
        Dur::from_millis(self.latency.as_millis().saturating_add(more))
    }

    /// Whether the rate chooses this sandbox.
    pub(crate) fn is_chosen(&self, tag: &str) -> bool {
        let Some(rate) = self.create_rate else { return true };
        // The upper bits are enough, and a fraction of them is exact.
        let place = (hash_of(tag) >> 11) as f64 / (1_u64 << 53) as f64;
        place < rate
    }
}

/// `key=value`, separated by commas.
fn pairs(text: &str) -> Result<Vec<(String, String)>> {
    if text.len() > LONGEST_TEXT {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("the stub's behaviour is longer than {LONGEST_TEXT} bytes"),
        ));
    }
    let mut out = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| words::not_a_pair(part))?;
        out.push((key.trim().to_owned(), value.trim().to_owned()));
    }
    Ok(out)
}
