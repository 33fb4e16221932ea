//! What streams of execs are made of.

use sandboxer_core::ExecId;
use sandboxer_core::exec::ExecOutcome;
use serde::Serialize;

use crate::error::ErrorBody;

/// One line or event of a stream. The last one is `exit` or `error`.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ExecRecord {
    Stdout(OutputRecord),
    Stderr(OutputRecord),
    Exit(ExitRecord),
    Error { error: ErrorBody },
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct OutputRecord {
    /// Text, or base64 with `encoding=base64`.
    pub(crate) data: String,
    /// Of a background exec: where to go on from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_offset: Option<u64>,
    /// Of a background exec: bytes before this piece that were not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<u64>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ExitRecord {
    pub(crate) exec_id: ExecId,
    #[serde(flatten)]
    pub(crate) outcome: ExecOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<u64>,
}

impl OutputRecord {
    pub(crate) fn of(data: String) -> Self {
        Self { data, next_offset: None, skipped: None }
    }
}

impl ExecRecord {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Stdout(_) => "stdout",
            Self::Stderr(_) => "stderr",
            Self::Exit(_) => "exit",
            Self::Error { .. } => "error",
        }
    }
}
