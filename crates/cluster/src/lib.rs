//! Kubernetes API access: caches, work queue, server-side apply, status, events and leader election.
//!
//! Input: a `kube::Client` and the [`Kind`]s to watch. Output: ordered caches ([`Stores`]), [`Change`]s, and few writes:
//! [`Applier`] sends only differences, [`StatusWriter`] only changed statuses, [`EventRecorder`] one event per transition.
//! Whether to write is a pure function of the cached objects; [`Clock`] provides the time.
//! [`LeaderElector`] lets one of several replicas write; [`ControllerRunner`] runs a controller with or without it, and [`Health`]
//! answers its probes. [`new_client`] creates clients whose requests have deadlines. This
//! crate never decides which objects should exist.

#![warn(missing_docs)]

mod apply;
mod cached_object;
mod client;
mod clock;
mod conditions;
mod controller_runner;
mod credential_plugin;
mod declared_fields;
mod error;
mod error_chain;
mod events;
mod guarded;
mod health;
mod integrations;
mod kind;
mod last_applied;
mod leader_election;
mod managed_fields;
mod namespaced_name;
mod object;
mod owner;
mod precondition;
mod predicted_apply;
mod preview;
mod prune;
mod rbac;
mod scale;
mod single_object;
mod status;
mod stores;
mod transform;
mod unowned;
mod watch;
mod work_queue;

pub use apply::{Applier, ApplyOutcome, ApplyResult, Convergence, DesiredObject};
pub use cached_object::{CachePolicy, CachedFields, Representation};
pub use client::{client_of_service, new_client};
pub use clock::{Clock, SystemClock, rfc3339_seconds};
pub use conditions::{
    Condition, ConditionStatus, EventPolicy, Transition, condition_transitions, find_condition, find_current_condition,
    render_conditions,
};
pub use controller_runner::{ControllerRunner, LeaderElection};
pub use credential_plugin::{CREDENTIAL_PLUGIN_TIMEOUT, CredentialPluginError, credential_plugin};
pub use error::Error;
pub use error_chain::error_chain;
pub use events::{EventRecorder, transition_event_name};
pub use guarded::{GuardedWriter, ObjectVersion};
pub use health::{Health, Part};
pub use integrations::{CUSTOM_RESOURCE_DEFINITION, ListState, is_served, list_state};
pub use kind::Kind;
pub use leader_election::{LeaderElectionTimings, LeaderElector};
pub use managed_fields::{is_pod_template_applied, is_spec_applied};
pub use namespaced_name::NamespacedName;
pub use object::{controller_of, controller_uid, generation, is_terminating, kind_and_name, metadata_field};
pub use owner::{IDENTITY_ANNOTATION, ObjectOwner, copied_object, is_managed_by};
pub use predicted_apply::predict_apply_by_user;
pub use preview::{ObjectPreview, PreviewOutcome};
pub use rbac::{PolicyRules, events_rule, kind_rule, leader_election_rules};
pub use scale::{Scale, scale};
pub use single_object::{apply_object, create_object, list_objects, read_object};
pub use status::StatusWriter;
pub use stores::{Change, Changes, Stores};
pub use transform::has_environment_of;
pub use watch::{UnsyncedWatch, Watches};
pub use work_queue::WorkQueue;
