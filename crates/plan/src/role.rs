//! A set of identical replicas: its Pod templates and the kind of workload that runs them.

use std::collections::BTreeMap;

use api::dual_pods::{PROVIDER_ROLE, REQUESTER_ROLE};
use decide::Setting;
use serde_json::Value;

use crate::labels::{self, Labels};
use crate::replicas::ReplicaRange;

/// A set of identical replicas.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Role {
    /// Name, unique within the service: `engine`, `engine-nvidia-l40s`, or the name of the user's role.
    pub name: String,
    /// Component; equal to `name` unless the component has several replica sets.
    pub component: String,
    pub workload: Workload,
    pub replicas: ReplicaRange,
    /// Number of Pods per replica, at least 1.
    pub nodes: u32,
    /// Pod template (`metadata`, `spec`) as JSON, which preserves unknown fields. The leader's template in multi-node replicas.
    pub template: Value,
    /// Pod template of the workers; `None` in single-node replicas.
    pub worker_template: Option<Value>,
    /// Whether the Pods are members of the service's gang.
    pub in_gang: bool,
    /// Whether to schedule the Pods of a replica on different Nodes.
    pub spread_over_hosts: bool,
    /// Labels that select the Pods of this role; a subset of the template's labels.
    pub selector: BTreeMap<String, String>,
    /// Labels of the workload object.
    pub labels: BTreeMap<String, String>,
    /// Selector of the component's Service; `None` for further replica sets of the component, and for roles without a Service.
    pub service_selector: Option<BTreeMap<String, String>>,
    /// HTTP port of the engine.
    pub port: u16,
    /// Disruption budget; `None` for roles without one.
    pub disruption: Option<Disruption>,
    /// Deployment strategy that the user sets.
    pub strategy: Option<Value>,
    /// Settings of the template with their origins.
    pub settings: Vec<Setting>,
    /// Requesters that run instead of the engines of `template`; `None` unless the service requests dual pods.
    pub requesters: Option<Requesters>,
}

/// The requesters of dual pods, whose controller runs the engines in other Pods.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Requesters {
    /// Key of the label that distinguishes requesters from providers.
    pub label: &'static str,
    /// Pod template of the requesters.
    pub template: Value,
}

/// The kind of workload that runs the replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// One Deployment for all replicas.
    Deployment,
    /// One LeaderWorkerSet for all replicas, with one group per replica.
    LeaderWorkerSet,
    /// One LeaderWorkerSet of `replicas: 1` for each replica.
    LeaderWorkerSetPerReplica,
}

/// Disruption budget of a role: a number or a percentage.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Disruption {
    /// `minAvailable`: Pods that must remain.
    MinAvailable(Value),
    /// `maxUnavailable`: Pods that may be evicted at a time.
    MaxUnavailable(Value),
}

// === impl Role ===

impl Role {
    /// Returns the Pod template of the workload: that of the requesters, or of the engine, which is the leader in multi-node replicas.
    pub(crate) fn workload_template(&self) -> &Value {
        self.requesters.as_ref().map_or(&self.template, |requesters| &requesters.template)
    }

    /// Returns the labels that select the Pods of the workload.
    pub(crate) fn workload_selector(&self) -> Labels {
        let mut selector = self.selector.clone();
        let label = self.requesters.as_ref().map(|requesters| requesters.label.to_owned());
        selector.extend(label.map(|label| (label, REQUESTER_ROLE.to_owned())));
        selector
    }

    /// Restricts `selector` to the Pods that serve requests: the providers of dual pods, and the leaders of other multi-node replicas.
    pub(crate) fn serving_selector(&self, mut selector: Labels) -> Labels {
        let (label, value) = match (&self.requesters, self.workload) {
            (Some(requesters), _) => (requesters.label, PROVIDER_ROLE),
            (None, Workload::LeaderWorkerSet | Workload::LeaderWorkerSetPerReplica) => (labels::WORKER_INDEX, "0"),
            (None, Workload::Deployment) => return selector,
        };
        selector.insert(label.to_owned(), value.to_owned());
        selector
    }
}
