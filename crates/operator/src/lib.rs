//! The control plane: reconcilers that read stores, call the pure cores and hand the result to the applier.
//!
//! In comes a `kube::Client`; out go objects, statuses and events, all under the field manager `ostler-operator`.
//! A reconcile is: read the stores, think (`plan`, `decide`), act (`cluster::Applier`), tell (status, events). It never
//! decides by itself what should exist, never waits, and sends nothing when nothing is different. Kinds that the
//! cluster does not serve are watched as soon as it does; only the services that need them wait.

mod accounting;
pub mod admission;
mod answers;
mod base_set;
pub mod choice;
mod claims;
mod classes;
pub mod code;
mod crashes;
pub mod decision;
mod discovery;
mod flavors;
mod gang;
pub mod kinds;
pub mod metrics;
mod news;
pub mod obstacles;
mod offer;
pub mod ome_status;
mod own_image;
mod pod_groups;
pub mod readiness;
pub mod readings;
pub mod reason;
pub mod report;
pub mod revisions;
pub mod rights;
pub mod roles_status;
pub mod rollout;
pub mod roster;
pub mod routes;
mod run;
mod seat;
mod services;
mod visits;
pub mod wake;

use std::sync::Arc;

use cluster::{Clock, SystemClock};
use serde_json::Value;

pub use metrics::Metrics;
pub use own_image::own_image;
pub use run::{Operator, run};
pub use seat::Seat;

/// The field manager of every write.
pub const MANAGER: &str = "ostler-operator";

/// Where the operator runs unless told otherwise (seed 000).
pub const NAMESPACE: &str = "ome-system";

/// How the operator runs.
#[derive(Clone)]
pub struct Options {
    /// Feature gate `AcceleratorAwareScheduling`.
    pub accelerator_aware: bool,
    /// Where "now" comes from.
    pub clock: Arc<dyn Clock>,
    /// Several replicas run: only the one that wins the election works. `None`: this is the only one.
    pub seat: Option<Seat>,
    /// Whether classes are made from the labels of nodes.
    pub discovery: bool,
    /// The operator's own namespace: the base set of classes is read there.
    pub namespace: String,
    /// Shipped AcceleratorClasses: facts for discovery. They are not applied here.
    pub known_classes: Vec<Value>,
    /// Image of the endpoint pickers of routers: this program's.
    pub picker_image: String,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where a cluster's API server asks about writes; none where admission is by function call.
    pub webhook: Option<admission::webhook::Webhook>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            accelerator_aware: true,
            clock: Arc::new(SystemClock),
            seat: None,
            discovery: true,
            namespace: NAMESPACE.to_owned(),
            known_classes: Vec::new(),
            picker_image: plan::PICKER_IMAGE.to_owned(),
            metrics: Arc::default(),
            webhook: None,
        }
    }
}
