//! The control plane: reconcilers that read stores, call the pure cores and hand the result to the applier.
//!
//! In comes a `kube::Client`; out go objects, statuses and events, all under the field manager `ostler-operator`.
//! A reconcile is: read the stores, think (`plan`, `decide`), act (`cluster::Applier`), tell (status, events). It never
//! decides by itself what should exist, never waits, and sends nothing when nothing is different. Kinds that the
//! cluster does not serve are watched as soon as it does; only the services that need them wait.

pub mod choice;
mod classes;
pub mod decision;
pub mod kinds;
mod offer;
pub mod ome_status;
pub mod readiness;
pub mod readings;
pub mod reason;
pub mod report;
pub mod roles_status;
mod run;
mod seat;
mod services;
pub mod wake;

use std::sync::Arc;

use cluster::{Clock, SystemClock};

pub use run::{Operator, run};
pub use seat::Seat;

/// The field manager of every write.
pub const MANAGER: &str = "ostler-operator";

/// How the operator runs.
#[derive(Clone)]
pub struct Options {
    /// Feature gate `AcceleratorAwareScheduling`.
    pub accelerator_aware: bool,
    /// Where "now" comes from.
    pub clock: Arc<dyn Clock>,
    /// Several replicas run: only the one that wins the election works. `None`: this is the only one.
    pub seat: Option<Seat>,
}

impl Default for Options {
    fn default() -> Options {
        Options { accelerator_aware: true, clock: Arc::new(SystemClock), seat: None }
    }
}
