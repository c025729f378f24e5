//! The rules about other Pods, for one Pod that is to be placed.

use std::sync::Arc;

use serde_json::Value;

use super::affinity::Affinity;
use super::candidate::Candidate;
use super::reason::Unfit;
use super::spread::Spread;

/// Who is where, as far as it matters to the Pod; kept up while others are thought away.
#[derive(Debug, Clone)]
pub(super) struct Neighbours<'a> {
    pod: &'a Value,
    namespaces: &'a [Arc<Value>],
    affinity: Affinity,
    spread: Spread,
}

impl<'a> Neighbours<'a> {
    pub(super) fn of(pod: &'a Value, candidates: &[Candidate], namespaces: &'a [Arc<Value>]) -> Self {
        let affinity = Affinity::of(pod, candidates, namespaces);
        Self { pod, namespaces, affinity, spread: Spread::of(pod, candidates) }
    }

    /// What is against this node; kube-scheduler looks at the spread first.
    pub(super) fn refuse(&self, node: &Value) -> Option<Unfit> {
        self.spread.refuse(self.pod, node).or_else(|| self.affinity.refuse(node))
    }

    pub(super) fn came(&mut self, tenant: &Value, node: &Value) {
        self.count(tenant, node, 1);
    }

    pub(super) fn left(&mut self, tenant: &Value, node: &Value) {
        self.count(tenant, node, -1);
    }

    fn count(&mut self, tenant: &Value, node: &Value, by: i64) {
        self.affinity.count(self.pod, tenant, node, by, self.namespaces);
        self.spread.count(self.pod, tenant, node, by);
    }
}
