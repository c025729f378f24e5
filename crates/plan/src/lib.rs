//! From services to Kubernetes objects.
//!
//! In: a [`Snapshot`] of services, runtimes, classes, models, nodes and pods. Out: for each service a [`ServicePlan`] with
//! the decision, its reasons, and every object in apply order. Both InferenceService kinds become one internal topology
//! ([`topology`]), which one renderer ([`render`]) writes. `ostler plan` and the operator call the same function.
//!
//! Never: a client, a clock, a random number or an environment variable; never generation, time or resourceVersion in a pod
//! template. The same snapshot gives the same bytes.

pub use claims::Claim;
pub use service_plan::{Incumbency, Plan, ServicePlan, plan, plan_service, plan_service_beside, remedies};
pub use snapshot::{Model, PICKER_IMAGE, Service, Snapshot};
pub use supply::Runtime;

mod asked;
mod chosen;
pub mod claims;
pub mod code;
pub mod components;
pub mod gang;
mod incumbent;
pub mod labels;
pub mod launch;
pub mod model_files;
pub mod multinode;
pub mod names;
mod pod;
mod probe;
pub mod render;
pub mod roles;
pub mod router;
pub mod runner;
mod service_plan;
mod smaller;
mod snapshot;
mod supply;
pub mod template;
pub mod topology;

#[cfg(test)]
mod tests;
