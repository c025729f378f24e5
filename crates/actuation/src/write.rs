//! The bodies of writes: created Pods and merge patches.

use std::collections::{BTreeMap, BTreeSet};

use api::dual_pods as names;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::action::{PatchPurpose, Write, status_annotation};
use crate::instance::{Instance, InstanceRecord, InstanceRecords};
use crate::launcher::Launcher;
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
    if let Some(instance) = &nominal.instance {
        let records = InstanceRecords::from([(nominal.identity.clone(), new_record(nominal))]);
        annotations.extend([
            (names::NOMINAL.to_owned(), instance.launcher.clone()),
            (names::MAX_INSTANCES.to_owned(), instance.max_instances.to_string()),
            (names::INSTANCES.to_owned(), json!(records).to_string()),
            (names::INSTANCE_ID.to_owned(), nominal.identity.clone()),
        ]);
    }
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

/// Returns the record of an engine that was not created yet.
fn new_record(nominal: &NominalProvider) -> InstanceRecord {
    InstanceRecord { accelerators: nominal.accelerators.clone(), port: nominal.port, ..InstanceRecord::default() }
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
    patch(&provider.pod, PatchPurpose::Bind, binding_fields(requester, nominal, provider, json!({})))
}

/// Returns the patch that binds a launcher with the engine of a nominal provider. An engine without a record is created later.
pub(crate) fn bind_instance(requester: &Requester, nominal: &NominalProvider, launcher: &Launcher) -> Write {
    let mut annotations = json!({
        names::INSTANCE_ID: nominal.identity,
        names::ACCELERATORS: list(&nominal.accelerators),
        names::SERVER_PORT: nominal.port.to_string(),
    });
    let is_new = !launcher.records.contains_key(&nominal.identity);
    if is_new {
        let mut records = launcher.records.as_ref().clone();
        records.insert(nominal.identity.clone(), new_record(nominal));
        annotations[names::INSTANCES] = json!(json!(records).to_string());
    }
    let purpose = if is_new { PatchPurpose::Launch } else { PatchPurpose::Bind };
    let fields = binding_fields(requester, nominal, &launcher.provider, annotations);
    patch(&launcher.provider.pod, purpose, fields)
}

/// Returns the metadata of a provider that is bound; `annotations` are those of its mode.
fn binding_fields(
    requester: &Requester,
    nominal: &NominalProvider,
    provider: &Provider,
    mut annotations: Value,
) -> Value {
    let mut labels: Map<String, Value> =
        nominal.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let is_obsolete = |key: &&String| !nominal.labels.contains_key(*key) && key.as_str() != names::SLEEPING;
    let obsolete = provider.label_keys.iter().chain(provider.pool_labels.keys()).filter(is_obsolete);
    labels.extend(obsolete.map(|key| (key.clone(), Value::Null)));
    labels.insert(names::DUAL.to_owned(), json!(label_value(&requester.pod.name)));
    annotations[names::REQUESTER] = json!(binding(&requester.pod).to_string());
    annotations[names::POOL_LABELS] = json!(json!(nominal.pool_labels).to_string());
    let finalizers = provider.pod.with_finalizer(names::PROVIDER_FINALIZER);
    let mut fields = json!({"annotations": annotations, "labels": labels, "finalizers": finalizers});
    if nominal.owner.iter().ne(&provider.owners) {
        fields["ownerReferences"] = json!(nominal.owner.iter().collect::<Vec<_>>());
    }
    fields
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
    let fingerprint = provider.fingerprint.as_deref().or(completion);
    match &provider.instance {
        Some(instance) => set_record(&mut annotations, instance, Some(record(provider, fingerprint, Some(now)))),
        None if provider.fingerprint.is_none() => {
            fingerprint.into_iter().for_each(|completion| annotations[names::FINGERPRINT] = json!(completion));
        }
        None => {}
    }
    let fields = json!({"labels": labels, "annotations": annotations});
    patch(&provider.pod, PatchPurpose::Publish, fields)
}

/// Returns the record of the engine of a provider.
fn record(provider: &Provider, fingerprint: Option<&str>, last_awake: Option<Timestamp>) -> InstanceRecord {
    InstanceRecord {
        accelerators: provider.accelerators.clone(),
        port: provider.port,
        last_awake,
        fingerprint: fingerprint.map(str::to_owned),
    }
}

/// Adds the annotation with the records of a launcher after a change of the one of `instance`.
fn set_record(annotations: &mut Value, instance: &Instance, record: Option<InstanceRecord>) {
    annotations[names::INSTANCES] = json!(json!(instance.with_record(record)).to_string());
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
    if let Some(instance) = &provider.instance {
        let last_awake = if is_asleep { Some(now) } else { provider.last_awake };
        set_record(&mut annotations, instance, Some(record(provider, provider.fingerprint.as_deref(), last_awake)));
    }
    finish_binding(provider, PatchPurpose::Unbind, annotations, labels)
}

/// Returns the patch that removes the record of an engine that its launcher does not have, and its binding if it has one.
pub(crate) fn remove_instance(provider: &Provider, instance: &Instance) -> Write {
    let mut annotations = json!({});
    set_record(&mut annotations, instance, None);
    if provider.binding.is_none() {
        return patch(&provider.pod, PatchPurpose::RemoveInstance, json!({"annotations": annotations}));
    }
    annotations[names::REQUESTER] = Value::Null;
    let mut labels = without_pool_labels(provider);
    labels[names::DUAL] = Value::Null;
    // A launcher without a bound engine is labeled as one whose engines sleep.
    labels[names::SLEEPING] = json!("true");
    finish_binding(provider, PatchPurpose::RemoveInstance, annotations, labels)
}

/// Returns the patch that ends a binding.
fn finish_binding(provider: &Provider, purpose: PatchPurpose, mut annotations: Value, labels: Value) -> Write {
    if provider.instance.is_some() {
        [names::INSTANCE_ID, names::ACCELERATORS, names::SERVER_PORT]
            .into_iter()
            .for_each(|key| annotations[key] = Value::Null);
    }
    let finalizers = provider.pod.without_finalizer(names::PROVIDER_FINALIZER);
    let fields = json!({"annotations": annotations, "labels": labels, "finalizers": finalizers});
    patch(&provider.pod, purpose, fields)
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
