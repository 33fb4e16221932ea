//! Images: what a template, its variables and files make, built once and kept under the hash of all three.

mod build;
mod cache;
mod lock;
mod recipe;
mod share;

pub(crate) use cache::{Cache, Image};
pub(crate) use lock::Lock;
pub(crate) use recipe::Recipe;
pub(crate) use share::Images;
