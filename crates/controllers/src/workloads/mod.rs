//! Workload controllers: Deployment, ReplicaSet, StatefulSet, Job, LeaderWorkerSet, EndpointSlices of Services,
//! status of PodDisruptionBudgets, bounds of HorizontalPodAutoscalers, and binding and provisioning of
//! PersistentVolumeClaims.
//!
//! Each controller is a pure function from existing objects to [`action::Action`]s; [`controller`] is the work queue
//! that calls them, and [`enqueue`] maps a change to the affected objects. Reads and writes are direct calls into the
//! store, so a plan always includes the writes of earlier plans. Expectations, as in kube-controller-manager, are not
//! needed.

pub(crate) mod action;
mod controller;
mod deployment;
mod disruption;
pub(crate) mod endpoints;
mod enqueue;
mod hash;
mod horizontal_pod_autoscaler;
mod job;
mod kind;
mod leader_worker_set;
pub(crate) mod ownership;
mod pod_template;
mod replica_set;
mod rolling_update;
mod stateful_set;
pub(crate) mod volume_claim;

pub use controller::run_workload_controllers;
pub use volume_claim::standard_class as standard_storage_class;
