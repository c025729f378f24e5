//! The ValidatingWebhookConfiguration of the admission webhook.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::options::WebhookTarget;

/// Path that the API server sends reviews to.
pub(super) const PATH: &str = "/validate";
/// Name of the configuration and of the Secret.
pub(crate) const CONFIGURATION_NAME: &str = "ostler-admission";
/// Name of the webhook, which API server errors contain.
const WEBHOOK_NAME: &str = "admission.ostler.io";
/// Timeout of a review. A review takes milliseconds; writes must not wait for a process that hangs.
const TIMEOUT_SECONDS: u32 = 5;

/// Returns the configuration for a webhook at `target`; `trusted_certificates` are in PEM.
#[must_use]
pub(crate) fn configuration(target: &WebhookTarget, trusted_certificates: &str) -> Value {
    let mut client_config = match target {
        WebhookTarget::Url(address) => json!({"url": format!("https://{address}{PATH}")}),
        WebhookTarget::Service { namespace, name } => {
            json!({"service": {"namespace": namespace, "name": name, "path": PATH, "port": 443}})
        }
    };
    client_config["caBundle"] = json!(STANDARD.encode(trusted_certificates));
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION_NAME, "labels": {"app.kubernetes.io/managed-by": "ostler"}},
        "webhooks": [{
            "name": WEBHOOK_NAME,
            "admissionReviewVersions": ["v1"],
            "clientConfig": client_config,
            "rules": rules(),
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_SECONDS,
        }],
    })
}

/// Returns one rule per API group that covers all ostler kinds without their subresources.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhook_configuration_cannot_block_a_cluster() {
        let target = WebhookTarget::Service { namespace: "ome-system".to_owned(), name: "ostler".to_owned() };
        let configuration = configuration(&target, "PEM");
        let webhook = &configuration["webhooks"][0];
        assert_eq!((&webhook["failurePolicy"], &webhook["timeoutSeconds"]), (&json!("Ignore"), &json!(5)));
        assert_eq!(
            webhook["clientConfig"],
            json!({"caBundle": "UEVN", "service": {"namespace": "ome-system", "name": "ostler", "path": "/validate", "port": 443}})
        );
        let resources: Vec<&str> = webhook["rules"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|rule| rule["resources"].as_array().unwrap())
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(resources.len(), api::crds().len());
        assert!(resources.iter().all(|resource| !resource.contains(['/', '*'])));
    }
}
