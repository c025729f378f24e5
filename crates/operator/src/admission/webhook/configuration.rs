//! The ValidatingWebhookConfiguration: what the cluster asks us about, and how it trusts us.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{PATH, Target};

/// Name of the configuration, and of the Secret.
pub(crate) const NAME: &str = "ostler-admission";
/// Name of its one webhook, which refusals cite.
const WEBHOOK: &str = "admission.ostler.io";
/// A review takes milliseconds; nobody waits longer than this for a process that hangs.
const TIMEOUT_SECONDS: u32 = 5;

/// The configuration for a webhook at `target` whose certificates are `trusted` (PEM, one after the other).
#[must_use]
pub fn configuration(target: &Target, trusted: &str) -> Value {
    let mut client = match target {
        Target::Url(address) => json!({"url": format!("https://{address}{PATH}")}),
        Target::Service { namespace, name } => {
            json!({"service": {"namespace": namespace, "name": name, "path": PATH, "port": 443}})
        }
    };
    client["caBundle"] = json!(STANDARD.encode(trusted));
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "ostler"}},
        "webhooks": [{
            "name": WEBHOOK,
            "admissionReviewVersions": ["v1"],
            "clientConfig": client,
            "rules": rules(),
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_SECONDS,
        }],
    })
}

/// One rule per group, for every kind of ours; status and scale are left alone.
fn rules() -> Vec<Value> {
    let mut groups: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for crd in api::crds() {
        let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let group = (text("/spec/group"), text("/spec/versions/0/name"));
        groups.entry(group).or_default().insert(text("/spec/names/plural"));
    }
    let rule = |((group, version), resources): ((String, String), BTreeSet<String>)| {
        json!({"apiGroups": [group], "apiVersions": [version], "resources": resources,
            "operations": ["CREATE", "UPDATE"], "scope": "*"})
    };
    groups.into_iter().map(rule).collect()
}
