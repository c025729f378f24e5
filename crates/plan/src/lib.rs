//! Plans the Kubernetes objects of inference services.
//!
//! Input: a [`Snapshot`] of services, runtimes, accelerator classes, models, Nodes and Pods. Output: one [`ServicePlan`] per
//! service with the decision, its reasons and all objects in apply order. Both InferenceService kinds are converted
//! into one internal topology, which a single renderer converts into objects. `ostler plan` and the operator call the
//! same function.
//!
//! The crate uses no client, clock, random numbers or environment variables, and Pod templates never contain a generation, time
//! or resourceVersion. Equal snapshots give byte-identical plans.

#![warn(missing_docs)]

pub use claims::{Claim, PodSet, status_waits_for_capacity, waits_for_capacity};
pub use gang::PodGroupSchema;
pub use names::{LeaderWorkerSetNames, fingerprint, label_value};
pub use roles::validate_roles;
pub use service_plan::{
    CurrentSelectionPolicy, Plan, ServicePlan, plan, plan_service, plan_service_with_claims, remedies,
};
pub use snapshot::{DEFAULT_PICKER_IMAGE, Model, Service, Snapshot};
pub use supply::{Class, Runtime};
pub use topology::{AutoscalerSupport, PlanError};

mod claims;
pub mod code;
mod components;
mod current_selection;
mod demand;
mod gang;
pub mod labels;
mod launch;
mod model_files;
mod multinode;
mod names;
mod pod;
mod probe;
mod render;
mod roles;
mod router;
mod runner;
mod selection;
mod service_plan;
mod smaller_models;
mod snapshot;
mod supply;
mod template;
mod topology;

#[cfg(test)]
mod tests;
