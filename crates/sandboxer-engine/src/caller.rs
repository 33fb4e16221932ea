//! Who is asking, and what that role may do. One table for the command line and the server.

use sandboxer_core::ledger::Seat;
use sandboxer_core::{Actor, Error, ErrorKind, KeyId, Result};

/// What is asked for, by how much power it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create, use and destroy sandboxes of one's own; read the catalog.
    UseSandboxes,
    /// See and end what others made; expire; look at the host.
    Operate,
    /// Name a folder of the engine's machine as the source of a workspace.
    ReadFolders,
    /// Make and revoke keys.
    ManageKeys,
    /// Add and remove hosts.
    ManageHosts,
    /// Pay in, set budgets and limits, keep keys of providers, manage webhooks.
    ManageMoney,
}

/// The person, agent or automation behind a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub actor: Actor,
    /// Absent for the local admin.
    pub key: Option<KeyId>,
    /// Who pays.
    pub seat: Seat,
}

impl Caller {
    /// Whoever owns the store's files.
    pub fn local_admin() -> Self {
        Self { actor: Actor::Adm, key: None, seat: Seat::default() }
    }

    pub fn with_key(actor: Actor, key: KeyId) -> Self {
        Self { actor, key: Some(key), seat: Seat::default() }
    }

    /// The roles: operators everything, automations also operate, agents only what is theirs.
    pub fn may(&self, action: Action) -> bool {
        match (self.actor, action) {
            (_, Action::UseSandboxes) | (Actor::Adm, _) | (Actor::Atm, Action::Operate) => true,
            (
                Actor::Atm,
                Action::ManageKeys | Action::ManageHosts | Action::ReadFolders | Action::ManageMoney,
            )
            | (Actor::Agt, _) => false,
        }
    }

    pub fn require(&self, action: Action) -> Result<()> {
        if self.may(action) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Denied, format!("a key of actor type `{}` may not do this", self.actor))
            .with_hint(
                "ask an operator, who has a key made with `sandboxer keys create --name NAME --actor adm`",
            ))
    }

    /// Whether a sandbox made with this key is the caller's to see.
    pub fn may_see(&self, owner_key: Option<&str>) -> bool {
        self.may(Action::Operate) || (self.key.is_some() && owner_key == self.key_text().as_deref())
    }

    /// The key to filter listings by; absent for those who see everything.
    pub fn visible_key(&self) -> Option<String> {
        if self.may(Action::Operate) { None } else { Some(self.key_text().unwrap_or_default()) }
    }

    pub fn key_text(&self) -> Option<String> {
        self.key.map(|key| key.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_see_only_their_own() {
        let key = KeyId::generate();
        let agent = Caller::with_key(Actor::Agt, key);
        assert!(agent.may_see(Some(&key.to_string())));
        assert!(!agent.may_see(Some(&KeyId::generate().to_string())));
        assert!(!agent.may_see(None));
        assert!(agent.require(Action::Operate).is_err());
        assert!(agent.require(Action::ManageKeys).is_err());
        assert!(Caller::local_admin().may_see(None));
        assert!(Caller::with_key(Actor::Atm, key).require(Action::ManageKeys).is_err());
    }
}
