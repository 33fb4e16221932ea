//! Inputs that say how a backend behaves towards everybody: they are for whoever runs the process, and no request with a
//! key may have one.

use sandboxer_core::request::CreateRequest;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::Caller;

/// An input, and where whoever runs the process says the same for all.
///
/// What a fault does to one create it does to the backend's health, which all share: a request that asks for a fault
/// would take the backend away from the others.
const OF_THE_PROCESS: &[(&str, &str)] = &[("stub", "the variable SANDBOXER_STUB")];

/// The local caller has no key and owns the process's files anyway.
pub(crate) fn check(caller: &Caller, request: &CreateRequest) -> Result<()> {
    let named = OF_THE_PROCESS.iter().find(|(input, _)| request.inputs.contains_key(*input));
    match named {
        Some((input, place)) if caller.key.is_some() => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("a request with a key may not have the input `{input}`: what it asks for, others would meet too"),
        )
        .with_hint(format!("leave it out; whoever runs the server says it for all with {place}"))),
        _ => Ok(()),
    }
}
