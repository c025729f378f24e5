//! ValidatingAdmissionPolicies about requesters and providers. The shipped manifests are generated from them.
//!
//! The controller creates the Pod that the patch of a requester describes, with the permissions of the controller. A user who may
//! change Pods but not create them must not have another Pod created by an edit, so that the patch is immutable once the engine has been
//! ready. Annotations by which the controller recognizes its Pods are written by the controller only, and the controller changes no
//! other Pods.

use api::dual_pods::{self as names, UserAnnotation};
use serde_json::{Value, json};

use crate::rbac::SERVICE_ACCOUNT_NAME;

/// Annotations and labels that only the controller changes. Finalizers are not protected: without the controller, an administrator
/// removes them.
const OWN_ANNOTATIONS: [&str; 13] = [
    names::REQUESTER,
    names::NOMINAL,
    names::NODE_NAME,
    names::SERVER_PORT,
    names::POOL_LABELS,
    names::LAST_AWAKE,
    names::FINGERPRINT,
    names::ACCELERATORS,
    names::ACCELERATORS_CONTAINER,
    names::STATUS,
    names::INSTANCES,
    names::INSTANCE_ID,
    names::MAX_INSTANCES,
];
const OWN_LABELS: [&str; 2] = [names::DUAL, names::SLEEPING];

/// A condition in CEL, and the message for requests that do not meet it.
type Validation = (String, &'static str);

/// Returns the policies for a controller in `namespace`, each followed by its binding.
#[must_use]
pub fn admission_policies(namespace: &str) -> Vec<Value> {
    let user = format!("system:serviceaccount:{namespace}:{SERVICE_ACCOUNT_NAME}");
    let is_controller = format!("request.userInfo.username == '{user}'");
    let is_other = format!("request.userInfo.username != '{user}'");
    [
        policy("ostler-actuation-own-fields", Some(("other-user", is_other)), &["CREATE", "UPDATE"], own_fields()),
        policy("ostler-actuation-server-patch", None, &["UPDATE"], vec![immutable_patch()]),
        policy(
            "ostler-actuation-pods",
            Some(("controller", is_controller)),
            &["CREATE", "UPDATE", "DELETE"],
            own_pods(),
        ),
    ]
    .concat()
}

/// Returns a policy about Pods and the binding that enforces it.
fn policy(
    name: &str,
    condition: Option<(&str, String)>,
    operations: &[&str],
    validations: Vec<Validation>,
) -> Vec<Value> {
    let validations: Vec<Value> = validations
        .into_iter()
        .map(|(expression, message)| json!({"expression": expression, "message": message, "reason": "Forbidden"}))
        .collect();
    let rule = json!({"apiGroups": [""], "apiVersions": ["*"], "resources": ["pods"], "operations": operations});
    let mut policy = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "variables": variables(),
        "validations": validations,
    });
    if let Some((name, expression)) = condition {
        policy["matchConditions"] = json!([{"name": name, "expression": expression}]);
    }
    let binding = json!({"policyName": name, "validationActions": ["Deny", "Audit"]});
    let object = |kind: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    vec![object("ValidatingAdmissionPolicy", policy), object("ValidatingAdmissionPolicyBinding", binding)]
}

fn variables() -> Value {
    let field =
        |object: &str, field: &str| format!("{object} == null ? {{}} : {object}.metadata.?{field}.orValue({{}})");
    json!([
        {"name": "annotations", "expression": field("object", "annotations")},
        {"name": "oldAnnotations", "expression": field("oldObject", "annotations")},
        {"name": "labels", "expression": field("object", "labels")},
        {"name": "oldLabels", "expression": field("oldObject", "labels")},
    ])
}

/// Returns the condition that `keys` have the same values in two variables.
fn is_unchanged(keys: &[String], new: &str, old: &str) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("'{key}'")).collect();
    let (new, old) = (format!("variables.{new}"), format!("variables.{old}"));
    format!("[{}].all(k, (k in {new}) == (k in {old}) && (!(k in {new}) || {new}[k] == {old}[k]))", keys.join(", "))
}

fn own_fields() -> Vec<Validation> {
    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    vec![
        (
            is_unchanged(&keys(&OWN_ANNOTATIONS), "annotations", "oldAnnotations"),
            "only the controller of dual pods changes its annotations",
        ),
        (
            is_unchanged(&keys(&OWN_LABELS), "labels", "oldLabels"),
            "only the controller of dual pods changes its labels",
        ),
    ]
}

fn immutable_patch() -> Validation {
    let is_unchanged = is_unchanged(&UserAnnotation::ServerPatch.keys(), "annotations", "oldAnnotations");
    let message = "the server patch is immutable once the engine has been ready: replace the Pod";
    (format!("!('{}' in variables.oldLabels) || {is_unchanged}", names::DUAL), message)
}

fn own_pods() -> Vec<Validation> {
    let requester_keys = [UserAnnotation::ServerPatch, UserAnnotation::InferenceServerConfig].map(UserAnnotation::keys);
    let keys: Vec<String> =
        requester_keys.concat().into_iter().chain([names::NOMINAL, names::ACCELERATORS].map(str::to_owned)).collect();
    let keys: Vec<String> = keys.iter().map(|key| format!("'{key}'")).collect();
    vec![
        (
            format!("request.operation != 'CREATE' || '{}' in variables.annotations", names::NOMINAL),
            "the controller of dual pods creates only providers",
        ),
        (
            format!("request.operation == 'CREATE' || [{}].exists(k, k in variables.oldAnnotations)", keys.join(", ")),
            "the controller of dual pods changes and deletes only requesters and providers",
        ),
        (
            "!(request.namespace in ['kube-system', 'kube-public', 'kube-node-lease'])".to_owned(),
            "the controller of dual pods writes no Pods in namespaces of the system",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_is_bound_and_the_patch_is_protected_under_both_prefixes() {
        let policies = admission_policies("n");
        assert_eq!(policies.len(), 6);
        for pair in policies.chunks(2) {
            assert_eq!(pair[1]["spec"]["policyName"], pair[0]["metadata"]["name"]);
        }
        let text = policies[2].to_string();
        assert!(text.contains("dual-pod.llm-d.ai/server-patch") && text.contains("dual-pods.llm-d.ai/server-patch"));
    }
}
