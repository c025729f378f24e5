//! Compares the shipped RBAC roles with the audit log: no request was forbidden, and all permissions are used.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::PolicyRules;
use jiff::Timestamp;
use realcluster::{AuditedRequest, Process, Proxy};
use serde_json::{Value, json};

use super::test_cluster::{DEPLOYMENTS, Objects, SETS, TestCluster, eventually, object_named};
use crate::deploy;
use crate::session::{TIMEOUT, ostler};

const SECRETS: (&str, &str) = ("secrets", "v1");
/// A Service without a selector. Its endpoint is this host, where the operators run.
const WEBHOOK_SERVICE: &str = "ostler-webhook-test";
/// Permissions that these tests do not use: replacing pools by a router, use cases that only endpoint pickers read (to grant a
/// permission, the operator needs it, without a request), pruning a long history, and objects of KEDA, which is not installed.
const UNTESTED_PERMISSIONS: [(&str, &[&str]); 5] = [
    ("backendpools", &["delete"]),
    ("llmusecasesets", &["delete"]),
    ("llmusecases", &["list", "watch"]),
    ("controllerrevisions", &["delete"]),
    ("scaledobjects", &["list", "watch", "create", "patch", "delete"]),
];

/// Behind a Service, the operators share the webhook certificate in a Secret and register it as CA bundle. An expiring
/// certificate is replaced and remains trusted. The API server calls both operators through the Service.
pub(super) async fn webhook_certificate_behind_service(test_cluster: &mut TestCluster, address: IpAddr) {
    let port = start_operator_behind_service(test_cluster, "third", address).await;
    let old_secret = wait_for_trusted_secret(test_cluster, |_| true).await;
    route_service(test_cluster, address, port).await;
    wait_for_webhook_rejection(test_cluster, "third").await;
    let expiry_patch = json!({"metadata": {"annotations": {"ostler.io/expires": "2020-01-01T00:00:00Z"}}});
    test_cluster.patch(SECRETS, operator::DEFAULT_NAMESPACE, "ostler-admission", &expiry_patch).await;
    let port = start_operator_behind_service(test_cluster, "fourth", address).await;
    let new_secret =
        wait_for_trusted_secret(test_cluster, |secret| secret["data"]["previous.crt"] == old_secret["data"]["tls.crt"])
            .await;
    assert_ne!(new_secret["data"]["tls.crt"], old_secret["data"]["tls.crt"]);
    route_service(test_cluster, address, port).await;
    wait_for_webhook_rejection(test_cluster, "fourth").await;
}

/// Returns an address of this host that is not a loopback address, as endpoints require. No packet is sent.
pub(super) fn host_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}

/// Starts an operator with a webhook and returns the port of the webhook.
async fn start_operator_behind_service(test_cluster: &mut TestCluster, name: &str, address: IpAddr) -> u16 {
    let (listen, service) = (format!("{address}:0"), format!("{}/{WEBHOOK_SERVICE}", operator::DEFAULT_NAMESPACE));
    test_cluster.start_operator(name, &["--webhook", &listen, "--webhook-service", &service]).await;
    let process = Arc::clone(&test_cluster.operator().process);
    let field = format!("address={address}:");
    eventually("the address of the admission webhook", async || {
        let output = process.lock().unwrap().output();
        let line = output.lines().find(|line| line.contains("serving the admission webhook"))?;
        line.split_once(&field)?.1.split_whitespace().next()?.parse().ok()
    })
    .await
}

/// Routes the Service to `port` of this host.
async fn route_service(test_cluster: &TestCluster, address: IpAddr, port: u16) {
    let metadata =
        |name: &str, labels: Value| json!({"name": name, "namespace": operator::DEFAULT_NAMESPACE, "labels": labels});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(WEBHOOK_SERVICE, json!({})),
        "spec": {"ports": [{"name": "webhook", "port": 443, "targetPort": port}]}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": metadata(WEBHOOK_SERVICE, json!({"kubernetes.io/service-name": WEBHOOK_SERVICE})),
        "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}]});
    test_cluster.cluster.apply(&[service, slice]).await.unwrap();
}

/// Waits until the API server calls the webhook and returns its rejection. The API server does not report when it has
/// observed a changed configuration.
async fn wait_for_webhook_rejection(test_cluster: &TestCluster, name: &str) {
    let kind = ("clusterservingruntimes.ome.io", "v1beta1");
    let name = format!("by-{name}");
    let object = json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterServingRuntime", "metadata": {"name": name},
        "spec": {"disabled": true, "modelSizeRange": {"min": "9B", "max": "5B"}}});
    let rejection = test_cluster.wait_for_rejection(&object, kind, "").await;
    assert!(
        rejection.contains("admission.ostler.io") && rejection.contains("min 9B is greater than max 5B"),
        "{rejection}"
    );
}

/// Waits for a Secret that matches `predicate` and for a webhook configuration that trusts its certificates.
async fn wait_for_trusted_secret(test_cluster: &TestCluster, predicate: impl Fn(&Value) -> bool) -> Value {
    let is_match = |objects: &Objects| objects.get("ostler-admission").is_some_and(&predicate);
    let mut secrets = test_cluster.wait_for("the Secret", SECRETS, operator::DEFAULT_NAMESPACE, is_match).await;
    let secret = secrets.remove("ostler-admission").unwrap();
    let pem = |text: &Value| String::from_utf8(STANDARD.decode(text.as_str().unwrap_or_default()).unwrap()).unwrap();
    let bundle = format!("{}{}", pem(&secret["data"]["tls.crt"]), pem(&secret["data"]["previous.crt"]));
    let configurations = ("validatingwebhookconfigurations.admissionregistration.k8s.io", "v1");
    test_cluster
        .wait_for("the configuration", configurations, "", |objects| {
            let client = &object_named(objects, "ostler-admission")["webhooks"][0]["clientConfig"];
            client["service"]["name"] == WEBHOOK_SERVICE && pem(&client["caBundle"]) == bundle
        })
        .await;
    secret
}

/// Runs the gateway with its ServiceAccount: it becomes ready, uses every permission of its ClusterRole, and no other one.
// spec: GW-1
pub(super) async fn gateway_uses_its_permissions(test_cluster: &TestCluster) {
    let definitions =
        [api::integrations::inference_objective_crds(), api::integrations::inference_model_rewrite_crds()].concat();
    test_cluster.cluster.apply_definitions(&definitions).await.unwrap();
    let account = test_cluster.cluster.service_account(operator::DEFAULT_NAMESPACE, "ostler-gateway").await.unwrap();
    let proxy = Proxy::start(account.client.clone()).await.unwrap();
    let kubeconfig = test_cluster.directory.join("gateway.kubeconfig");
    std::fs::write(&kubeconfig, proxy.kubeconfig()).unwrap();
    let mut command = ostler(&["gateway", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--kubeconfig"]);
    command.arg(kubeconfig).env("OSTLER_LOG", "info");
    let mut process = Process::start("gateway", &mut command, &test_cluster.cluster.log_directory()).unwrap();
    let namespace = "gateway";
    test_cluster.namespace(namespace).await;
    let object = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    };
    let pod =
        json!({"metadata": {"labels": {"app": "scaled"}}, "spec": {"containers": [{"name": "c", "image": "engine"}]}});
    let scaled_pool = |name: &str, kind: &str| {
        let scale_to_zero = json!({"targetRef": {"kind": kind, "name": "scaled"}});
        let spec = json!({"selector": {"app": "none"}, "targetPorts": [8000], "queue": {"timeout": "2s"},
            "implicitUseCases": "Allow", "scaleToZero": scale_to_zero});
        object("BackendPool", name, spec)
    };
    let route_object = |kind: &str, namespace: &str, spec: Value| {
        let metadata = match namespace {
            "" => json!({"name": "ostler"}),
            namespace => json!({"name": "ostler", "namespace": namespace}),
        };
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec})
    };
    let listener = json!({"name": "http", "port": 80, "protocol": "HTTP"});
    let rule = json!({"backendRefs": [
        {"group": "inference.networking.x-k8s.io", "kind": "BackendPool", "name": "chat", "port": 8000},
    ]});
    // Without a host name, it would also match the requests to the other pools.
    let route_spec = json!({"parentRefs": [{"name": "ostler"}], "hostnames": ["llm.example.com"], "rules": [rule]});
    let use_case = json!({"modelName": "one", "poolRef": [{"name": "chat"}]});
    let use_cases = json!({"poolRef": [{"name": "chat"}], "useCases": [{"modelName": "two"}]});
    for object in [
        object("BackendPool", "chat", json!({"selector": {"app": "chat"}, "targetPorts": [8000]})),
        object("LLMUseCase", "one", use_case),
        object("LLMUseCaseSet", "two", use_cases),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "scaled", "namespace": namespace},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "scaled"}}, "template": pod.clone()}}),
        json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
            "metadata": {"name": "scaled", "namespace": namespace},
            "spec": {"replicas": 0, "leaderWorkerTemplate": {"size": 1, "workerTemplate": pod}}}),
        scaled_pool("deployment", "Deployment"),
        scaled_pool("set", "LeaderWorkerSet"),
        route_object("GatewayClass", "", json!({"controllerName": picker::CONTROLLER_NAME})),
        route_object("Gateway", namespace, json!({"gatewayClassName": "ostler", "listeners": [listener]})),
        route_object("HTTPRoute", namespace, route_spec),
    ] {
        test_cluster.apply(&object).await;
    }
    let address = eventually("the address of the gateway", async || {
        let output = process.output();
        let line = output.lines().find(|line| line.contains("gateway is listening"))?;
        line.split_once("address=")?.1.split_whitespace().next().map(str::to_owned)
    })
    .await;
    let has_status = |request: &str, status: &str| {
        let mut stream = std::net::TcpStream::connect(&address).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        response.starts_with(&format!("HTTP/1.1 {status}")).then_some(())
    };
    let ready = "GET /readyz HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n";
    eventually("readiness of the gateway", async || tokio::task::block_in_place(|| has_status(ready, "200"))).await;
    for (pool, workloads) in [("deployment", DEPLOYMENTS), ("set", SETS)] {
        let body = r#"{"model":"m","prompt":"hi"}"#;
        let request = format!(
            "POST /{namespace}/{pool}/v1/completions HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        // No engine runs on this cluster, so the request waits in vain.
        eventually("a request that waits", async || tokio::task::block_in_place(|| has_status(&request, "503"))).await;
        let is_scaled = |objects: &Objects| object_named(objects, "scaled")["spec"]["replicas"] == 1;
        test_cluster.wait_for("a replica", workloads, namespace, is_scaled).await;
        test_cluster.delete(workloads, namespace, "scaled").await;
    }
    for (resource, name) in [("backendpools", "chat"), ("llmusecases", "one"), ("llmusecasesets", "two")] {
        let kind = (&*format!("{resource}.inference.networking.x-k8s.io"), "v1alpha1");
        let is_reported = |objects: &Objects| object_named(objects, name)["status"]["conditions"].is_array();
        test_cluster.wait_for("the status of the gateway", kind, namespace, is_reported).await;
    }
    let is_accepted = |status: &Value| {
        let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        !conditions.is_empty() && conditions.iter().all(|condition| condition["status"] == "True")
    };
    for (resource, namespace) in [("gatewayclasses", ""), ("gateways", namespace), ("httproutes", namespace)] {
        let kind = (&*format!("{resource}.gateway.networking.k8s.io"), "v1");
        let is_reported = |objects: &Objects| {
            let status = &object_named(objects, "ostler")["status"];
            is_accepted(if resource == "httproutes" { &status["parents"][0] } else { status })
        };
        test_cluster.wait_for("the status of the Gateway API", kind, namespace, is_reported).await;
    }
    process.kill().unwrap();
    let requests =
        || realcluster::audited_requests(&test_cluster.cluster.audit_log(), &account.user, Timestamp::MIN).unwrap();
    eventually("the use of all permissions of the gateway", async || {
        let used: BTreeSet<Permission> = requests().iter().flat_map(required_permissions).collect();
        granted_permissions(deploy::gateway_rules()).is_subset(&used).then_some(())
    })
    .await;
    let forbidden: Vec<AuditedRequest> = requests().into_iter().filter(|request| request.code == 403).collect();
    assert!(forbidden.is_empty(), "missing permissions: {forbidden:#?}");
    for (resource, namespace) in [("httproutes", namespace), ("gateways", namespace), ("gatewayclasses", "")] {
        let kind = (&*format!("{resource}.gateway.networking.k8s.io"), "v1");
        test_cluster.delete(kind, namespace, "ostler").await;
    }
    for resource in ["llmusecasesets", "llmusecases", "backendpools"] {
        let kind = (&*format!("{resource}.inference.networking.x-k8s.io"), "v1alpha1");
        for name in ["chat", "one", "two", "deployment", "set"] {
            test_cluster.delete(kind, namespace, name).await;
        }
    }
}

/// API group, resource and verb.
pub(super) type Permission = (String, String, String);

/// Returns the permissions that `rules` grant.
pub(super) fn granted_permissions(rules: PolicyRules) -> BTreeSet<Permission> {
    let mut permissions = BTreeSet::new();
    for rule in rules {
        let values = |field: &str| -> Vec<String> {
            rule[field].as_array().into_iter().flatten().map(|value| value.as_str().unwrap().to_owned()).collect()
        };
        for verb in values("verbs") {
            permissions.insert((values("apiGroups")[0].clone(), values("resources")[0].clone(), verb));
        }
    }
    permissions
}

/// Returns the permissions that a request requires: `patch` also requires `create` if it creates the object.
pub(super) fn required_permissions(access: &AuditedRequest) -> Vec<Permission> {
    let permission = |verb: &str| (access.group.clone(), access.resource.clone(), verb.to_owned());
    match (access.verb.as_str(), access.code) {
        ("patch", 201) => vec![permission("patch"), permission("create")],
        (verb, _) => vec![permission(verb)],
    }
}

/// Returns whether the request was allowed. A `get` of a missing object counts as allowed.
pub(super) fn is_allowed(access: &AuditedRequest) -> bool {
    access.code < 400 || (access.verb == "get" && access.code == 404)
}

/// Returns whether these tests use the permission. The admission plugin OwnerReferencesPermissionEnforcement checks
/// `finalizers` permissions without a request.
pub(super) fn is_tested(permission: &Permission) -> bool {
    let (_, resource, verb) = permission;
    let is_used = |(name, verbs): &(&str, &[&str])| name != resource || !verbs.contains(&verb.as_str());
    !resource.ends_with("/finalizers") && UNTESTED_PERMISSIONS.iter().all(is_used)
}

/// Checks that no request was forbidden and that all permissions are used. `is_behind_service` is true if the operators shared
/// the certificate in a Secret.
pub(super) async fn granted_permissions_are_used(test_cluster: &mut TestCluster, is_behind_service: bool) {
    let user = test_cluster.account.as_ref().unwrap().user.clone();
    for operator in &test_cluster.operators {
        operator.process.lock().unwrap().kill().unwrap();
    }
    let read_requests =
        || realcluster::audited_requests(&test_cluster.cluster.audit_log(), &user, Timestamp::MIN).unwrap();
    let unused_permissions = || -> Vec<Permission> {
        let used_permissions: BTreeSet<Permission> =
            read_requests().iter().filter(|access| is_allowed(access)).flat_map(required_permissions).collect();
        let is_expected =
            |permission: &Permission| is_tested(permission) && (is_behind_service || permission.1 != "secrets");
        granted_permissions([operator::cluster_role_rules(), operator::namespace_role_rules()].concat())
            .into_iter()
            .filter(|permission| is_expected(permission) && !used_permissions.contains(permission))
            .collect()
    };
    // The audit log contains a watch only after it has ended.
    let (start, mut unused) = (Instant::now(), unused_permissions());
    while !unused.is_empty() && start.elapsed() < TIMEOUT {
        tokio::time::sleep(Duration::from_millis(100)).await;
        unused = unused_permissions();
    }
    assert!(unused.is_empty(), "unused permissions: {unused:#?}");
    let requests = read_requests();
    let forbidden_requests: Vec<&AuditedRequest> = requests.iter().filter(|access| access.code == 403).collect();
    assert!(forbidden_requests.is_empty(), "missing permissions: {forbidden_requests:#?}");
    // The operator reads no Secret but its own.
    let secrets: Vec<&AuditedRequest> =
        requests.iter().filter(|access| access.resource == "secrets" && access.verb != "create").collect();
    assert!(
        secrets
            .iter()
            .all(|access| access.name == "ostler-admission" && access.namespace == operator::DEFAULT_NAMESPACE),
        "{secrets:?}"
    );
}
