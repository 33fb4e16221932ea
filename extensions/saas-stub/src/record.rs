//! What the provider knows about one sandbox: one file for each.

use jiff::Timestamp;
use sandboxer_core::extension::{Credential, ProvisionRequest};
use sandboxer_core::hash::sha256_hex;
use sandboxer_core::tariff::{Charged, Phase, Rate, Tariff, TariffLine};
use sandboxer_core::{Dur, Money, Result};
use serde::{Deserialize, Serialize};

use crate::behaviour::Behaviour;

/// What a sandbox has when its profile does not say.
const DEFAULT_CPU: f64 = 1.0;
const DEFAULT_MEMORY_MB: u64 = 512;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// One sandbox at the provider. Its key is not in it, only which one it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The provider's own name for it.
    pub id: String,
    pub tag: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// The account that it is in: `platform`, or `own:` and the beginning of a SHA-256 of the key's name.
    pub key: String,
    pub vcpu_milli: u64,
    pub memory_mb: u64,
    /// What the provider asks, as it was when the sandbox was made.
    pub vcpu_second: Money,
    pub gib_second: Money,
    pub create_fee: Money,
    /// The request's words, for calls that come later and from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stub: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dies_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    #[serde(default)]
    pub paused_ms: u64,
    #[serde(default)]
    pub teardowns_failed: u64,
    /// Set when its end is being written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// `destroyed`, `died`, `lost` or `expired`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billed: Option<Dur>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

/// Whose account a key opens, in a form that does not tell the key. Keys that are the same before the first dot are of
/// one account, as when one takes the place of the other.
pub(crate) fn account(key: Option<&Credential>) -> String {
    match key {
        None => "platform".to_owned(),
        Some(key) => {
            let name = key.expose().split('.').next().unwrap_or_default();
            format!("own:{}", &sha256_hex(name.as_bytes())[..12])
        }
    }
}

/// A number that is as good as chance and the same each time.
pub(crate) fn hash_of(text: &str) -> u64 {
    u64::from_str_radix(&sha256_hex(text.as_bytes())[..16], 16).unwrap_or_default()
}

impl Record {
    pub(crate) fn new(
        request: &ProvisionRequest,
        key: Option<&Credential>,
        behaviour: &Behaviour,
        now: Timestamp,
    ) -> Self {
        let resources = &request.spec.resources;
        let cpu = resources.cpu.filter(|cpu| cpu.is_finite() && *cpu > 0.0).unwrap_or(DEFAULT_CPU);
        Self {
            id: format!("stub-{:016x}", hash_of(&format!("{} {now}", request.tag))),
            tag: request.tag.clone(),
            created_at: now,
            expires_at: request.expires_at,
            key: account(key),
            // Rounded to thousandths; a cast of a float saturates.
            vcpu_milli: (cpu * 1_000.0).round() as u64,
            memory_mb: resources.memory_mb.unwrap_or(DEFAULT_MEMORY_MB),
            vcpu_second: behaviour.vcpu_second,
            gib_second: behaviour.gib_second,
            create_fee: behaviour.create_fee,
            stub: request.spec.inputs.get(crate::provision::INPUT).cloned(),
            dies_at: behaviour.death.map(|age| age.after(now)),
            lost_at: behaviour.lost.map(|age| age.after(now)),
            paused_at: None,
            paused_ms: 0,
            teardowns_failed: 0,
            ended_at: None,
            reason: None,
            billed: None,
            cost: None,
        }
    }

    /// When it ends by itself: at its deadline or at the provider's whim, whichever comes first. The backing keeps this.
    pub fn end(&self) -> (Timestamp, &'static str) {
        let ends = [(Some(self.expires_at), "expired"), (self.dies_at, "died"), (self.lost_at, "lost")];
        let ends = ends.into_iter().filter_map(|(at, why)| at.map(|at| (at, why)));
        ends.min_by_key(|(at, _)| *at).unwrap_or((self.expires_at, "expired"))
    }

    /// The provider does not know it any more.
    pub fn is_lost(&self, now: Timestamp) -> bool {
        self.end().1 == "lost" && self.end().0 <= now
    }

    /// Its time has not come, as far as the provider's clock goes.
    pub fn is_in_time(&self, now: Timestamp) -> bool {
        self.ended_at.is_none() && self.end().0 > now
    }

    pub fn state(&self, now: Timestamp) -> &'static str {
        if !self.is_in_time(now) {
            "ended"
        } else if self.paused_at.is_some() {
            "paused"
        } else {
            "running"
        }
    }

    pub(crate) fn pause(&mut self, now: Timestamp) {
        self.paused_at = self.paused_at.or(Some(now));
    }

    pub(crate) fn resume(&mut self, now: Timestamp) {
        if let Some(since) = self.paused_at.take() {
            self.paused_ms = self.paused_ms.saturating_add(between(since, now).as_millis());
        }
    }

    /// The end, asked for at this moment or come by itself before.
    pub(crate) fn finish(&mut self, asked_at: Timestamp) -> Result<()> {
        let (own_end, why) = self.end();
        let (at, why) = if own_end <= asked_at { (own_end, why) } else { (asked_at, "destroyed") };
        let at = at.max(self.created_at);
        self.resume(at);
        let billed = self.billed_until(at);
        self.ended_at = Some(at);
        self.reason = Some(why.to_owned());
        self.cost = Some(self.cost_until(at)?);
        self.billed = Some(billed);
        Ok(())
    }

    /// The time that it has run until then: from the create to the end, without pauses.
    pub fn billed_until(&self, now: Timestamp) -> Dur {
        let end = self.ended_at.unwrap_or(now).min(self.end().0);
        let whole = between(self.created_at, end).as_millis();
        Dur::from_millis(whole.saturating_sub(self.paused_until(end).as_millis()))
    }

    fn paused_until(&self, end: Timestamp) -> Dur {
        let open = self.paused_at.map_or(0, |since| between(since, end).as_millis());
        Dur::from_millis(self.paused_ms.saturating_add(open))
    }

    /// What the provider asks until then, reckoned as the price book does.
    pub fn cost_until(&self, now: Timestamp) -> Result<Money> {
        let tariff = self.tariff();
        let end = self.ended_at.unwrap_or(now).min(self.end().0);
        let mut items = tariff.interval(Phase::Running, self.billed_until(now), None, true)?;
        items.extend(tariff.interval(Phase::Paused, self.paused_until(end), None, false)?);
        items.iter().try_fold(Money::ZERO, |sum, item| sum.checked_add(item.cost))
    }

    /// Processors and memory while it runs, a tenth of the memory while it is paused, and a fee for the create.
    fn tariff(&self) -> Tariff {
        let line = |meter: &str, quantity, unit_size, amount, per, phase| TariffLine {
            meter: meter.into(),
            charged: Charged::Reserved,
            quantity,
            free: 0,
            unit_size,
            unit: String::new(),
            rate: Rate { amount, per },
            phases: vec![phase],
        };
        let (second, memory) = (Some(Dur::from_secs(1)), self.memory_mb.saturating_mul(MIB));
        let tenth = Money::from_nanos(self.gib_second.nanos() / 10);
        Tariff {
            extension: crate::ID.into(),
            lines: vec![
                line("vcpu", self.vcpu_milli, 1_000, self.vcpu_second, second, Phase::Running),
                line("memory", memory, GIB, self.gib_second, second, Phase::Running),
                line("memory", memory, GIB, tenth, second, Phase::Paused),
                line("create", 1, 1, self.create_fee, None, Phase::Running),
            ],
            granularity: Dur::from_secs(1),
            ..Tariff::default()
        }
    }
}

fn between(start: Timestamp, end: Timestamp) -> Dur {
    Dur::from_millis(u64::try_from(end.as_millisecond() - start.as_millisecond()).unwrap_or_default())
}
