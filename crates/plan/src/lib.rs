//! Plans the Kubernetes objects of inference services.
//!
//! Input: a [`Snapshot`] of services, runtimes, accelerator classes, models, Nodes and Pods. Output: one [`ServicePlan`] per
//! service with the decision, its reasons and all objects in apply order. Both InferenceService kinds are converted
//! into one internal topology, which a single renderer converts into objects. `ostler plan` and the operator call the
//! same function.
//!
//! The crate uses no client, clock, random numbers or environment variables, and Pod templates never contain a generation, time
//! or resourceVersion. Equal snapshots give byte-identical plans.
//!
//! Layers, from low to high:
//! - parts of a topology: `owner`, `role` (with `replicas`), `gang`, `pool_target`, `router`; then `topology` itself; `labels`
//!   and `names` of objects;
//! - input: `runtime`, `class`, `claims`, `snapshot`; `demand` and `supply` read the input of a decision from them;
//! - Pods: `pod` (with `template`), `launch` (commands), `engine_container`, `container_ports`, `serving_port`, `runner` and
//!   `port_override` (merged containers), `multinode`, `model_files`, `adapters`, `probe`, `dual_pods`;
//! - topologies: `components` for `ome.io` (with `selection`), `roles` for `fusioninfer.io`;
//! - `render` converts a topology into objects;
//! - `service_plan` calls all of them; `remedies` plans again with changes.

#![warn(missing_docs)]

pub use claims::{Claim, PodSet, waits_for_capacity};
pub use class::Class;
pub use decision_record::{
    CandidateSummary, DecisionRecord, InvalidEntry, NearestRuntime, RecordedRuntime, RejectedCounts, component_shapes,
    recorded_components,
};
pub use gang::PodGroupSchema;
pub use names::{LeaderWorkerSetNames, fingerprint, label_value};
pub use plan_error::PlanError;
pub use remedies::{other_models_remedy, plan_with_remedies, remedies};
pub use replicas::AutoscalerSupport;
pub use roles::validate_roles;
pub use runtime::Runtime;
pub use service_plan::{CurrentSelectionPolicy, Plan, ServicePlan, plan, plan_service, plan_service_with_claims};
pub use serving_port::serving_port;
pub use snapshot::{DEFAULT_PICKER_IMAGE, Model, Service, Snapshot};

mod accelerator_request;
mod adapters;
mod claims;
mod class;
pub mod code;
mod components;
mod container_ports;
mod current_selection;
mod decision_record;
mod demand;
mod dual_pods;
mod engine_container;
mod gang;
pub mod labels;
mod launch;
mod model_files;
mod multinode;
mod names;
mod owner;
mod plan_error;
mod pod;
mod pool_target;
mod port_override;
mod probe;
mod remedies;
mod render;
mod replicas;
mod role;
mod roles;
mod router;
mod runner;
mod runtime;
mod selection;
mod service_plan;
mod serving_port;
mod smaller_models;
mod snapshot;
mod supply;
mod template;
mod topology;
mod unschedulable;

#[cfg(test)]
mod tests;
