//! Who asks: the actor type and the consumer that a request names.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// `adm` a person or operator, `agt` an agent, `atm` an automation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    #[default]
    Adm,
    Agt,
    Atm,
}

impl Actor {
    pub const ALL: [Self; 3] = [Self::Adm, Self::Agt, Self::Atm];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Adm => "adm",
            Self::Agt => "agt",
            Self::Atm => "atm",
        }
    }
}

impl std::fmt::Display for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Actor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|actor| actor.as_str() == text).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("`{}` is not an actor", crate::suggest::printable(text)),
            )
            .with_hint("adm (a person or operator), agt (an agent) or atm (an automation)")
        })
    }
}

/// The project and run on whose behalf a sandbox is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Consumer {
    #[serde(default)]
    pub actor: Actor,
    /// The consuming project, such as `glas-harness`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
}
