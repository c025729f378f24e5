//! What the stores hold about the workloads of one service, gathered for the pure status functions.

use std::sync::Arc;

use cluster::object::{controller_uid, meta};
use cluster::{Key, Kind, Stores};
use jiff::Timestamp;
use serde_json::Value;

use crate::crashes::Crashes;
use crate::kinds::{DEPLOYMENT, LEADER_WORKER_SET, POD};

/// Names its LeaderWorkerSet on every Pod of one.
pub(crate) const LEADER_WORKER_SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";

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
        let read = |(object, kind): (&Value, Kind)| {
            let key = Key::new(meta(service, "namespace"), meta(object, "name"));
            let crashes = if kind == LEADER_WORKER_SET { self.crashes.of(&key, self.now) } else { 0 };
            Wanted { planned: object.clone(), live: live(self.stores, service, kind, &key), crashes }
        };
        wanted.map(read).collect()
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
    let pods = stores.list_in(POD, &key.namespace).into_iter().filter(|pod| belongs(pod, kind, &object)).collect();
    Some(Workload { object, pods })
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
