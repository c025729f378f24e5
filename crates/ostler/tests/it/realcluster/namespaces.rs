//! An operator with `--namespace`, and users of one of these namespaces.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use realcluster::{AuditedRequest, Proxy};
use serde_json::{Value, json};

use super::gangs::role;
use super::permissions::{Permission, granted_permissions, is_allowed, is_tested, required_permissions};
use super::routers::{BINDINGS, router};
use super::serving::service;
use super::test_cluster::{CLASSES, DEPLOYMENTS, OME, PODS, ROLES, SERVICES, SETS, TestCluster};
use crate::deploy;
use crate::session::{TIMEOUT, ostler, outcome};

const WATCHED: [&str; 2] = ["team-a", "team-b"];
const OTHER: &str = "team-c";
const POOLS: (&str, &str) = ("backendpools.inference.networking.x-k8s.io", "v1alpha1");
const USE_CASE_SETS: (&str, &str) = ("llmusecasesets.inference.networking.x-k8s.io", "v1alpha1");
const USE_CASES: (&str, &str) = ("llmusecases.inference.networking.x-k8s.io", "v1alpha1");
const CLUSTER_ROLES: (&str, &str) = ("clusterroles.rbac.authorization.k8s.io", "v1");
const CLUSTER_BINDINGS: (&str, &str) = ("clusterrolebindings.rbac.authorization.k8s.io", "v1");

/// The operator serves two namespaces with their Roles, and does not send a request for another one. Users of a namespace
/// get explanations and plans, and write services if their role permits it.
pub(super) async fn operator_uses_only_its_namespaces(test_cluster: &mut TestCluster) {
    let start = Timestamp::now();
    let user = test_cluster.account.as_ref().unwrap().user.clone();
    install(test_cluster, &user).await;
    test_cluster.start_namespaced_operator("namespaced", &WATCHED).await;
    test_cluster.apply(&service(OTHER, "chat", json!({}))).await;
    for namespace in WATCHED {
        test_cluster.apply(&service(namespace, "chat", json!({}))).await;
        test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    }
    // The operator grants the endpoint picker permissions that it has only in the namespace.
    let roles = json!([role("engine", "worker", 1, 1, 1), router("prefix-cache")]);
    test_cluster
        .apply(&json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
            "metadata": {"name": "routed", "namespace": WATCHED[0]}, "spec": {"roles": roles}}))
        .await;
    test_cluster
        .wait_for("the RoleBinding of the router", BINDINGS, WATCHED[0], |found| found.contains_key("routed-epp"))
        .await;
    personas_write_their_kinds(test_cluster).await;
    users_of_a_namespace_get_explanations(test_cluster).await;
    for role in ["edit", "admin"] {
        editors_of_a_namespace_write_services(test_cluster, role).await;
    }

    let ignored = test_cluster.get(OME, OTHER, "chat").await;
    assert!(ignored["status"].is_null(), "{ignored}");
    test_cluster.delete(ROLES, WATCHED[0], "routed").await;
    for namespace in [&WATCHED[..], &[OTHER]].concat() {
        test_cluster.delete(OME, namespace, "chat").await;
        test_cluster.wait_for_deletion(namespace, &[OME, ROLES, DEPLOYMENTS, SETS, PODS, SERVICES]).await;
    }
    test_cluster.operator().process.lock().unwrap().kill().unwrap();
    check_requests(test_cluster, &user, start).await;
}

/// Replaces the installation for all namespaces.
async fn install(test_cluster: &TestCluster, user: &str) {
    test_cluster.delete(CLUSTER_BINDINGS, "", "ostler-operator").await;
    test_cluster.delete(CLUSTER_ROLES, "", "ostler-operator").await;
    test_cluster.cluster.apply(&deploy::namespaced_objects()).await.unwrap();
    for namespace in WATCHED {
        test_cluster.namespace(namespace).await;
        test_cluster.cluster.apply(&deploy::watched_namespace_objects(namespace)).await.unwrap();
    }
    test_cluster.namespace(OTHER).await;
    let patch_deployments = json!({"verbs": ["patch"], "apiGroups": ["apps"], "resources": ["deployments"]});
    test_cluster.wait_for_access(user, &patch_deployments, OTHER, false).await;
}

/// Checks that no request was forbidden, that objects outside of the namespaces were only read, and that the Roles grant
/// reading nothing that is not read.
async fn check_requests(test_cluster: &TestCluster, user: &str, start: Timestamp) {
    let requests = || realcluster::audited_requests(&test_cluster.cluster.audit_log(), user, start).unwrap();
    let used = |requests: &BTreeSet<AuditedRequest>, namespace: &str| -> BTreeSet<Permission> {
        let in_namespace = requests.iter().filter(|request| request.namespace == namespace && is_allowed(request));
        in_namespace.flat_map(required_permissions).collect()
    };
    let unused = || {
        let requests = requests();
        let mut unused = Vec::new();
        for (rules, namespace) in [
            (operator::cluster_reader_rules(), ""),
            (operator::watched_namespace_rules(), WATCHED[0]),
            (operator::watched_namespace_rules(), WATCHED[1]),
        ] {
            let used = used(&requests, namespace);
            let reads = granted_permissions(rules)
                .into_iter()
                .filter(|(_, _, verb)| ["list", "watch"].contains(&verb.as_str()));
            let unused_reads = reads.filter(|permission| is_tested(permission) && !used.contains(permission));
            unused.extend(unused_reads.map(|permission| (namespace, permission)));
        }
        unused
    };
    // The audit log contains a watch only after it has ended.
    let (begin, mut missing) = (Instant::now(), unused());
    while !missing.is_empty() && begin.elapsed() < TIMEOUT {
        tokio::time::sleep(Duration::from_millis(100)).await;
        missing = unused();
    }
    assert!(missing.is_empty(), "unused permissions: {missing:#?}");
    let requests = requests();
    let outside: Vec<&AuditedRequest> = requests
        .iter()
        .filter(|request| match request.namespace.as_str() {
            "" => !["list", "watch"].contains(&request.verb.as_str()),
            operator::DEFAULT_NAMESPACE => request.resource != "leases",
            namespace => !WATCHED.contains(&namespace),
        })
        .collect();
    assert!(outside.is_empty(), "requests outside of the namespaces: {outside:#?}");
    let forbidden: Vec<&AuditedRequest> = requests.iter().filter(|request| request.code == 403).collect();
    assert!(forbidden.is_empty(), "missing permissions: {forbidden:#?}");
}

/// A user with the role `view` in one namespace gets explanations and plans, with notes about what the user may not read.
async fn users_of_a_namespace_get_explanations(test_cluster: &TestCluster) {
    let namespace = WATCHED[0];
    let user = format!("system:serviceaccount:{namespace}:jane");
    create_account(test_cluster, "jane").await;
    test_cluster.apply(&binding("RoleBinding", "jane", "view")).await;
    // The controller that aggregates roles adds the permissions of `ostler-view` to `view`.
    let list_services = json!({"verbs": ["list"], "apiGroups": ["ome.io"], "resources": ["inferenceservices"]});
    test_cluster.wait_for_access(&user, &list_services, namespace, true).await;
    let jane = test_cluster.cluster.service_account(namespace, "jane").await.unwrap();
    let proxy = Proxy::start(jane.client).await.unwrap();
    let kubeconfig = test_cluster.directory.join("jane.kubeconfig");
    std::fs::write(&kubeconfig, proxy.kubeconfig()).unwrap();
    let manifest = test_cluster.directory.join("planned.json");
    std::fs::write(&manifest, service(namespace, "planned", json!({})).to_string()).unwrap();
    let command = |args: &[&str]| {
        let mut command = ostler(args);
        command.args(["--namespace", namespace, "--kubeconfig"]).arg(&kubeconfig);
        command
    };
    let explain = || command(&["explain", "inferenceservice.ome.io/chat"]);
    let plan = || command(&["plan", "--filename", manifest.to_str().unwrap()]);

    let forbidden = |resource: &str| format!("{resource} is forbidden: User \"{user}\" cannot list resource");
    let (explanation, notes) = run(explain()).await;
    assert!(explanation.contains("is ready"), "{explanation}");
    assert!(notes.contains(&format!("note: the capacity of nodes is unknown: {}", forbidden("nodes"))), "{notes}");
    assert!(
        notes.contains(&format!(
            "Pod, InferenceService objects outside of namespace `{namespace}` are not considered: "
        )),
        "{notes}"
    );
    let (table, notes) = run(plan()).await;
    assert!(table.contains("planned"), "{table}");
    assert!(notes.contains(&forbidden("acceleratorclasses.ome.io")), "{notes}");
    let shipped = "note: planning with the shipped ClusterServingRuntime, ClusterBaseModel, AcceleratorClass objects";
    assert!(notes.contains(shipped), "{notes}");

    test_cluster.apply(&binding("ClusterRoleBinding", "jane", "ostler-cluster-view")).await;
    let list_nodes = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["nodes"]});
    test_cluster.wait_for_access(&user, &list_nodes, "", true).await;
    for command in [explain(), plan()] {
        let (_, notes) = run(command).await;
        assert!(
            notes.contains("outside of namespace") && !notes.contains("capacity") && !notes.contains("shipped"),
            "{notes}"
        );
    }
    test_cluster.delete(CLUSTER_BINDINGS, "", "jane").await;
}

/// A user with the role `edit` or `admin` in one namespace writes the services of this namespace and no cluster-scoped objects.
/// For the whole cluster, `admin` includes these.
async fn editors_of_a_namespace_write_services(test_cluster: &TestCluster, role: &str) {
    let (namespace, user) = (WATCHED[0], format!("system:serviceaccount:{}:{role}", WATCHED[0]));
    create_account(test_cluster, role).await;
    test_cluster.apply(&binding("RoleBinding", role, role)).await;
    // The controller that aggregates roles adds the permissions of `ostler-edit` to `edit`, and those of `edit` to `admin`.
    let create_services = json!({"verbs": ["create"], "apiGroups": ["ome.io"], "resources": ["inferenceservices"]});
    test_cluster.wait_for_access(&user, &create_services, namespace, true).await;
    let client = test_cluster.cluster.service_account(namespace, role).await.unwrap().client;
    let class = json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "created"},
        "spec": {"discovery": {"nodeSelector": {"acme.example/gpu": "created"}}, "capabilities": {}}});
    assert_eq!(create_status(&client, OME, namespace, &service(namespace, "created", json!({}))).await, 201);
    assert_eq!(create_status(&client, OME, OTHER, &service(OTHER, "created", json!({}))).await, 403);
    assert_eq!(create_status(&client, CLASSES, "", &class).await, 403);

    test_cluster.apply(&binding("ClusterRoleBinding", role, role)).await;
    test_cluster.wait_for_access(&user, &create_services, OTHER, true).await;
    if role == "admin" {
        let create_classes = json!({"verbs": ["create"], "apiGroups": ["ome.io"], "resources": ["acceleratorclasses"]});
        test_cluster.wait_for_access(&user, &create_classes, "", true).await;
    }
    let expected_status = if role == "admin" { 201 } else { 403 };
    assert_eq!(create_status(&client, CLASSES, "", &class).await, expected_status);
    test_cluster.delete(CLUSTER_BINDINGS, "", role).await;
}

/// The platform team writes pools, and owners of use cases write these: neither can write what the other one owns.
// spec: GW-3
async fn personas_write_their_kinds(test_cluster: &TestCluster) {
    let namespace = WATCHED[0];
    let object = |kind: &str, spec: Value| {
        json!({"apiVersion": api::inference::API_VERSION, "kind": kind,
            "metadata": {"name": "persona", "namespace": namespace}, "spec": spec})
    };
    let pool = object("BackendPool", json!({"selector": {"app": "none"}, "targetPorts": [8000]}));
    let use_cases =
        object("LLMUseCaseSet", json!({"poolRef": [{"name": "persona"}], "useCases": [{"modelName": "m"}]}));
    let use_case = object("LLMUseCase", json!({"poolRef": [{"name": "persona"}], "modelName": "m"}));
    let objects = [(POOLS, pool), (USE_CASE_SETS, use_cases), (USE_CASES, use_case)];
    for (role, allowed) in [("ostler-pool-admin", [true, false, false]), ("ostler-use-case-owner", [false, true, true])]
    {
        create_account(test_cluster, role).await;
        test_cluster.apply(&binding("RoleBinding", role, role)).await;
        let user = format!("system:serviceaccount:{namespace}:{role}");
        let resource = if allowed[0] { "backendpools" } else { "llmusecasesets" };
        let create = json!({"verbs": ["create"], "apiGroups": [api::inference::GROUP], "resources": [resource]});
        test_cluster.wait_for_access(&user, &create, namespace, true).await;
        let client = test_cluster.cluster.service_account(namespace, role).await.unwrap().client;
        for ((kind, object), allowed) in objects.iter().zip(allowed) {
            let expected = if allowed { 201 } else { 403 };
            assert_eq!(create_status(&client, *kind, namespace, object).await, expected, "{role}: {object}");
            // A use case is published, its weights are changed, and it is withdrawn.
            test_cluster.apply(object).await;
            let api = realcluster::dynamic_api(&client, kind.0, kind.1, namespace);
            let label = json!({"metadata": {"labels": {"changed-by": role}}});
            let changed = api.patch("persona", &PatchParams::default(), &Patch::Merge(&label)).await;
            let deleted = api.delete("persona", &DeleteParams::background()).await;
            assert_eq!((changed.is_ok(), deleted.is_ok()), (allowed, allowed), "{role}: {object}");
            assert!(api.list(&ListParams::default()).await.is_ok(), "{role}: both read what the other one owns");
            test_cluster.delete(*kind, namespace, "persona").await;
        }
    }
}

/// Creates an object without persisting it, and returns the HTTP status.
async fn create_status(client: &Client, (resource, version): (&str, &str), namespace: &str, object: &Value) -> u16 {
    let api = realcluster::dynamic_api(client, resource, version, namespace);
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    match api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await {
        Ok(_) => 201,
        Err(kube::Error::Api(status)) if status.is_forbidden() => 403,
        Err(error) => panic!("{error:?}"),
    }
}

/// Creates a ServiceAccount in the first namespace.
async fn create_account(test_cluster: &TestCluster, name: &str) {
    let metadata = json!({"name": name, "namespace": WATCHED[0]});
    test_cluster.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})).await;
}

/// Returns a binding of the ServiceAccount `account` to a ClusterRole, in the first namespace or in the whole cluster.
fn binding(kind: &str, account: &str, role: &str) -> Value {
    let mut binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": WATCHED[0]}]});
    if kind == "RoleBinding" {
        binding["metadata"]["namespace"] = json!(WATCHED[0]);
    }
    binding
}

/// Runs a command that succeeds, and returns its output and its messages.
async fn run(mut command: Command) -> (String, String) {
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    (stdout, stderr)
}
