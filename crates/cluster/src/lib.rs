//! Everything that talks to a Kubernetes API, and knows none of our kinds.
//!
//! In come a `kube::Client` and the [`Kind`]s to watch; out go ordered [`stores`], changes, and few writes: the
//! [`apply::Applier`] sends only differences, [`status`] only changed statuses, [`events`] one event per transition.
//! Decisions are pure functions of what the stores hold ([`apply::already_applied`], [`prune::doomed`],
//! [`neighbours::served`]); time comes in through [`clock::Clock`]. [`lease`] lets one of several replicas work. Nothing here decides what should exist.

mod answered;
pub mod apply;
pub mod clock;
pub mod conditions;
pub mod direct;
pub mod error;
pub mod events;
mod kept;
pub mod kind;
pub mod lease;
pub mod managed;
pub mod neighbours;
pub mod object;
pub mod prune;
pub mod queue;
mod slim;
pub mod status;
pub mod stores;
pub mod unowned;
pub mod watch;

pub use apply::{Applier, Outcome};
pub use clock::{Clock, SystemClock};
pub use conditions::{Condition, State, Tone};
pub use error::Error;
pub use kept::{Form, Keeping};
pub use kind::Kind;
pub use lease::Election;
pub use queue::Queue;
pub use stores::{Change, Changes, Key, Stores};
pub use watch::Watches;
