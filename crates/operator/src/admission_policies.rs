//! ValidatingAdmissionPolicies that restrict the operator's service account to the objects that it manages.
//!
//! RBAC grants `patch` and `delete` per kind, so a stolen token of the operator could change any Deployment or Role. The
//! API server evaluates these policies for every write with that token. The shipped manifests are generated from them.

use std::collections::BTreeMap;

use cluster::{IDENTITY_ANNOTATION, Kind};
use serde_json::{Value, json};

use crate::admission::webhook;
use crate::kinds::{ACCELERATOR_CLASS, OWNED, RESOURCE_FLAVORS};
use crate::{FIELD_MANAGER, LEASE_NAME};

/// Name of the operator's ServiceAccount in the shipped manifests.
pub const SERVICE_ACCOUNT_NAME: &str = "ostler-operator";

/// Annotation of a namespace with the ServiceAccounts that services may use, separated by commas. Only administrators can
/// change namespaces.
const SERVICE_ACCOUNTS_ANNOTATION: &str = "ostler.io/service-accounts";
/// Variables for the ServiceAccounts of workloads, and the fields with their Pod templates.
const POD_TEMPLATES: [(&str, &str); 3] = [
    ("serviceAccount", "template"),
    ("leaderServiceAccount", "leaderWorkerTemplate.?leaderTemplate"),
    ("workerServiceAccount", "leaderWorkerTemplate.?workerTemplate"),
];

/// Verb, API group and resource.
type Permission = (&'static str, &'static str, &'static str);

/// Pairs of permissions in all namespaces that lead to further permissions, with a message.
/// The API server limits the cost of a validation to two authorization checks, and that of a policy to 28: these 14 for each of
/// two Pod templates. To impersonate a group, one needs the permission to impersonate a user or a ServiceAccount as well.
const PRIVILEGES: [([Permission; 2], &str); 7] = [
    (
        [("list", "", "secrets"), ("create", "", "pods")],
        "the ServiceAccount may list Secrets or create Pods in all namespaces, which no engine needs",
    ),
    (
        [("create", "apps", "deployments"), ("create", "apps", "statefulsets")],
        "the ServiceAccount may create Deployments or StatefulSets in all namespaces, which no engine needs",
    ),
    (
        [("create", "apps", "daemonsets"), ("create", "apps", "replicasets")],
        "the ServiceAccount may create DaemonSets or ReplicaSets in all namespaces, which no engine needs",
    ),
    (
        [("create", "batch", "jobs"), ("create", "batch", "cronjobs")],
        "the ServiceAccount may create Jobs or CronJobs in all namespaces, which no engine needs",
    ),
    (
        [("bind", RBAC_GROUP, "clusterroles"), ("escalate", RBAC_GROUP, "clusterroles")],
        "the ServiceAccount may bind or escalate ClusterRoles, which no engine needs",
    ),
    (
        [("bind", RBAC_GROUP, "roles"), ("escalate", RBAC_GROUP, "roles")],
        "the ServiceAccount may bind or escalate Roles in all namespaces, which no engine needs",
    ),
    (
        [("impersonate", "", "users"), ("impersonate", "", "serviceaccounts")],
        "the ServiceAccount may impersonate users or the ServiceAccounts of all namespaces, which no engine needs",
    ),
];
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");

/// A condition in CEL, and the message for requests that do not meet it.
type Validation = (String, &'static str);

/// Returns the policies for the operator in `namespace`, each followed by its binding.
#[must_use]
pub fn admission_policies(namespace: &str) -> Vec<Value> {
    let service_objects = resource_rules(OWNED);
    let service_object_validations = [service_object_validations(), service_account_validations()].concat();
    let own_kinds = [ACCELERATOR_CLASS, RESOURCE_FLAVORS[0], webhook::CONFIGURATION, webhook::SECRET, LEASE];
    [
        policy("ostler-operator-service-objects", namespace, &service_objects, service_object_validations),
        policy(
            "ostler-operator-own-objects",
            namespace,
            &resource_rules(&own_kinds),
            own_object_validations(namespace),
        ),
    ]
    .concat()
}

/// Returns a policy and the binding that enforces it.
fn policy(name: &str, namespace: &str, rules: &[Value], validations: Vec<Validation>) -> Vec<Value> {
    let user = format!("system:serviceaccount:{namespace}:{SERVICE_ACCOUNT_NAME}");
    let variables: Vec<Value> =
        variables().into_iter().map(|(name, expression)| json!({"name": name, "expression": expression})).collect();
    let validations: Vec<Value> = validations
        .into_iter()
        .map(|(expression, message)| json!({"expression": expression, "message": message, "reason": "Forbidden"}))
        .collect();
    let object = |kind: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let policy = json!({
        "failurePolicy": "Fail",
        "matchConditions": [{"name": "operator", "expression": format!("request.userInfo.username == '{user}'")}],
        "matchConstraints": {"resourceRules": rules},
        "variables": variables,
        "validations": validations,
    });
    let binding = json!({"policyName": name, "validationActions": ["Deny", "Audit"]});
    vec![object("ValidatingAdmissionPolicy", policy), object("ValidatingAdmissionPolicyBinding", binding)]
}

/// Returns one rule per API group for all writes of the kinds, at any version.
fn resource_rules(kinds: &[Kind]) -> Vec<Value> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    kinds.iter().for_each(|kind| groups.entry(kind.group).or_default().push(kind.plural));
    let rule = |(group, plurals)| json!({"apiGroups": [group], "apiVersions": ["*"], "resources": plurals, "operations": ["CREATE", "UPDATE", "DELETE"]});
    groups.into_iter().map(rule).collect()
}

/// Returns names and expressions of the variables of both policies.
fn variables() -> Vec<(&'static str, String)> {
    let is_controlled = |object: &str| {
        format!(
            "{object} != null && {object}.metadata.?ownerReferences.orValue([]).exists(r, r.?controller.orValue(false) && \
             r.kind == 'InferenceService' && (r.apiVersion.startsWith('ome.io/') || r.apiVersion.startsWith('fusioninfer.io/')))"
        )
    };
    // Only the API server copies the deprecated field `serviceAccount` of a Pod template.
    let service_account = |(variable, template)| {
        let field = |name: &str| format!("object.?spec.?{template}.?spec.?{name}.orValue('')");
        let (current, deprecated) = (field("serviceAccountName"), field("serviceAccount"));
        (variable, format!("object == null ? '' : ({current} != '' ? {current} : {deprecated})"))
    };
    let mut variables = vec![
        ("isControlledByService", is_controlled("object")),
        ("wasControlledByService", is_controlled("oldObject")),
        // Deleting a service with `--cascade=orphan` removes the owner references.
        (
            "hadNoController",
            "oldObject != null && !oldObject.metadata.?ownerReferences.orValue([]).exists(r, r.?controller.orValue(false))"
                .to_owned(),
        ),
        // `managedFields` of a copy may contain the operator, too. Objects of earlier releases have no identity.
        (
            "wasIdentified",
            format!(
                "oldObject != null && '{IDENTITY_ANNOTATION}' in oldObject.metadata.?annotations.orValue({{}})"
            ),
        ),
        (
            "wasApplied",
            format!(
                "oldObject != null && oldObject.metadata.?managedFields.orValue([]).exists(f, f.manager == '{FIELD_MANAGER}' && \
                 f.operation == 'Apply' && f.?subresource.orValue('') == '') && \
                 (!variables.wasIdentified || oldObject.metadata.annotations['{IDENTITY_ANNOTATION}'] == \
                 request.kind.kind + '/' + (oldObject.metadata.?namespace.orValue('') == '' ? '' : \
                 oldObject.metadata.namespace + '/') + oldObject.metadata.name)"
            ),
        ),
    ];
    variables.extend(POD_TEMPLATES.map(service_account));
    variables
}

/// Returns the conditions for the objects that services own.
fn service_object_validations() -> Vec<Validation> {
    let validation = |expression: &str, message: &'static str| (expression.to_owned(), message);
    let of_written = |resource: &str, expression: &str, message: &'static str| {
        let guard = format!("request.operation == 'DELETE' || request.resource.resource != '{resource}'");
        (format!("{guard} || ({expression})"), message)
    };
    vec![
        validation(
            "request.operation == 'DELETE' || variables.isControlledByService",
            "the operator writes only objects that an InferenceService controls",
        ),
        validation(
            "request.operation == 'CREATE' || (variables.wasApplied && (variables.wasControlledByService || variables.hadNoController))",
            "the operator updates and deletes only objects of InferenceServices that it applied",
        ),
        // The service accounts of system components have permissions in the whole cluster.
        validation(
            "!(request.namespace in ['kube-system', 'kube-public', 'kube-node-lease'])",
            "the operator writes no objects in namespaces of the system",
        ),
        of_written(
            "roles",
            "object.?rules.orValue([]).all(r, r.verbs.all(v, v in ['list', 'watch']) && \
             ((r.?apiGroups.orValue([]) == [''] && r.?resources.orValue([]) == ['pods']) || \
             (r.?apiGroups.orValue([]) == ['inference.networking.k8s.io'] && r.?resources.orValue([]) == ['inferencepools']) || \
             (r.?apiGroups.orValue([]) == ['inference.networking.x-k8s.io'] && \
             r.?resources.orValue([]).all(s, s in ['backendpools', 'llmusecases', 'llmusecasesets']))))",
            "the operator grants only what endpoint pickers need: to list and watch Pods, pools and use cases",
        ),
        of_written(
            "rolebindings",
            "object.roleRef.kind == 'Role' && object.roleRef.name == object.metadata.name && \
             object.?subjects.orValue([]).all(s, s.kind == 'ServiceAccount' && s.name == object.metadata.name && \
             s.?namespace.orValue('') == request.namespace)",
            "the operator binds only the Role of an endpoint picker to its ServiceAccount of the same name",
        ),
        of_written(
            "serviceaccounts",
            &format!("{} && {}", unchanged(&["object.?secrets", "object.?imagePullSecrets"]), unchanged_annotations()),
            "the operator sets no secrets and annotations of ServiceAccounts",
        ),
        of_written(
            "services",
            &format!(
                "(object.spec.?type.orValue('ClusterIP') == 'ClusterIP' || {}) && {}",
                unchanged(&["object.spec.?type"]),
                unchanged(&["object.spec.?externalIPs", "object.spec.?externalName"])
            ),
            "the operator creates only Services of type ClusterIP, without external addresses",
        ),
    ]
}

/// Returns the conditions for the ServiceAccounts of workloads. A service may name any ServiceAccount, and a policy cannot read
/// the service. Without the annotation, those with [`PRIVILEGES`] are denied.
fn service_account_validations() -> Vec<Validation> {
    let is_exempt =
        "request.operation == 'DELETE' || !(request.resource.resource in ['deployments', 'leaderworkersets'])";
    let is_annotated =
        format!("'{SERVICE_ACCOUNTS_ANNOTATION}' in namespaceObject.metadata.?annotations.orValue({{}})");
    let is_listed = |account: &str| {
        format!(
            "{account} in namespaceObject.metadata.annotations['{SERVICE_ACCOUNTS_ANNOTATION}'].split(',').map(a, a.trim())"
        )
    };
    let accounts = POD_TEMPLATES.map(|(variable, _)| format!("variables.{variable}"));
    // The endpoint picker of a router runs as the ServiceAccount of the same name.
    let listed = (
        format!(
            "{is_exempt} || !({is_annotated}) || [{}].all(account, account in ['', 'default'] || \
             account == object.metadata.name || {})",
            accounts.join(", "),
            is_listed("account")
        ),
        "the annotation ostler.io/service-accounts of the namespace does not contain the ServiceAccount",
    );
    let unprivileged = accounts.iter().flat_map(|account| {
        let may = move |(verb, group, resource): Permission| {
            format!(
                "authorizer.serviceAccount(request.namespace, {account}).group('{group}').resource('{resource}').check('{verb}').allowed()"
            )
        };
        PRIVILEGES.map(|(permissions, message)| {
            (
                format!(
                    "{is_exempt} || {account} in ['', 'default'] || ({is_annotated} && {}) || !({})",
                    is_listed(account),
                    permissions.map(may).join(" || ")
                ),
                message,
            )
        })
    });
    std::iter::once(listed).chain(unprivileged).collect()
}

/// Returns the condition that optional fields of `object` are as in `oldObject`, and absent from a new object.
fn unchanged(fields: &[&str]) -> String {
    let condition = |field: &&str| {
        let old_field = field.replace("object", "oldObject");
        format!("(oldObject == null ? !{field}.hasValue() : {field} == {old_field})")
    };
    fields.iter().map(condition).collect::<Vec<_>>().join(" && ")
}

/// Returns the condition that the annotations of `object` are as in `oldObject`, apart from its identity.
fn unchanged_annotations() -> String {
    let annotations = |object: &str| format!("{object}.metadata.?annotations.orValue({{}})");
    let (new, old) = (annotations("object"), annotations("oldObject"));
    format!(
        "{new}.all(a, a == '{IDENTITY_ANNOTATION}' || (oldObject != null && a in {old} && {new}[a] == {old}[a])) && \
         (oldObject == null || {old}.all(a, a == '{IDENTITY_ANNOTATION}' || a in {new}))"
    )
}

/// Returns the conditions for objects that no service owns.
fn own_object_validations(namespace: &str) -> Vec<Validation> {
    let of = |resources: &str, expression: &str, message: &'static str| {
        (format!("!(request.resource.resource in [{resources}]) || ({expression})"), message)
    };
    let mut groups: Vec<String> = api::crds()
        .iter()
        .map(|definition| format!("'{}'", definition["spec"]["group"].as_str().unwrap_or_default()))
        .collect();
    groups.sort();
    groups.dedup();
    let webhook_name = webhook::CONFIGURATION_NAME;
    vec![
        of(
            "'acceleratorclasses', 'resourceflavors'",
            &format!(
                "request.operation == 'CREATE' ? '{}' in object.metadata.?annotations.orValue({{}}) : \
                 variables.wasApplied && (request.operation == 'UPDATE' || variables.wasIdentified)",
                decide::PROVENANCE_ANNOTATION
            ),
            "the operator updates and deletes only AcceleratorClasses and ResourceFlavors that it created",
        ),
        of(
            "'validatingwebhookconfigurations'",
            &format!(
                "request.name == '{webhook_name}' && request.operation != 'DELETE' && \
                 object.?webhooks.orValue([]).all(w, w.failurePolicy == 'Ignore' && \
                 w.?rules.orValue([]).all(r, r.apiGroups.all(g, g in [{}])))",
                groups.join(", ")
            ),
            "the operator's webhook validates only objects of ostler, and does not block them when it fails",
        ),
        of(
            "'secrets'",
            &format!(
                "request.namespace == '{namespace}' && request.operation != 'DELETE' && \
                 object.metadata.name == '{webhook_name}' && object.type == 'kubernetes.io/tls'"
            ),
            "the operator writes only the Secret with the certificate of its webhook",
        ),
        of(
            "'leases'",
            &format!(
                "request.namespace == '{namespace}' && request.operation != 'DELETE' && \
                 (object.metadata.name == '{0}' || object.metadata.name.startsWith('{0}-'))",
                LEASE_NAME
            ),
            "the operator writes only the Lease of its leader election",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{cluster_role_rules, namespace_role_rules};

    /// Every permission to write objects is restricted by a policy, except for statuses, Events, and the virtual permission
    /// for finalizers.
    #[test]
    fn policies_cover_all_written_resources() {
        let policies = admission_policies("ome-system");
        let pairs = |rule: &Value| {
            let group = rule["apiGroups"][0].to_string();
            let resources = rule["resources"].as_array().cloned().unwrap_or_default();
            resources.into_iter().map(move |name| (group.clone(), name.as_str().unwrap_or_default().to_owned()))
        };
        let covered: BTreeSet<_> = policies
            .iter()
            .flat_map(|policy| policy["spec"]["matchConstraints"]["resourceRules"].as_array().into_iter().flatten())
            .flat_map(pairs)
            .collect();
        let is_written = |rule: &Value| {
            rule["verbs"]
                .as_array()
                .unwrap()
                .iter()
                .any(|verb| !["get", "list", "watch"].contains(&verb.as_str().unwrap()))
        };
        let rules = [cluster_role_rules(), namespace_role_rules()].concat();
        let uncovered: Vec<_> = rules
            .iter()
            .filter(|rule| is_written(rule))
            .flat_map(pairs)
            .filter(|pair| !covered.contains(pair))
            .collect();
        assert!(uncovered.iter().all(|(_, resource)| resource.contains('/') || resource == "events"), "{uncovered:?}");
    }

    #[test]
    fn unchanged_fields_are_absent_from_new_objects() {
        let expect = "(oldObject == null ? !object.?secrets.hasValue() : object.?secrets == oldObject.?secrets)";
        assert_eq!(unchanged(&["object.?secrets"]), expect);
    }
}
