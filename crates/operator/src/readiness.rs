//! Readiness of workloads, computed from their objects and Pods without a client.
//!
//! If there are several problems, the most urgent one is reported: first images that cannot be pulled, then crashes,
//! then unschedulable Pods, and last Pods that are starting. Ties are broken by Pod name.

mod container;
mod dual_pods;
mod log_line;
mod pod;
mod problem;
mod progress;
#[cfg(test)]
mod tests;
mod workload;

pub use container::crashed_container;
pub(crate) use container::has_crashed;
pub use dual_pods::pod_problem_among;
pub use log_line::error_line;
pub(crate) use pod::is_pod_ready;
pub use pod::pod_problem;
pub(crate) use problem::RESTARTS_TO_FAIL;
pub use problem::WorkloadProblem;
pub(crate) use progress::{Progress, is_rollout_complete, replicas_are};
pub(crate) use workload::workload_problem;
