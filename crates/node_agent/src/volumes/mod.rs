//! Pod volumes as directories on the host.
//!
//! There is no mount namespace: a volume is a directory below that of the Pod (a `hostPath` is used in place), and
//! mount paths in the command, arguments and variables of a container are replaced by the host paths ([`paths`]). The
//! content of a volume is a pure function of the Pod and the objects it refers to ([`content`]); [`atomic_writer`]
//! writes it as the kubelet does, so that readers see an update completely or not at all.

mod atomic_writer;
mod claims;
mod content;
mod error;
mod host_path;
mod mounts;
pub(crate) mod paths;
mod remove;
mod set_up;
mod spec;

pub(crate) use claims::resolve_claims;
pub(crate) use error::VolumeError;
pub(crate) use mounts::mounts;
pub(crate) use remove::remove_dir;
pub(crate) use set_up::{check, set_up};
pub(crate) use spec::has_updatable_volumes;
