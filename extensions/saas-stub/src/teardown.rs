//! The end of a sandbox at the provider, and what is there of ours.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandboxer_core::Result;
use sandboxer_core::extension::{CleanupReport, Found};
use sandboxer_core::host::LOCAL;

use crate::backend::SaasStub;
use crate::behaviour::{Behaviour, CallFault};
use crate::config::Backing;
use crate::faults;
use crate::record::Record;

impl SaasStub {
    pub(crate) async fn remove(&self, tag: &str) -> Result<CleanupReport> {
        let asked_at = Timestamp::now();
        // Nobody learns what is in the account of somebody else.
        if self.is_elsewhere(tag)? {
            return Ok(CleanupReport::default());
        }
        let record = self.provider.get(tag)?;
        let behaviour = self.behaviour_of(record.as_ref())?;
        faults::wait(behaviour.delay(tag)).await;
        if self.fails_teardown(record.as_ref(), &behaviour).await? {
            faults::call(behaviour.teardown, "teardown", &behaviour).await?;
        }
        let mut report = match &self.settings.backing {
            Backing::Extension(backing) => backing.teardown(LOCAL, tag, None).await?,
            Backing::None => CleanupReport::default(),
        };
        // What is not removed stays on the provider's books.
        if !report.is_clean() {
            return Ok(report);
        }
        let Some(record) = record else { return Ok(report) };
        let held = self.provider.lock().await?;
        let ended = self.provider.end(&held, tag, asked_at)?;
        if record.is_lost(asked_at) {
            // The provider knows nothing of it and says nothing of it.
            return Ok(CleanupReport::default());
        }
        report.removed.extend(ended.map(|record| part(&record)));
        Ok(report)
    }

    async fn fails_teardown(&self, record: Option<&Record>, behaviour: &Behaviour) -> Result<bool> {
        if behaviour.teardown == CallFault::Ok {
            return Ok(false);
        }
        let Some(times) = behaviour.teardown_times else { return Ok(true) };
        let Some(record) = record.filter(|record| record.teardowns_failed < times) else { return Ok(false) };
        let held = self.provider.lock().await?;
        self.provider.change(&held, &record.tag, |record| record.teardowns_failed += 1)?;
        Ok(true)
    }

    pub(crate) async fn all_of_ours(&self, prefix: &str) -> Result<Vec<Found>> {
        let behaviour = self.settings.behaviour(None)?;
        faults::call(behaviour.list, "listing", &behaviour).await?;
        let records = self.provider.all(prefix)?;
        let mut behind: Option<BTreeMap<String, Found>> = None;
        if let Backing::Extension(backing) = &self.settings.backing {
            let found = backing.list(LOCAL, prefix).await?;
            behind = Some(found.into_iter().map(|found| (found.tag.clone(), found)).collect());
        }
        let (now, account) = (Timestamp::now(), self.account());
        let mut out = Vec::new();
        for record in records {
            let found = behind.as_mut().map(|behind| behind.remove(&record.tag));
            if record.is_lost(now) || record.key != account {
                continue;
            }
            let runs = match &found {
                None => true,
                Some(found) => found.as_ref().is_some_and(|found| found.alive),
            };
            let mut parts = vec![part(&record)];
            parts.extend(found.flatten().into_iter().flat_map(|found| found.parts));
            out.push(Found { alive: runs && record.is_in_time(now), tag: record.tag, parts });
        }
        // What runs without a note: somebody removed the note while it came up. Then nobody knows whose it was.
        if self.key.is_none() {
            out.extend(behind.into_iter().flat_map(BTreeMap::into_values));
        }
        Ok(out)
    }
}

fn part(record: &Record) -> String {
    format!("sandbox {} at the provider", record.id)
}
