//! The ostler operator: reconciles InferenceServices and accelerator classes.
//!
//! Input is a `kube::Client` and [`Options`]; output is objects, statuses and events, all written with the field
//! manager [`FIELD_MANAGER`]. One reconcile reads the stores, computes the desired objects (`plan`, `decide`), applies
//! the differences (`cluster::Applier`) and reports status and events. A reconcile sends no request when nothing
//! changed. A kind that the cluster does not serve is watched as soon as its CustomResourceDefinition is established;
//! only the services that need it wait for it.
//!
//! Modules use only modules of lower layers. From the top:
//!
//! - start and stop: `controller`; the loop: `control_loop`; dispatch: `reconcilers`
//! - watch events to work: `changes`
//! - reconcilers: `service_reconciler`, `class_status`, `class_discovery`, `base_set`, `resource_flavors`,
//!   `invalid_object_events`
//! - what they share: `context`, on top of the state derived from watch events (`cluster_state`: `service_index`,
//!   `inventory`, `claims`, `crash_tracker`, `selection_snapshot`, `decision_cache`, `retained_objects`, `internal_errors`)
//! - statuses, without I/O: `ome_status`, `fusioninfer_status`, on top of `gang_status`, `failures`, `surge_replicas`,
//!   `replacement`, `rollout`, `readiness`, `gang_creation`, `shared_model_name`
//! - beside the loop: `preview`, which predicts what reconciles would change
//! - vocabulary: `work_item`, `kinds`, `condition_reason`, `relevant_fields`, `owning_service`, `status_inputs`,
//!   `service_conditions`
//! - beside them: `admission` and its webhook; permissions: `rbac`, `admission_policies`, `user_roles`
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, reason = "numbers of users enter most computations"))]

mod admission;
mod admission_policies;
mod base_set;
mod changes;
mod claims;
mod class_discovery;
mod class_status;
mod cluster_state;
mod condition_reason;
mod context;
mod control_loop;
mod controller;
mod crash_tracker;
mod decision_cache;
mod decision_record;
mod event_publisher;
mod failures;
mod full_class;
mod fusioninfer_status;
mod gang_creation;
mod gang_status;
mod in_flight;
mod internal_errors;
mod invalid_object;
mod invalid_object_events;
mod inventory;
pub mod kinds;
mod managed_class;
mod metrics;
mod ome_status;
mod options;
mod own_image;
mod owning_service;
mod pod_group_schema;
mod preview;
mod rbac;
mod readiness;
mod reconcilers;
mod relevant_fields;
mod replacement;
mod resource_flavors;
mod retained_objects;
mod revisions;
mod rollout;
mod rollout_strategy;
mod route_status;
mod scaled_to_zero;
mod selection;
mod selection_snapshot;
mod service_conditions;
mod service_index;
mod service_reconciler;
mod shared_model_name;
mod status_inputs;
mod status_report;
mod surge_replicas;
mod user_roles;
mod work_item;
mod workloads;

pub use admission::{
    AdmissionContext, ObjectLister, ValidationRequest, ValidationResult, WebhookOptions, WebhookTarget,
    validate_admission, validate_picker_config,
};
pub use admission_policies::{SERVICE_ACCOUNT_NAME, admission_policies};
pub use condition_reason::{ConditionReason, WorkloadReason};
pub use controller::run;
pub use inventory::parse_known_classes;
pub use metrics::Metrics;
pub use options::Options;
pub use own_image::own_image;
pub use preview::{ClusterListing, ServicePreview, WorkloadRestart, preview_services};
pub use rbac::{
    cluster_reader_rules, cluster_role_rules, namespace_role_rules, own_namespace_rules, watched_namespace_rules,
};
pub use readiness::{WorkloadProblem, crashed_container, error_line, pod_problem, pod_problem_among};
pub use revisions::{restore_revision, revision_content, revision_number};
pub use rollout::{is_rollout_paused, rollout_pause_annotation};
pub use user_roles::user_roles;

/// Default name of the operator's Lease.
pub const LEASE_NAME: &str = "ostler-operator";

/// Field manager of every write of the operator.
pub const FIELD_MANAGER: &str = "ostler-operator";

/// Namespace that the operator runs in by default (seed 000).
pub const DEFAULT_NAMESPACE: &str = "ome-system";
