//! What the stores hold about the workloads of one service, gathered for the pure status functions.

use std::sync::Arc;

use cluster::object::{controller_uid, meta};
use cluster::{Key, Kind, Stores};
use serde_json::Value;

use crate::kinds::{DEPLOYMENT, LEADER_WORKER_SET, POD};

/// Names its LeaderWorkerSet on every Pod of one.
const LEADER_WORKER_SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";

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
}

// === impl Workload ===

impl Workload {
    /// Its Pods as JSON.
    pub fn pods(&self) -> impl Iterator<Item = &Value> {
        self.pods.iter().map(AsRef::as_ref)
    }
}

/// The planned workloads of `service` with what is live of each. Objects of somebody else count as absent.
#[must_use]
pub fn workloads(stores: &Stores, service: &Value, planned: &[Value]) -> Vec<Wanted> {
    let wanted = planned.iter().filter_map(|object| Some((object, workload_kind(object)?)));
    wanted.map(|(object, kind)| Wanted { planned: object.clone(), live: live(stores, service, kind, object) }).collect()
}

fn workload_kind(object: &Value) -> Option<Kind> {
    [DEPLOYMENT, LEADER_WORKER_SET].into_iter().find(|kind| object["kind"] == kind.kind)
}

fn live(stores: &Stores, service: &Value, kind: Kind, planned: &Value) -> Option<Workload> {
    let key = Key::new(meta(service, "namespace"), meta(planned, "name"));
    let object = stores.get(kind, &key)?;
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
