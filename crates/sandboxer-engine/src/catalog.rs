//! Placeholder until the catalog lands.
use sandboxer_core::{Result, profile::Profile};
pub struct Catalog;
pub struct Entry { pub profile: Profile, pub origin: String, pub shadows: Vec<String> }
impl Catalog {
    pub fn get(&self, _name: &str) -> Result<&Entry> { todo!() }
    pub fn list(&self) -> Vec<&Entry> { todo!() }
}
