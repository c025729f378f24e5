//! The settings of a LeaderWorkerSet.

use apimachinery::object;
use serde_json::{Value, json};

use super::rolling_update::RollingUpdate;
use crate::workloads::hash;

/// The settings of a LeaderWorkerSet, with defaults.
pub(super) struct LeaderWorkerSetSpec<'a> {
    pub(super) set: &'a Value,
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) replicas: i64,
    pub(super) size: i64,
    pub(super) revision: String,
    pub(super) rolling_update: RollingUpdate,
}

/// Whether `networkConfig.subdomainPolicy` is `UniquePerReplica`: one headless Service per group instead of one for
/// the set.
pub(super) fn has_subdomain_per_replica(set: &Value) -> bool {
    object::text(set, "/spec/networkConfig/subdomainPolicy") == "UniquePerReplica"
}

// === impl LeaderWorkerSetSpec ===

impl<'a> LeaderWorkerSetSpec<'a> {
    pub(super) fn new(set: &'a Value) -> Self {
        let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_i64).unwrap_or(1);
        // Like a change of the Pod templates, a change of the network configuration or the group size replaces the
        // groups.
        let template = json!([set.pointer("/spec/leaderWorkerTemplate"), set.pointer("/spec/networkConfig")]);
        let replicas = number("/spec/replicas");
        Self {
            set,
            name: object::name(set),
            namespace: object::namespace(set),
            replicas,
            size: number("/spec/leaderWorkerTemplate/size"),
            revision: hash::template_hash(&template, 0),
            rolling_update: RollingUpdate::new(set, replicas),
        }
    }
}
