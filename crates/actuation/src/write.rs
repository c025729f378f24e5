//! The bodies of writes: created Pods and merge patches.

use std::collections::{BTreeMap, BTreeSet};

use api::dual_pods as names;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::action::{PatchPurpose, Write, status_annotation};
use crate::names::{label_value, provider_name};
use crate::nominal::NominalProvider;
use crate::pod_ref::PodRef;
use crate::provider::{Binding, Provider};
use crate::requester::Requester;

/// Returns the Pod that is created for a requester, already bound to it. It has no pool labels before its engine is awake.
#[must_use]
pub fn provider_pod(requester: &PodRef, nominal: &NominalProvider) -> Value {
    let mut labels = nominal.labels.clone();
    labels.insert(names::DUAL.to_owned(), label_value(&requester.name));
    labels.insert(names::SLEEPING.to_owned(), "false".to_owned());
    let mut annotations = nominal.annotations.clone();
    annotations.extend([
        (names::REQUESTER.to_owned(), binding(requester).to_string()),
        (names::NOMINAL.to_owned(), nominal.identity.clone()),
        (names::NODE_NAME.to_owned(), nominal.node.clone()),
        (names::ACCELERATORS.to_owned(), list(&nominal.accelerators)),
        (names::SERVER_PORT.to_owned(), nominal.port.to_string()),
        (names::POOL_LABELS.to_owned(), json!(nominal.pool_labels).to_string()),
    ]);
    let mut metadata = json!({
        "name": provider_name(&requester.name, &requester.uid),
        "namespace": nominal.namespace,
        "labels": labels,
        "annotations": annotations,
        "finalizers": [names::PROVIDER_FINALIZER],
    });
    if let Some(owner) = &nominal.owner {
        metadata["ownerReferences"] = json!([owner]);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": nominal.spec})
}

/// Returns the patch that records the accelerators of a requester and adds its finalizer.
pub(crate) fn claim(requester: &Requester, accelerators: &BTreeSet<String>) -> Write {
    let mut annotations = accelerator_annotations(requester, accelerators);
    annotations[names::STATUS] = json!(status_annotation(&[]));
    let finalizers = requester.pod.with_finalizer(names::REQUESTER_FINALIZER);
    let fields = json!({"annotations": annotations, "finalizers": finalizers});
    patch(&requester.pod, PatchPurpose::Claim, fields)
}

/// Returns the patch that records the accelerators of a requester without a claim to them.
pub(crate) fn record_accelerators(requester: &Requester, accelerators: &BTreeSet<String>) -> Write {
    let annotations = accelerator_annotations(requester, accelerators);
    patch(&requester.pod, PatchPurpose::Record, json!({"annotations": annotations}))
}

fn accelerator_annotations(requester: &Requester, accelerators: &BTreeSet<String>) -> Value {
    json!({
        names::ACCELERATORS: list(accelerators),
        names::ACCELERATORS_CONTAINER: requester.container.id,
    })
}

/// Returns the patch that names the bound provider in label `dual` of a requester.
pub(crate) fn link(requester: &Requester, provider: &Provider) -> Write {
    let labels = json!({names::DUAL: label_value(&provider.pod.name)});
    patch(&requester.pod, PatchPurpose::Link, json!({"labels": labels}))
}

/// Returns the patch that removes the finalizer of a requester.
pub(crate) fn finish(requester: &Requester) -> Write {
    let finalizers = requester.pod.without_finalizer(names::REQUESTER_FINALIZER);
    let fields = json!({"finalizers": finalizers, "labels": {names::DUAL: null}});
    patch(&requester.pod, PatchPurpose::Finish, fields)
}

/// Returns the patch that binds a sleeper: annotation and finalizer in one write. The labels of the nominal provider, which
/// identities do not cover, replace those of the former requester, and so does the owner.
pub(crate) fn bind(requester: &Requester, nominal: &NominalProvider, provider: &Provider) -> Write {
    let mut labels: Map<String, Value> =
        nominal.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let is_obsolete = |key: &&String| !nominal.labels.contains_key(*key) && key.as_str() != names::SLEEPING;
    let obsolete = provider.label_keys.iter().chain(provider.pool_labels.keys()).filter(is_obsolete);
    labels.extend(obsolete.map(|key| (key.clone(), Value::Null)));
    labels.insert(names::DUAL.to_owned(), json!(label_value(&requester.pod.name)));
    let annotations = json!({
        names::REQUESTER: binding(&requester.pod).to_string(),
        names::POOL_LABELS: json!(nominal.pool_labels).to_string(),
    });
    let finalizers = provider.pod.with_finalizer(names::PROVIDER_FINALIZER);
    let mut fields = json!({"annotations": annotations, "labels": labels, "finalizers": finalizers});
    if nominal.owner.iter().ne(&provider.owners) {
        fields["ownerReferences"] = json!(nominal.owner.iter().collect::<Vec<_>>());
    }
    patch(&provider.pod, PatchPurpose::Bind, fields)
}

/// Returns the patch that restores the finalizer of a bound provider.
pub(crate) fn restore(provider: &Provider) -> Write {
    let finalizers = provider.pod.with_finalizer(names::PROVIDER_FINALIZER);
    patch(&provider.pod, PatchPurpose::Restore, json!({"finalizers": finalizers}))
}

/// Returns the patch that sets the pool labels of a provider. `completion` is recorded if none is.
pub(crate) fn publish(provider: &Provider, completion: Option<&str>, now: Timestamp) -> Write {
    let mut labels: BTreeMap<&str, &str> =
        provider.pool_labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    labels.insert(names::SLEEPING, "false");
    let mut annotations = json!({names::LAST_AWAKE: now.to_string()});
    if let (None, Some(fingerprint)) = (&provider.fingerprint, completion) {
        annotations[names::FINGERPRINT] = json!(fingerprint);
    }
    let fields = json!({"labels": labels, "annotations": annotations});
    patch(&provider.pod, PatchPurpose::Publish, fields)
}

/// Returns the patch that removes the pool labels of a provider.
pub(crate) fn withdraw(provider: &Provider) -> Write {
    patch(&provider.pod, PatchPurpose::Withdraw, json!({"labels": without_pool_labels(provider)}))
}

fn without_pool_labels(provider: &Provider) -> Value {
    provider.pool_labels.keys().map(|key| (key.clone(), Value::Null)).collect()
}

/// Returns the patch that unbinds a provider: annotation and finalizer in one write.
pub(crate) fn unbind(provider: &Provider, is_asleep: bool, now: Timestamp) -> Write {
    let mut annotations = json!({names::REQUESTER: null});
    let mut labels = without_pool_labels(provider);
    labels[names::DUAL] = Value::Null;
    if is_asleep {
        labels[names::SLEEPING] = json!("true");
        annotations[names::LAST_AWAKE] = json!(now.to_string());
    }
    let finalizers = provider.pod.without_finalizer(names::PROVIDER_FINALIZER);
    let fields = json!({"annotations": annotations, "labels": labels, "finalizers": finalizers});
    patch(&provider.pod, PatchPurpose::Unbind, fields)
}

/// Returns a patch of metadata.
fn patch(pod: &PodRef, purpose: PatchPurpose, fields: Value) -> Write {
    Write::Patch { pod: pod.clone(), purpose, patch: json!({"metadata": fields}) }
}

fn binding(requester: &PodRef) -> Binding {
    Binding { uid: requester.uid.clone(), name: requester.name.clone() }
}

fn list(accelerators: &BTreeSet<String>) -> String {
    accelerators.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nominal(owner: Option<Value>) -> NominalProvider {
        NominalProvider {
            namespace: "n".to_owned(),
            node: "node-1".to_owned(),
            spec: json!({}),
            instance: None,
            labels: BTreeMap::new(),
            pool_labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            owner,
            accelerators: BTreeSet::new(),
            identity: "i".to_owned(),
            port: 8000,
        }
    }

    fn service(uid: &str) -> Value {
        json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "name": uid, "uid": uid})
    }

    /// A sleeper that serves the requester of another service is deleted with that one.
    #[test]
    fn provider_has_the_owner_of_its_requester() {
        let requester = Requester::from_pod(&json!({"metadata": {"name": "r", "namespace": "n", "uid": "r"}}));
        let mut pod = provider_pod(&requester.pod, &nominal(Some(service("a"))));
        assert_eq!(pod["metadata"]["ownerReferences"], json!([service("a")]));
        assert!(provider_pod(&requester.pod, &nominal(None))["metadata"].get("ownerReferences").is_none());
        pod["metadata"]["uid"] = json!("p");
        let provider = Provider::from_pod(&pod);
        let owners = |owner: Option<Value>| match bind(&requester, &nominal(owner), &provider) {
            Write::Patch { patch, .. } => patch["metadata"].get("ownerReferences").cloned(),
            write => panic!("{write:?}"),
        };
        assert_eq!(owners(Some(service("a"))), None, "the owner is the same");
        assert_eq!(owners(Some(service("b"))), Some(json!([service("b")])));
        assert_eq!(owners(None), Some(json!([])));
    }
}
