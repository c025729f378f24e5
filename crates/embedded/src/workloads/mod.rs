//! Workload controllers: Deployment, ReplicaSet, StatefulSet, Job, LeaderWorkerSet, the EndpointSlices of Services, the
//! counts of PodDisruptionBudgets, the bounds of HorizontalPodAutoscalers, and the volumes of PersistentVolumeClaims.
//!
//! Each is a pure function from what exists to [`action::Action`]s; [`controller`] is the shell that
//! calls them, and [`notice`] knows which objects a change concerns.
//! Reads and writes are direct calls into the store, so a plan never works with objects older than its own writes and
//! needs no expectations as `kube-controller-manager` does.

pub(crate) mod action;
mod autoscaler;
pub(crate) mod condition;
mod controller;
mod deployment;
pub(crate) mod disruption;
pub(crate) mod endpoints;
mod hash;
mod job;
mod kind;
mod leader_worker_set;
mod notice;
pub(crate) mod ownership;
pub(crate) mod pod;
mod replica_set;
mod rolling;
mod stateful_set;
pub(crate) mod volume_claim;

pub use controller::run;
