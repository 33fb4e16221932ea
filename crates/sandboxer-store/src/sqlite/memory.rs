//! What routing remembers, in SQLite.

mod breakers;
mod latency;
mod slots;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::route::{Backend, Breaker, Digest, ExtensionLimits, Refusal, Slots};
use sandboxer_core::{Dur, Result, SandboxId};

use super::SqliteStore;
use super::fault::Attempt;
use super::query::query;
use super::rows::micros;
use crate::memory::{RouteFailure, RouteMemory, RoutePast};

/// Latencies of one profile and all breakers, told apart by whether there is a class.
pub(super) const PAST: &str = "\
    SELECT NULL, extension, host, p50_ms, p95_ms, samples, weight, updated_at, NULL FROM route_latency \
    WHERE profile = ? \
    UNION ALL \
    SELECT class, extension, host, failures, open_until, probe_until, NULL, last_at, reason FROM route_breakers";

fn past(connection: &Connection, profile: &str) -> Attempt<RoutePast> {
    let mut out = RoutePast::default();
    query(PAST).bind(profile).each(connection, |row| {
        match row.get_ref(0)?.as_str_or_null()? {
            None => out.latency.push((backend(row)?, latency::digest(row)?)),
            Some(class) => out.breakers.push((backend(row)?, breakers::breaker(class, row)?)),
        }
        Ok(())
    })?;
    Ok(out)
}

fn backend(row: &Row<'_>) -> Attempt<Backend> {
    Ok(Backend { extension: row.get(1)?, host: row.get(2)? })
}

fn forget(connection: &Connection, before: Timestamp) -> Attempt<()> {
    for sql in [
        "DELETE FROM route_latency WHERE updated_at < ?",
        "DELETE FROM route_breakers WHERE max(last_at, coalesce(open_until, 0)) < ?",
        "DELETE FROM route_slots WHERE taken_at < ? AND NOT EXISTS \
         (SELECT 1 FROM sandboxes WHERE id = sandbox_id AND state <> 'destroyed')",
    ] {
        query(sql).bind(micros(before)).run(connection)?;
    }
    Ok(())
}

#[async_trait]
impl RouteMemory for SqliteStore {
    async fn route_past(&self, profile: &str) -> Result<RoutePast> {
        self.read("route_past", |c| past(c, profile))
    }

    async fn route_ready(
        &self,
        backend: &Backend,
        profile: &str,
        took: Dur,
        now: Timestamp,
    ) -> Result<Digest> {
        self.write("route_ready", |c| latency::add(c, backend, profile, took, now)).await
    }

    async fn route_failed(
        &self,
        backend: &Backend,
        failure: &RouteFailure<'_>,
        now: Timestamp,
    ) -> Result<Breaker> {
        self.write("route_failed", |c| breakers::failed(c, backend, failure, now)).await
    }

    async fn route_probe(&self, backend: &Backend, until: Timestamp, now: Timestamp) -> Result<bool> {
        self.write("route_probe", |c| breakers::probe(c, backend, until, now)).await
    }

    async fn route_unprobe(&self, backend: &Backend) -> Result<()> {
        self.write("route_unprobe", |c| breakers::unprobe(c, backend)).await
    }

    async fn route_slots(&self, extension: &str, limits: &ExtensionLimits, now: Timestamp) -> Result<Slots> {
        self.read("route_slots", |c| slots::taken(c, extension, None, limits, now))
    }

    async fn route_slot_take(
        &self,
        extension: &str,
        sandbox: SandboxId,
        limits: &ExtensionLimits,
        now: Timestamp,
    ) -> Result<Option<Refusal>> {
        self.write("route_slot_take", |c| slots::take(c, extension, sandbox, limits, now)).await
    }

    async fn route_slots_adopt(&self, extension: &str) -> Result<()> {
        self.write("route_slots_adopt", |c| slots::adopt(c, extension)).await
    }

    async fn route_forget(&self, before: Timestamp) -> Result<()> {
        self.write("route_forget", |c| forget(c, before)).await
    }
}
