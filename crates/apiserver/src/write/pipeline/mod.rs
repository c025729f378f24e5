//! The stages of a write, in order: [`create`] for new objects, [`update`] for existing ones.

mod create;
mod update;

pub(crate) use create::create;
pub(crate) use update::{modify, modify_with_reads};
