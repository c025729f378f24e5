//! LeaderWorkerSet: groups of Pods, each with one leader and `size - 1` workers, which are created and recreated
//! together.
//!
//! Pods have the metadata that the webhooks of the real controller add: labels, annotations, host names, and the three
//! `LWS_*` variables, which precede the other environment variables of every container. `LWS_LEADER_ADDRESS` is the
//! host name of the leader, `{leader}.{subdomain}.{namespace}`. There is no DNS server, so the node agent replaces it
//! with the address of the leader when a container starts (`node_agent`).
//!
//! Differences from the real controller: the LeaderWorkerSet and the leader Pod own Pods directly, without
//! StatefulSets; a group that is recreated gets the current template, also if an update has not reached it; subgroups
//! and volume claim templates are not supported; the value of `group-key` is a different hash.

mod broken_groups;
mod exclusive;
mod group;
mod labels;
mod pods;
mod reconcile;
mod rolling_update;
mod spec;
mod status;

pub(crate) use broken_groups::BrokenGroups;
pub(crate) use labels::NAME;
pub(crate) use reconcile::plan;

/// Storage name of LeaderWorkerSets.
pub(crate) const RESOURCE: &str = "leaderworkersets.leaderworkerset.x-k8s.io";
