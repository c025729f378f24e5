//! Identity of an engine: a hash of everything that matters to the question whether a sleeping engine can serve a requester.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::object;
use ring::digest;
use serde_json::{Value, json};

/// Fields of a Pod's spec that set controllers or admission add, so that they differ between replicas.
const IGNORED_FIELDS: [&str; 4] = ["hostname", "subdomain", "priority", "preemptionPolicy"];
/// Prefix of the variables that LeaderWorkerSet adds.
const IGNORED_ENV_PREFIX: &str = "LWS_";
/// Keys of the tolerations that admission adds to each Pod.
const DEFAULT_TOLERATIONS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// What an identity covers. Labels are not covered: they are set when a provider is bound.
#[derive(Clone, Debug)]
pub(crate) struct IdentityInput<'a> {
    /// Spec of the nominal provider.
    pub(crate) spec: &'a Value,
    /// Annotations that the patch sets.
    pub(crate) annotations: &'a BTreeMap<String, String>,
    /// UUIDs of the accelerators.
    pub(crate) accelerators: &'a BTreeSet<String>,
    /// Name of the node.
    pub(crate) node: &'a str,
    /// Namespace of the Pods.
    pub(crate) namespace: &'a str,
}

/// Returns the identity: the first 40 hexadecimal digits of a SHA-256 hash.
pub(crate) fn identity(input: &IdentityInput) -> String {
    let covered = json!({
        "spec": without_ignored_fields(input.spec),
        "annotations": input.annotations,
        "accelerators": input.accelerators,
        "node": input.node,
        "namespace": input.namespace,
    });
    // Keys of JSON objects are sorted.
    let hash = digest::digest(&digest::SHA256, covered.to_string().as_bytes());
    hash.as_ref().iter().take(20).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a spec without the fields that an identity does not cover.
pub(crate) fn without_ignored_fields(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let fields = object::members(&mut spec);
    IGNORED_FIELDS.iter().for_each(|field| drop(fields.remove(*field)));
    for list in ["containers", "initContainers"] {
        for container in fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            retain(container, "env", |entry| !object::text(entry, "/name").starts_with(IGNORED_ENV_PREFIX));
        }
    }
    retain(&mut spec, "tolerations", |toleration| !is_default_toleration(toleration));
    spec
}

/// Retains some items of a list. An empty list equals an absent one.
fn retain(value: &mut Value, list: &str, keep: impl Fn(&Value) -> bool) {
    let Some(fields) = value.as_object_mut() else { return };
    if let Some(items) = fields.get_mut(list).and_then(Value::as_array_mut) {
        items.retain(keep);
        if items.is_empty() {
            fields.remove(list);
        }
    }
}

fn is_default_toleration(toleration: &Value) -> bool {
    DEFAULT_TOLERATIONS.contains(&object::text(toleration, "/key"))
        && toleration["effect"] == "NoExecute"
        && toleration["operator"] == "Exists"
        && toleration["tolerationSeconds"] == 300
}
