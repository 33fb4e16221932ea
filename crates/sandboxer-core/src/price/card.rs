//! One price file, typed: what an extension asks from a day on.

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::duration::Dur;
use crate::money::Money;
use crate::tariff::{Charged, Phase};

/// The price of one extension from a day on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PriceCard {
    pub extension: String,
    /// Always `USD`.
    pub currency: String,
    /// The day from which it applies, in UTC.
    #[schema(value_type = String, example = "2026-03-01")]
    pub as_of: Date,
    /// Where the figures come from.
    pub source: String,
    pub basis: Basis,
    /// The least that one sandbox costs.
    pub minimum: Money,
    /// Each interval is rounded up to a multiple of this; nothing is rounded when it is zero.
    pub granularity: Dur,
    pub rates: Vec<PriceRate>,
    /// What the provider gives with the rest, at no rate of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bundled: Vec<MeterName>,
    pub defaults: PriceDefaults,
    /// Hosts that cost something else than the `host` rate says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, HostPrice>,
    /// The file that says so.
    pub file: String,
}

/// Who asks for the money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Machines of one's own: what they cost, shared among their sandboxes.
    SelfHosted,
    /// A provider that meters.
    Metered,
}

impl Basis {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SelfHosted => "self-hosted",
            Self::Metered => "metered",
        }
    }
}

/// What is asked for one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PriceRate {
    pub meter: MeterName,
    pub amount: Money,
    pub per: PricePeriod,
    pub unit: PriceUnit,
    pub charged: Charged,
    /// Units that cost nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub free: u64,
    pub states: Vec<Phase>,
    /// Of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many sandboxes share a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeterName {
    Vcpu,
    Memory,
    Disk,
    Gpu,
    Host,
    Create,
}

impl MeterName {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vcpu => "vcpu",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Gpu => "gpu",
            Self::Host => "host",
            Self::Create => "create",
        }
    }

    /// The units that it can be priced in. One that stands alone need not be written.
    pub(super) const fn units(self) -> &'static [(&'static str, PriceUnit)] {
        match self {
            Self::Vcpu => &[("vcpu", PriceUnit::Vcpu), ("core", PriceUnit::Core)],
            Self::Memory | Self::Disk => &[("gib", PriceUnit::Gib), ("gb", PriceUnit::Gb)],
            Self::Gpu => &[("gpu", PriceUnit::Gpu)],
            Self::Host => &[("host", PriceUnit::Host)],
            Self::Create => &[("sandbox", PriceUnit::Sandbox)],
        }
    }

    /// Whether a backend can say what was used of it.
    pub(super) const fn is_measured(self) -> bool {
        matches!(self, Self::Vcpu | Self::Memory | Self::Disk)
    }
}

/// The span that an amount is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PricePeriod {
    Second,
    Minute,
    Hour,
    Day,
    /// When the sandbox starts, and never again.
    Once,
}

impl PricePeriod {
    pub const fn span(self) -> Option<Dur> {
        match self {
            Self::Second => Some(Dur::from_secs(1)),
            Self::Minute => Some(Dur::from_secs(60)),
            Self::Hour => Some(Dur::from_secs(3_600)),
            Self::Day => Some(Dur::from_secs(86_400)),
            Self::Once => None,
        }
    }
}

/// What an amount is for one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PriceUnit {
    Vcpu,
    /// A physical core, which is two virtual processors.
    Core,
    Gib,
    Gb,
    Gpu,
    Host,
    Sandbox,
}

impl PriceUnit {
    /// In the base units of a tariff: thousandths of a processor, bytes, pieces.
    pub(super) const fn size(self) -> u64 {
        match self {
            Self::Vcpu => 1_000,
            Self::Core => 2_000,
            Self::Gib => 1 << 30,
            Self::Gb => 1_000_000_000,
            Self::Gpu | Self::Host | Self::Sandbox => 1,
        }
    }

    /// For people.
    pub const fn shown(self) -> &'static str {
        match self {
            Self::Vcpu => "vCPU",
            Self::Core => "core",
            Self::Gib => "GiB",
            Self::Gb => "GB",
            Self::Gpu => "GPU",
            Self::Host => "host",
            Self::Sandbox => "sandbox",
        }
    }
}

/// What the provider gives when a profile does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PriceDefaults {
    /// Thousandths of a virtual processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu_thousandths: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
}

/// What one host costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HostPrice {
    /// For the span of the `host` rate.
    pub amount: Money,
    pub slots: u32,
}
