//! Deployment: a ReplicaSet for the current template, and rolling updates from old ReplicaSets.
//!
//! [`reconcile`] decides; the rules are those of `pkg/controller/deployment`: [`rolling_update`](super::rolling_update) is its `rolling.go`, [`proportional`] is the
//! proportional scaling, [`replica_sets`] is the rest of its `sync.go` and [`progress`] its `progress.go`.
//! `spec.rollbackTo` is not implemented, because `apps/v1` does not have it.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, reason = "numbers of users enter every computation"))]

mod progress;
mod proportional;
mod reconcile;
mod replica_sets;

pub(crate) use reconcile::plan;

/// Storage name of Deployments.
pub(crate) const RESOURCE: &str = "deployments.apps";
