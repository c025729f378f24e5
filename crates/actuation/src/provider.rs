//! A provider Pod as the controller observes it.

use std::collections::{BTreeMap, BTreeSet};

use api::dual_pods;
use apimachinery::{object, pod};
use jiff::Timestamp;
use serde_json::Value;

use crate::container::Container;
use crate::instance::{EngineId, Instance};
use crate::pod_ref::PodRef;
use crate::requester::split_list;

/// A provider Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The Pod.
    pub pod: PodRef,
    /// Owner references.
    pub owners: Vec<Value>,
    /// Whether it is being deleted.
    pub is_terminating: bool,
    /// When it was created.
    pub created: Timestamp,
    /// Requester to which it is bound.
    pub binding: Option<Binding>,
    /// Identity of its engine.
    pub identity: String,
    /// UUIDs of the accelerators of its engine.
    pub accelerators: BTreeSet<String>,
    /// IP address.
    pub ip: Option<String>,
    /// Port of the engine.
    pub port: u16,
    /// Container of the engine.
    pub container: Container,
    /// Whether the Pod is Ready.
    pub is_ready: bool,
    /// Whether the scheduler has assigned it to a node.
    pub is_scheduled: bool,
    /// Message of the scheduler, if the Pod cannot be scheduled.
    pub unschedulable: Option<String>,
    /// When the engine was last awake; `None` if it was never ready.
    pub last_awake: Option<Timestamp>,
    /// Keys of the labels that the controller wrote.
    pub label_keys: BTreeSet<String>,
    /// Labels by which pools select it while it is awake.
    pub pool_labels: BTreeMap<String, String>,
    /// Which of the pool labels it has.
    pub pool_label_state: PoolLabels,
    /// Label `sleeping`.
    pub is_labeled_sleeping: Option<bool>,
    /// Completion of the engine when it was first ready.
    pub fingerprint: Option<String>,
    /// The engine in its launcher; `None` in direct mode.
    pub instance: Option<Instance>,
}

/// The requester to which a provider is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// UID of the requester.
    pub uid: String,
    /// Name of the requester.
    pub name: String,
}

/// Which pool labels a provider has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolLabels {
    /// All: pools select it.
    Present,
    /// Some, after an edit by another client.
    Incomplete,
    /// None.
    Absent,
}

// === impl Provider ===

impl Provider {
    /// Reads a Pod for which [`dual_pods::is_provider`] holds.
    #[must_use]
    pub fn from_pod(pod: &Value) -> Provider {
        let annotation = |key: &str| pod["metadata"]["annotations"].get(key)?.as_str();
        let pool_labels = annotation(dual_pods::POOL_LABELS).and_then(|text| serde_json::from_str(text).ok());
        let pool_labels: BTreeMap<String, String> = pool_labels.unwrap_or_default();
        let ip = object::text(pod, "/status/podIP");
        Provider {
            pod: PodRef::new(pod),
            owners: object::items(pod.pointer("/metadata/ownerReferences")).cloned().collect(),
            is_terminating: object::is_deleting(pod),
            created: object::text(pod, "/metadata/creationTimestamp").parse().unwrap_or_default(),
            binding: annotation(dual_pods::REQUESTER).and_then(Binding::parse),
            identity: annotation(dual_pods::NOMINAL).unwrap_or_default().to_owned(),
            accelerators: annotation(dual_pods::ACCELERATORS).map(split_list).unwrap_or_default(),
            ip: (!ip.is_empty()).then(|| ip.to_owned()),
            port: annotation(dual_pods::SERVER_PORT).and_then(|port| port.parse().ok()).unwrap_or_default(),
            container: Container::of_pod(pod),
            is_ready: pod::is_ready(pod),
            is_scheduled: !object::text(pod, "/spec/nodeName").is_empty(),
            unschedulable: unschedulable_message(pod),
            last_awake: annotation(dual_pods::LAST_AWAKE).and_then(|time| time.parse().ok()),
            label_keys: own_label_keys(pod),
            pool_label_state: PoolLabels::of_pod(pod, &pool_labels),
            pool_labels,
            is_labeled_sleeping: object::label(pod, dual_pods::SLEEPING).map(|value| value == "true"),
            fingerprint: annotation(dual_pods::FINGERPRINT).map(str::to_owned),
            instance: None,
        }
    }

    /// Returns the id of its engine.
    #[must_use]
    pub fn engine_id(&self) -> EngineId {
        EngineId { pod: self.pod.uid.clone(), instance: self.instance.as_ref().map(|instance| instance.id.clone()) }
    }

    /// Returns whether pools may select it.
    #[must_use]
    pub fn has_pool_labels(&self) -> bool {
        !self.pool_labels.is_empty() && self.pool_label_state != PoolLabels::Absent
    }

    /// Returns whether the provider is bound to the requester with this UID.
    #[must_use]
    pub fn is_bound_to(&self, uid: &str) -> bool {
        self.binding.as_ref().is_some_and(|binding| binding.uid == uid)
    }

    /// Returns whether the finalizer of the controller is present.
    #[must_use]
    pub fn has_finalizer(&self) -> bool {
        self.pod.has_finalizer(dual_pods::PROVIDER_FINALIZER)
    }

    /// Returns the time by which the least recently used engine is selected: when it was last awake, else its creation.
    #[must_use]
    pub fn last_used(&self) -> Timestamp {
        self.last_awake.unwrap_or(self.created)
    }
}

/// Returns the keys of the labels in the managed fields of a Pod; the caches contain only those of the controller. Other clients may
/// have added labels of their own.
fn own_label_keys(pod: &Value) -> BTreeSet<String> {
    let entries = pod["metadata"]["managedFields"].as_array().into_iter().flatten();
    let labels = entries.filter_map(|entry| entry["fieldsV1"]["f:metadata"]["f:labels"].as_object());
    labels.flat_map(|labels| labels.keys()).filter_map(|key| key.strip_prefix("f:")).map(str::to_owned).collect()
}

// === impl Binding ===

impl Binding {
    /// Parses `UID NAME`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Binding> {
        let (uid, name) = text.split_once(' ')?;
        let is_valid = !uid.is_empty() && !name.is_empty() && !name.contains(' ');
        is_valid.then(|| Binding { uid: uid.to_owned(), name: name.to_owned() })
    }
}

impl std::fmt::Display for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.uid, self.name)
    }
}

// === impl PoolLabels ===

impl PoolLabels {
    fn of_pod(pod: &Value, labels: &BTreeMap<String, String>) -> PoolLabels {
        let present = labels.iter().filter(|(key, value)| object::label(pod, key) == Some(value.as_str())).count();
        match present {
            _ if present == labels.len() => PoolLabels::Present,
            0 => PoolLabels::Absent,
            _ => PoolLabels::Incomplete,
        }
    }
}

fn unschedulable_message(pod: &Value) -> Option<String> {
    let condition = apimachinery::condition::find(pod.get("status")?, "PodScheduled")?;
    let is_rejected = condition["status"] == "False" && condition["reason"] == "Unschedulable";
    is_rejected.then(|| object::text(condition, "/message").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::valid("u-1 name", Some(("u-1", "name")))]
    #[case::no_name("u-1", None)]
    #[case::three_parts("u-1 name more", None)]
    #[case::empty("", None)]
    fn bindings_are_parsed(#[case] text: &str, #[case] expected: Option<(&str, &str)>) {
        let binding = Binding::parse(text).map(|binding| (binding.uid, binding.name));
        assert_eq!(binding, expected.map(|(uid, name)| (uid.to_owned(), name.to_owned())));
    }
}
