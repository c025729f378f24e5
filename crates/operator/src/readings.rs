//! What the stores hold about the workloads of one service, gathered for the pure status functions.

use std::sync::Arc;

use cluster::object::{controller_uid, meta};
use cluster::{Key, Kind, Stores};
use jiff::Timestamp;
use serde_json::Value;

use crate::crashes::Crashes;
use crate::kinds::{DEPLOYMENT, LEADER_WORKER_SET, LEADER_WORKER_SET_NAME, POD, POD_LABELS};

/// A live workload and its Pods, both in name order.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Deployment or LeaderWorkerSet.
    pub object: Arc<Value>,
    /// Its Pods.
    pub pods: Vec<Arc<Value>>,
}

/// A workload that should exist, and what is there of it.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The object as planned.
    pub planned: Value,
    /// What the cluster holds; `None` before it is made.
    pub live: Option<Workload>,
    /// Pods of it that crashed lately and were replaced.
    pub crashes: usize,
}

/// Where workloads are read.
#[derive(Clone, Copy)]
pub(crate) struct Readings<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) crashes: &'a Crashes,
    pub(crate) now: Timestamp,
}

// === impl Wanted ===

impl Wanted {
    /// A planned object and what is there of it.
    #[must_use]
    pub fn of(planned: Value, live: Option<Value>, pods: Vec<Value>) -> Wanted {
        let pods = pods.into_iter().map(Arc::new).collect();
        let live = live.map(|object| Workload { object: Arc::new(object), pods });
        Wanted { planned, live, crashes: 0 }
    }
}

// === impl Workload ===

impl Workload {
    /// Its Pods as JSON.
    pub fn pods(&self) -> impl Iterator<Item = &Value> {
        self.pods.iter().map(AsRef::as_ref)
    }
}

// === impl Readings ===

impl Readings<'_> {
    /// The planned workloads of `service` with what is live of each. Objects of somebody else count as absent.
    pub(crate) fn workloads(&self, service: &Value, planned: &[Value]) -> Vec<Wanted> {
        let wanted = planned.iter().filter_map(|object| Some((object, workload_kind(object)?)));
        wanted.map(|(object, kind)| self.wanted(service, object, kind)).collect()
    }

    /// What `service` has of workloads, whatever its plan is now.
    pub(crate) fn running(&self, service: &Value) -> Vec<Wanted> {
        let of_kind = |kind: Kind| {
            let owned = self.stores.owned(kind, meta(service, "uid"));
            owned.into_iter().map(move |object| self.wanted(service, &object, kind))
        };
        [DEPLOYMENT, LEADER_WORKER_SET].into_iter().flat_map(of_kind).collect()
    }

    fn wanted(&self, service: &Value, planned: &Value, kind: Kind) -> Wanted {
        let key = Key::new(meta(service, "namespace"), meta(planned, "name"));
        let crashes = if kind == LEADER_WORKER_SET { self.crashes.of(&key, self.now) } else { 0 };
        Wanted { planned: planned.clone(), live: live(self.stores, service, kind, &key), crashes }
    }
}

fn workload_kind(object: &Value) -> Option<Kind> {
    [DEPLOYMENT, LEADER_WORKER_SET].into_iter().find(|kind| object["kind"] == kind.kind)
}

fn live(stores: &Stores, service: &Value, kind: Kind, key: &Key) -> Option<Workload> {
    let object = stores.get(kind, key)?;
    if controller_uid(&object) != Some(meta(service, "uid")) {
        return None;
    }
    let mut pods = near(stores, kind, &object);
    pods.retain(|pod| belongs(pod, kind, &object));
    Some(Workload { object, pods })
}

/// Pods that may belong to a workload: found by one label of it, or all of its namespace where no such label is known.
fn near(stores: &Stores, kind: Kind, workload: &Value) -> Vec<Arc<Value>> {
    let namespace = meta(workload, "namespace");
    let selector = &workload["spec"]["selector"]["matchLabels"];
    let label = match kind {
        LEADER_WORKER_SET => Some((LEADER_WORKER_SET_NAME, meta(workload, "name"))),
        _ => POD_LABELS.iter().find_map(|(label, _)| Some((*label, selector[*label].as_str()?))),
    };
    match label {
        Some((label, value)) => stores.labelled(POD, namespace, label, value),
        None => stores.list_in(POD, namespace),
    }
}

fn belongs(pod: &Value, kind: Kind, workload: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    if kind == LEADER_WORKER_SET {
        return labels[LEADER_WORKER_SET_NAME] == workload["metadata"]["name"];
    }
    let selector = workload["spec"]["selector"]["matchLabels"].as_object();
    selector.is_some_and(|selector| {
        !selector.is_empty() && selector.iter().all(|(key, value)| labels[key.as_str()] == *value)
    })
}
