//! What a holder of the operator's token cannot do: RBAC grants the verb, and a ValidatingAdmissionPolicy denies the object.

use cluster::IDENTITY_ANNOTATION;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::serving::service;
use super::test_cluster::{CLASSES, DEPLOYMENTS, OME, SERVICES, SETS, TestCluster, eventually};

const NAMESPACE: &str = "foreign";
const SERVICE_OBJECTS: &str = "ostler-operator-service-objects";
const OWN_OBJECTS: &str = "ostler-operator-own-objects";
/// Denied by RBAC.
const NO_PERMISSION: &str = "is forbidden: User";
const CONFIG_MAPS: (&str, &str) = ("configmaps", "v1");
const SECRETS: (&str, &str) = ("secrets", "v1");
const ACCOUNTS: (&str, &str) = ("serviceaccounts", "v1");
const LEASES: (&str, &str) = ("leases.coordination.k8s.io", "v1");
const RBAC_ROLES: (&str, &str) = ("roles.rbac.authorization.k8s.io", "v1");
const BINDINGS: (&str, &str) = ("rolebindings.rbac.authorization.k8s.io", "v1");
const CLUSTER_BINDINGS: (&str, &str) = ("clusterrolebindings.rbac.authorization.k8s.io", "v1");
const NAMESPACES: (&str, &str) = ("namespaces", "v1");
const POLICIES: (&str, &str) = ("validatingadmissionpolicies.admissionregistration.k8s.io", "v1");
const WEBHOOKS: (&str, &str) = ("validatingwebhookconfigurations.admissionregistration.k8s.io", "v1");

/// A write with the operator's token.
#[derive(Clone)]
enum Write {
    /// Server-side apply with the operator's field manager.
    Apply(Value),
    /// A merge patch.
    Merge(Value),
    /// A merge patch of the status.
    Status(Value),
    Delete,
}

/// Sends a write with the operator's token and returns the error of the API server, if any.
async fn write(
    test_cluster: &TestCluster,
    (resource, version): (&str, &str),
    namespace: &str,
    name: &str,
    write: &Write,
) -> Option<String> {
    let client = &test_cluster.account.as_ref().unwrap().client;
    let api = realcluster::dynamic_api(client, resource, version, namespace);
    let result = match write {
        Write::Apply(object) => {
            let params = PatchParams::apply(operator::FIELD_MANAGER).force();
            api.patch(name, &params, &Patch::Apply(object)).await.map(drop)
        }
        Write::Merge(change) => api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.map(drop),
        Write::Status(status) => {
            let params = PatchParams::apply(operator::FIELD_MANAGER).force();
            api.patch_status(name, &params, &Patch::Apply(status)).await.map(drop)
        }
        Write::Delete => api.delete(name, &DeleteParams::background()).await.map(drop),
    };
    result.err().map(|error| error.to_string())
}

/// Returns an object in `namespace`, with the service as its controller.
fn owned(owner: &Value, namespace: &str, api_version: &str, kind: &str, name: &str, content: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace,
        "ownerReferences": [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "controller": true}]}});
    for (field, value) in content.as_object().unwrap() {
        object[field] = value.clone();
    }
    object
}

fn without_owner(mut object: Value) -> Value {
    object["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    object
}

fn deployment_spec() -> Value {
    json!({"spec": {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main", "image": "main"}]}}}})
}

fn role(group: &str, resource: &str, verb: &str) -> Value {
    json!({"rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]})
}

fn binding(role_kind: &str, role: &str, subject: &str) -> Value {
    json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": subject, "namespace": NAMESPACE}]})
}

fn class(annotations: Value) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "foreign", "annotations": annotations},
        "spec": {"discovery": {"nodeSelector": {"acme.example/gpu": "foreign"}}, "capabilities": {}}})
}

fn webhook_configuration(group: &str, failure_policy: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "ostler-admission"}, "webhooks": [{"name": "admission.ostler.io", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://192.0.2.1/"}, "failurePolicy": failure_policy,
            "rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"], "scope": "*"}]}]})
}

/// The operators are stopped, so that only this test writes with their token.
pub(super) async fn token_changes_only_managed_objects(test_cluster: &TestCluster) {
    test_cluster.namespace(NAMESPACE).await;
    let owner = test_cluster.apply(&service(NAMESPACE, "owner", json!({}))).await;
    managed_objects_can_be_changed(test_cluster, &owner).await;
    foreign_objects_cannot_be_changed(test_cluster, &owner).await;
    permissions_cannot_be_extended(test_cluster, &owner).await;
    workloads_cannot_use_privileged_service_accounts(test_cluster, &owner).await;
    objects_of_the_cluster_cannot_be_changed(test_cluster).await;
    test_cluster.delete(OME, NAMESPACE, "owner").await;
}

async fn check_denied(test_cluster: &TestCluster, cause: &str, attempts: Vec<((&str, &str), &str, &str, Write)>) {
    for (kind, namespace, name, attempt) in attempts {
        let operation = match attempt {
            Write::Apply(_) => "apply",
            Write::Merge(_) => "merge",
            Write::Status(_) => "status",
            Write::Delete => "delete",
        };
        let error = write(test_cluster, kind, namespace, name, &attempt).await;
        let error = error.unwrap_or_else(|| panic!("{operation} of {} {namespace}/{name} was allowed", kind.0));
        assert!(error.contains(cause), "{operation} of {} {namespace}/{name}: {error}", kind.0);
    }
}

/// The policies deny nothing that the operator does, such as adopting an object of a service that was deleted with
/// `--cascade=orphan`.
async fn managed_objects_can_be_changed(test_cluster: &TestCluster, owner: &Value) {
    let config_map = |data: Value| owned(owner, NAMESPACE, "v1", "ConfigMap", "managed", json!({"data": data}));
    let orphaned = || Write::Apply(config_map(json!({"a": "2"})));
    let writes = [Write::Apply(config_map(json!({"a": "1"}))), Write::Merge(json!({"data": {"b": "2"}}))];
    for change in writes {
        assert_eq!(write(test_cluster, CONFIG_MAPS, NAMESPACE, "managed", &change).await, None);
    }
    let no_owner = json!({"metadata": {"ownerReferences": null}});
    test_cluster.patch(CONFIG_MAPS, NAMESPACE, "managed", &no_owner).await;
    assert_eq!(write(test_cluster, CONFIG_MAPS, NAMESPACE, "managed", &orphaned()).await, None);
    assert_eq!(write(test_cluster, CONFIG_MAPS, NAMESPACE, "managed", &Write::Delete).await, None);
    let mut account = owned(owner, NAMESPACE, "v1", "ServiceAccount", "managed", json!({}));
    account["metadata"]["annotations"] = json!({IDENTITY_ANNOTATION: format!("ServiceAccount/{NAMESPACE}/managed")});
    for change in [Write::Apply(account), Write::Delete] {
        assert_eq!(write(test_cluster, ACCOUNTS, NAMESPACE, "managed", &change).await, None);
    }
    let own_class = class(json!({"ome.io/made-from": "nodes", IDENTITY_ANNOTATION: "AcceleratorClass/foreign"}));
    for change in [Write::Apply(own_class), Write::Delete] {
        assert_eq!(write(test_cluster, CLASSES, "", "foreign", &change).await, None);
    }
}

async fn foreign_objects_cannot_be_changed(test_cluster: &TestCluster, owner: &Value) {
    let mine = |api_version: &str, kind: &str, name: &str, content: Value| {
        owned(owner, NAMESPACE, api_version, kind, name, content)
    };
    let deployment = mine("apps/v1", "Deployment", "theirs", deployment_spec());
    let role = mine("rbac.authorization.k8s.io/v1", "Role", "theirs", role("", "pods", "list"));
    for object in [&deployment, &role] {
        test_cluster.apply(&without_owner(object.clone())).await;
    }
    // A user's copy of an object of the service.
    test_cluster.apply(&mine("v1", "ConfigMap", "copied", json!({"data": {"a": "1"}}))).await;
    // A copy with the operator's `managedFields`, which names its source.
    let mut copy = mine("v1", "ConfigMap", "copied-with-managers", json!({"data": {"a": "1"}}));
    copy["metadata"]["annotations"] = json!({IDENTITY_ANNOTATION: format!("ConfigMap/{NAMESPACE}/managed")});
    let create = Write::Apply(copy);
    assert_eq!(write(test_cluster, CONFIG_MAPS, NAMESPACE, "copied-with-managers", &create).await, None);
    let mut system_deployment = owned(owner, "kube-system", "apps/v1", "Deployment", "mine", deployment_spec());
    system_deployment["metadata"]["namespace"] = json!("kube-system");
    let replicas = || Write::Merge(json!({"spec": {"replicas": 1}}));
    let managed_by = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "ostler"}}});
    check_denied(
        test_cluster,
        SERVICE_OBJECTS,
        vec![
            (DEPLOYMENTS, NAMESPACE, "theirs", replicas()),
            (DEPLOYMENTS, NAMESPACE, "theirs", Write::Merge(managed_by)),
            (DEPLOYMENTS, NAMESPACE, "theirs", Write::Apply(deployment.clone())),
            (DEPLOYMENTS, NAMESPACE, "theirs", Write::Delete),
            (
                DEPLOYMENTS,
                NAMESPACE,
                "new",
                Write::Apply(without_owner(mine("apps/v1", "Deployment", "new", deployment_spec()))),
            ),
            (DEPLOYMENTS, "kube-system", "mine", Write::Apply(system_deployment)),
            (CONFIG_MAPS, NAMESPACE, "copied", Write::Merge(json!({"data": {"a": "2"}}))),
            (CONFIG_MAPS, NAMESPACE, "copied", Write::Delete),
            (CONFIG_MAPS, NAMESPACE, "copied-with-managers", Write::Merge(json!({"data": {"a": "2"}}))),
            (CONFIG_MAPS, NAMESPACE, "copied-with-managers", Write::Delete),
            (RBAC_ROLES, NAMESPACE, "theirs", Write::Merge(json!({"rules": []}))),
            (RBAC_ROLES, NAMESPACE, "theirs", Write::Delete),
            (ACCOUNTS, NAMESPACE, "default", Write::Delete),
            (ACCOUNTS, "kube-system", "default", Write::Delete),
            (CONFIG_MAPS, "kube-system", "extension-apiserver-authentication", Write::Delete),
            (SERVICES, "default", "kubernetes", Write::Delete),
        ],
    )
    .await;
    let live = test_cluster.get(DEPLOYMENTS, NAMESPACE, "theirs").await;
    assert!(live["metadata"]["ownerReferences"].is_null() && live["spec"]["replicas"] == 0, "{live}");
}

/// All of these objects have an InferenceService as controller, and the operator has the granted permissions itself.
async fn permissions_cannot_be_extended(test_cluster: &TestCluster, owner: &Value) {
    let rbac = |kind: &str, name: &str, content: Value| {
        owned(owner, NAMESPACE, "rbac.authorization.k8s.io/v1", kind, name, content)
    };
    let core = |kind: &str, name: &str, content: Value| owned(owner, NAMESPACE, "v1", kind, name, content);
    let mut identity = core("ServiceAccount", "mine", json!({}));
    identity["metadata"]["annotations"] = json!({"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/admin"});
    let external_service = json!({"spec": {"ports": [{"port": 53}], "externalIPs": ["192.0.2.1"]}});
    let external_name = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    let node_port = json!({"spec": {"type": "NodePort", "ports": [{"port": 53}]}});
    check_denied(
        test_cluster,
        SERVICE_OBJECTS,
        vec![
            (RBAC_ROLES, NAMESPACE, "mine", Write::Apply(rbac("Role", "mine", role("apps", "deployments", "patch")))),
            (RBAC_ROLES, NAMESPACE, "mine", Write::Apply(rbac("Role", "mine", role("", "configmaps", "list")))),
            (
                BINDINGS,
                NAMESPACE,
                "mine",
                Write::Apply(rbac("RoleBinding", "mine", binding("ClusterRole", "ostler-operator", "mine"))),
            ),
            (BINDINGS, NAMESPACE, "mine", Write::Apply(rbac("RoleBinding", "mine", binding("Role", "theirs", "mine")))),
            (
                BINDINGS,
                NAMESPACE,
                "theirs",
                Write::Apply(rbac("RoleBinding", "theirs", binding("Role", "theirs", "default"))),
            ),
            (ACCOUNTS, NAMESPACE, "mine", Write::Apply(identity)),
            (
                ACCOUNTS,
                NAMESPACE,
                "mine",
                Write::Apply(core("ServiceAccount", "mine", json!({"secrets": [{"name": "s"}]}))),
            ),
            (SERVICES, NAMESPACE, "mine", Write::Apply(core("Service", "mine", external_service))),
            (SERVICES, NAMESPACE, "mine", Write::Apply(core("Service", "mine", external_name))),
            (SERVICES, NAMESPACE, "mine", Write::Apply(core("Service", "mine", node_port))),
        ],
    )
    .await;
    let admin = binding("ClusterRole", "cluster-admin", "mine");
    let mut cluster_admin = rbac("ClusterRoleBinding", "mine", admin.clone());
    cluster_admin["metadata"].as_object_mut().unwrap().remove("namespace");
    let escalations = vec![
        (BINDINGS, NAMESPACE, "mine", Write::Apply(rbac("RoleBinding", "mine", admin))),
        (CLUSTER_BINDINGS, "", "mine", Write::Apply(cluster_admin)),
        (POLICIES, "", SERVICE_OBJECTS, Write::Delete),
        (SECRETS, NAMESPACE, "mine", Write::Apply(core("Secret", "mine", json!({})))),
    ];
    check_denied(test_cluster, "forbidden", escalations).await;
    check_denied(test_cluster, NO_PERMISSION, vec![(SECRETS, "kube-system", "any", Write::Delete)]).await;
}

/// Returns a Deployment and a LeaderWorkerSet per Pod template that use the ServiceAccount `account`.
fn workloads_with_account(owner: &Value, name: &str, account: &str) -> Vec<((&'static str, &'static str), Value)> {
    let mut deployment = owned(owner, NAMESPACE, "apps/v1", "Deployment", name, deployment_spec());
    deployment["spec"]["template"]["spec"]["serviceAccountName"] = json!(account);
    let template = |account: Option<&str>| {
        let mut template = json!({"spec": {"containers": [{"name": "main", "image": "main"}]}});
        account.into_iter().for_each(|account| template["spec"]["serviceAccountName"] = json!(account));
        template
    };
    let set = |leader: Option<&str>, worker: Option<&str>| {
        let spec = json!({"spec": {"replicas": 0, "leaderWorkerTemplate":
            {"size": 2, "leaderTemplate": template(leader), "workerTemplate": template(worker)}}});
        owned(owner, NAMESPACE, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, spec)
    };
    vec![(DEPLOYMENTS, deployment), (SETS, set(Some(account), None)), (SETS, set(None, Some(account)))]
}

/// Permissions in all namespaces with verb, API group and resource, and parts of the messages that deny their holders.
const PRIVILEGES: [(&str, &str, &str, &str); 14] = [
    ("list", "", "secrets", "may list Secrets or create Pods in all namespaces"),
    ("create", "", "pods", "may list Secrets or create Pods in all namespaces"),
    ("create", "apps", "deployments", "may create Deployments or StatefulSets in all namespaces"),
    ("create", "apps", "statefulsets", "may create Deployments or StatefulSets in all namespaces"),
    ("create", "apps", "daemonsets", "may create DaemonSets or ReplicaSets in all namespaces"),
    ("create", "apps", "replicasets", "may create DaemonSets or ReplicaSets in all namespaces"),
    ("create", "batch", "jobs", "may create Jobs or CronJobs in all namespaces"),
    ("create", "batch", "cronjobs", "may create Jobs or CronJobs in all namespaces"),
    ("bind", "rbac.authorization.k8s.io", "clusterroles", "may bind or escalate ClusterRoles"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles", "may bind or escalate ClusterRoles"),
    ("bind", "rbac.authorization.k8s.io", "roles", "may bind or escalate Roles in all namespaces"),
    ("escalate", "rbac.authorization.k8s.io", "roles", "may bind or escalate Roles in all namespaces"),
    ("impersonate", "", "users", "may impersonate users or the ServiceAccounts"),
    ("impersonate", "", "serviceaccounts", "may impersonate users or the ServiceAccounts"),
];

/// A service may name a ServiceAccount of its namespace. The annotation of the namespace restricts them to a list.
async fn workloads_cannot_use_privileged_service_accounts(test_cluster: &TestCluster, owner: &Value) {
    for name in ["reader", "trainer", "manager"] {
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}});
        test_cluster.apply(&account).await;
    }
    let cluster_object = |kind: &str, content: Value| {
        let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "foreign-manager"}});
        object.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        object
    };
    test_cluster
        .apply(&cluster_object("ClusterRoleBinding", binding("ClusterRole", "foreign-manager", "manager")))
        .await;
    let user = format!("system:serviceaccount:{NAMESPACE}:manager");
    let apply = |name: &'static str, account: &str| {
        let workloads = workloads_with_account(owner, name, account).into_iter();
        workloads.map(move |(kind, object)| (kind, NAMESPACE, name, Write::Apply(object))).collect::<Vec<_>>()
    };
    for (kind, namespace, name, attempt) in [apply("engine", "reader"), apply("engine", "default")].concat() {
        assert_eq!(write(test_cluster, kind, namespace, name, &attempt).await, None);
    }
    // Two accounts cause the highest cost of the policy.
    let mut set = workloads_with_account(owner, "engine", "reader").remove(1).1;
    set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["serviceAccountName"] = json!("trainer");
    assert_eq!(write(test_cluster, SETS, NAMESPACE, "engine", &Write::Apply(set)).await, None);
    for (verb, group, resource, message) in PRIVILEGES {
        let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
        test_cluster.apply(&cluster_object("ClusterRole", json!({"rules": [rule]}))).await;
        test_cluster.wait_for_access(&user, &rule, "", true).await;
        for name in ["other", "manager"] {
            check_denied(test_cluster, message, apply(name, "manager")).await;
        }
    }
    let restrict = |accounts: Value| json!({"metadata": {"annotations": {"ostler.io/service-accounts": accounts}}});
    test_cluster.patch(NAMESPACES, "", NAMESPACE, &restrict(json!("trusted, manager"))).await;
    // The API server reads namespaces from a cache.
    eventually("the annotation of the namespace", async || {
        let (kind, namespace, name, attempt) = apply("engine", "reader").remove(0);
        write(test_cluster, kind, namespace, name, &attempt).await
    })
    .await;
    check_denied(test_cluster, "does not contain the ServiceAccount", apply("engine", "reader")).await;
    for account in ["manager", "default", "engine"] {
        for (kind, namespace, name, attempt) in apply("engine", account) {
            assert_eq!(write(test_cluster, kind, namespace, name, &attempt).await, None, "{account}");
        }
    }
    test_cluster.patch(NAMESPACES, "", NAMESPACE, &restrict(Value::Null)).await;
}

async fn objects_of_the_cluster_cannot_be_changed(test_cluster: &TestCluster) {
    // A user copied the annotation of a generated class, and the operator wrote its status.
    test_cluster.apply(&class(json!({"ome.io/made-from": "nodes"}))).await;
    let status = json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "status": {"availableNodes": 1}});
    assert_eq!(write(test_cluster, CLASSES, "", "foreign", &Write::Status(status)).await, None);
    let namespace = operator::DEFAULT_NAMESPACE;
    let token = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": {
        "name": "ostler-token", "namespace": namespace, "annotations": {"kubernetes.io/service-account.name": "ostler-operator"}}});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "other", "namespace": namespace}});
    check_denied(
        test_cluster,
        OWN_OBJECTS,
        vec![
            (CLASSES, "", "foreign", Write::Merge(json!({"spec": {"vendor": "mine"}}))),
            (CLASSES, "", "foreign", Write::Delete),
            (
                CLASSES,
                "",
                "new",
                Write::Apply(json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass",
                "metadata": {"name": "new"}, "spec": {"discovery": {}, "capabilities": {}}})),
            ),
            (WEBHOOKS, "", "ostler-admission", Write::Apply(webhook_configuration("", "Ignore"))),
            (WEBHOOKS, "", "ostler-admission", Write::Apply(webhook_configuration("ome.io", "Fail"))),
        ],
    )
    .await;
    // RBAC restricts the names where the request contains one; creating with POST has none.
    let client = &test_cluster.account.as_ref().unwrap().client;
    for ((resource, version), object) in [(SECRETS, token), (LEASES, lease)] {
        let api = realcluster::dynamic_api(client, resource, version, namespace);
        let object = serde_json::from_value(object).unwrap();
        let error = api.create(&kube::api::PostParams::default(), &object).await.unwrap_err().to_string();
        assert!(error.contains(OWN_OBJECTS), "{resource}: {error}");
    }
    test_cluster.delete(CLASSES, "", "foreign").await;
}
