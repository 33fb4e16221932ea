//! What the provider answers when it does not do what it was asked: one table from fault to error.

use sandboxer_core::error::Class;
use sandboxer_core::{Dur, Error, ErrorKind, Result};

use crate::behaviour::{Behaviour, CallFault, CreateFault};

/// The answer of a create before anything was made; nothing when this fault is none or comes later.
pub(crate) async fn before_create(fault: CreateFault, behaviour: &Behaviour) -> Result<()> {
    match fault {
        CreateFault::Ok | CreateFault::TimeoutAfter | CreateFault::ServerErrorAfter => Ok(()),
        CreateFault::TimeoutBefore => Err(hang(behaviour.hang).await),
        CreateFault::TooManyRequests => Err(too_many_requests(behaviour.retry_after)),
        CreateFault::PaymentRequired => Err(payment_required()),
        CreateFault::Unauthorized => Err(unauthorized("the key is not valid")),
        CreateFault::ServerError => Err(server_error("create")),
        CreateFault::Capacity => Err(capacity("no machine is free")),
    }
}

/// The answer of a create that has made its sandbox.
pub(crate) async fn after_create(fault: CreateFault, behaviour: &Behaviour) -> Result<()> {
    match fault {
        CreateFault::TimeoutAfter => Err(hang(behaviour.hang).await),
        CreateFault::ServerErrorAfter => Err(server_error("create")),
        _ => Ok(()),
    }
}

/// The answer of any other call.
pub(crate) async fn call(fault: CallFault, what: &str, behaviour: &Behaviour) -> Result<()> {
    match fault {
        CallFault::Ok => Ok(()),
        CallFault::ServerError => Err(server_error(what)),
        CallFault::Hang => Err(hang(behaviour.hang).await),
    }
}

/// Takes its time. None is none: a timer of zero still waits for the clock's next tick.
pub(crate) async fn wait(span: Dur) {
    if span > Dur::ZERO {
        tokio::time::sleep(span.as_std()).await;
    }
}

async fn hang(span: Dur) -> Error {
    wait(span).await;
    answer(ErrorKind::Timeout, format!("the provider did not answer within {span}"))
        .with_class(Class::Timeout)
}

fn answer(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).with_context("extension", crate::ID)
}

fn too_many_requests(retry_after: Dur) -> Error {
    answer(ErrorKind::RateLimited, "the provider answered 429: too many requests")
        .with_class(Class::Quota)
        .with_retry_after(retry_after)
        .with_hint(format!("try again in {retry_after}"))
        .without_effect()
}

fn payment_required() -> Error {
    answer(ErrorKind::BackendFailed, "the provider answered 402: the account there has no credit left")
        .with_class(Class::Payment)
        .with_hint("add credit to the account at the provider, or use a key of another one")
        .without_effect()
}

pub(crate) fn unauthorized(why: &str) -> Error {
    answer(ErrorKind::BackendFailed, format!("the provider answered 401: {why}"))
        .with_class(Class::Auth)
        .with_hint("check the key of the provider that the platform or the workspace has")
        .without_effect()
}

pub(crate) fn capacity(why: &str) -> Error {
    answer(ErrorKind::NoSpace, format!("the provider has no capacity: {why}"))
        .with_class(Class::Capacity)
        .without_effect()
}

/// Nobody knows what it did before it broke.
fn server_error(what: &str) -> Error {
    answer(ErrorKind::BackendFailed, format!("the provider answered 500 to the {what}"))
        .with_class(Class::Backend)
}
