//! A create at the provider: faults before, the note, the sandbox behind it, faults after.
//!
//! The note comes first, so that whatever breaks off in between is found by its tag.

use jiff::Timestamp;
use sandboxer_core::extension::{Handle, ProvisionRequest};
use sandboxer_core::host::LOCAL;
use sandboxer_core::isolation::{Control, IsolationLevel, Outcome};
use sandboxer_core::profile::Image;
use sandboxer_core::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use crate::backend::SaasStub;
use crate::behaviour::{Behaviour, CreateFault};
use crate::config::Backing;
use crate::faults;
use crate::record::Record;

/// The input of a request that has words about the behaviour.
pub(crate) const INPUT: &str = "stub";

/// A sandbox at the provider, and what goes wrong after it was made.
struct Made {
    record: Record,
    fault: CreateFault,
}

impl SaasStub {
    pub(crate) async fn create(&self, request: ProvisionRequest) -> Result<Handle> {
        self.refuse(&request).map_err(Error::without_effect)?;
        let words = request.spec.inputs.get(INPUT).map(String::as_str);
        let behaviour = self.settings.behaviour(words).map_err(Error::without_effect)?;
        // Who asks again about a sandbox that is there gets it, without a further fault.
        let made = match self.provider.get(&request.tag)? {
            Some(record) => Made { record, fault: CreateFault::Ok },
            None => self.write_down(&request, &behaviour).await?,
        };
        if made.record.key != self.account() {
            return Err(Error::new(ErrorKind::Conflict, "the provider has this tag in another account"));
        }
        let handle = self.run_behind(request, &made.record).await?;
        faults::after_create(made.fault, &behaviour).await?;
        Ok(handle)
    }

    /// What neither the provider nor what is behind it can do.
    fn refuse(&self, request: &ProvisionRequest) -> Result<()> {
        if !request.spec.mounts.is_empty() {
            return Err(Error::unsupported(crate::ID, "folders of this machine"));
        }
        let Backing::None = self.settings.backing else { return Ok(()) };
        let what = if request.spec.image != Image::Host {
            "images other than `host`"
        } else if request.from.is_some() {
            "starting from a snapshot"
        } else if request.seed.is_some() {
            "a workspace, since nothing runs behind it"
        } else {
            return Ok(());
        };
        Err(Error::unsupported(crate::ID, what))
    }

    async fn write_down(&self, request: &ProvisionRequest, behaviour: &Behaviour) -> Result<Made> {
        faults::wait(behaviour.delay(&request.tag)).await;
        if behaviour.require_key && self.key.is_none() {
            return Err(faults::unauthorized("a key is required"));
        }
        let fault = self.next_fault(&request.tag, behaviour).await?;
        faults::before_create(fault, behaviour).await?;
        let record = Record::new(request, self.key.as_ref(), behaviour, Timestamp::now());
        let Some(most) = behaviour.max_sandboxes else {
            return Ok(Made { record: self.provider.insert(record)?.0, fault });
        };
        // Counted and written down under one lock, so that two creates cannot share the last place.
        let _held = self.provider.lock().await?;
        let living = self.provider.all("")?;
        let living = living.iter().filter(|one| one.tag != record.tag && one.is_in_time(record.created_at));
        if living.count() as u64 >= most {
            return Err(faults::capacity(&format!("{most} sandboxes are there, and more are not allowed")));
        }
        Ok(Made { record: self.provider.insert(record)?.0, fault })
    }

    /// The fault that this create meets.
    async fn next_fault(&self, tag: &str, behaviour: &Behaviour) -> Result<CreateFault> {
        if behaviour.create == CreateFault::Ok || !behaviour.is_chosen(tag) {
            return Ok(CreateFault::Ok);
        }
        let Some(times) = behaviour.create_times else { return Ok(behaviour.create) };
        let held = self.provider.lock().await?;
        let before = self.provider.count_create(&held)?;
        Ok(if before < times { behaviour.create } else { CreateFault::Ok })
    }

    async fn run_behind(&self, request: ProvisionRequest, record: &Record) -> Result<Handle> {
        let (tag, host) = (request.tag.clone(), request.host.clone());
        let Backing::Extension(backing) = &self.settings.backing else {
            return Ok(nothing_runs(tag, host, record));
        };
        let request = ProvisionRequest {
            host: LOCAL.to_owned(),
            // Whatever ends it first: its deadline, its death, or that it is forgotten.
            expires_at: record.end().0,
            ..request
        };
        match backing.provision(request).await {
            Ok(inner) => Ok(Handle { host, data: data(record, inner.data), ..inner }),
            Err(error) => {
                // A refusal that left nothing takes the note with it, unless somebody else makes the same sandbox.
                let left = backing.list(LOCAL, &tag).await;
                if left.is_ok_and(|left| left.iter().all(|one| one.tag != tag)) {
                    self.provider.take_back(&tag)?;
                }
                Err(error)
            }
        }
    }
}

fn data(record: &Record, backing: Value) -> Value {
    json!({ "id": record.id, "backing": backing })
}

fn nothing_runs(tag: String, host: String, record: &Record) -> Handle {
    let control = Control {
        name: "no_commands".into(),
        outcome: Outcome::Enforced,
        detail: "nothing runs behind it, and no command can be run in it".into(),
    };
    Handle {
        tag,
        host,
        effective: IsolationLevel::Container,
        controls: vec![control],
        degraded: false,
        data: data(record, Value::Null),
    }
}

/// The handle as the backing gave it.
pub(crate) fn inner(handle: &Handle) -> Handle {
    let data = handle.data.get("backing").cloned().unwrap_or_default();
    Handle { host: LOCAL.to_owned(), data, ..handle.clone() }
}
