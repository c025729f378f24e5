//! The scheduler, which binds pending Pods to nodes or records why they are unschedulable.
//!
//! A scheduling cycle ([`scheduling_cycle`]) lists the objects, calls the pure function [`assign::schedule_pending`]
//! and writes its decisions. It runs only after changes that can make a Pod schedulable. It schedules Pods whose
//! `schedulerName` is `default-scheduler` or `volcano`. The Pods of a Volcano PodGroup are placed together ([`gang`]),
//! and a Pod that fits on no node may preempt Pods of lower priority ([`preemption`]).
//!
//! Each plugin of kube-scheduler has its own file: [`taints`] (matching: [`crate::toleration`]), [`node_affinity`],
//! [`node_ports`], [`resources`], [`volume_binding`], [`pod_topology_spread`] and [`inter_pod_affinity`]. [`filter`]
//! runs their Filter extension points in the order of kube-scheduler, [`score`] runs the Score extension points, and
//! [`fit_error`] formats the messages.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, reason = "numbers of users enter every computation"))]

mod affinity_term;
mod assign;
mod budget;
mod decision;
mod filter;
mod fit_error;
mod gang;
mod inter_pod;
mod inter_pod_affinity;
mod node_affinity;
mod node_info;
mod node_ports;
mod pod_info;
mod pod_topology_spread;
mod preemption;
mod reason;
mod resources;
mod schedule_one;
mod scheduling_cycle;
mod score;
mod snapshot;
mod taints;
mod volume_binding;

pub use reason::UnschedulableReason;
pub use schedule_one::filter_nodes;
pub use scheduling_cycle::run_scheduler;
pub use snapshot::{SchedulingSnapshot, StorageObjects};

/// Resource name of Volcano's PodGroups.
const POD_GROUPS: &str = "podgroups.scheduling.volcano.sh";

#[cfg(test)]
mod gang_tests;
#[cfg(test)]
mod inter_pod_tests;
#[cfg(test)]
mod preemption_tests;
