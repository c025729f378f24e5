//! The manifests of `deploy/`. Roles and policies are generated from the code, and the controllers for namespaces are generated
//! from those for all namespaces.

use std::path::{Path, PathBuf};

use cluster::PolicyRules;
use operator::{DEFAULT_NAMESPACE, SERVICE_ACCOUNT_NAME};
use serde_json::{Value, json};

use crate::session::{ostler, outcome};

/// Environment variable; if set, the manifests are generated instead of compared.
const WRITE_VARIABLE: &str = "OSTLER_WRITE_DOCS";
const HEADER_END: &str = "# Generated from the code: OSTLER_WRITE_DOCS=1 cargo test -p ostler --test it deploy\n";
/// Namespace in the arguments of the controllers for namespaces.
const EXAMPLE_NAMESPACE: &str = "default";

fn deploy_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Returns the objects of the manifests in a directory of `deploy/`, in the order of `kubectl apply -f`.
fn objects_in(directory: &str) -> Vec<Value> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(deploy_directory().join(directory))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
        .iter()
        .flat_map(|file| realcluster::parse_documents(&std::fs::read_to_string(file).unwrap()).unwrap())
        .collect()
}

/// Returns the objects of the controllers for all namespaces, and of the gateway.
pub(crate) fn objects() -> Vec<Value> {
    objects_in("")
}

/// Returns the objects of controllers with `--namespace=NAMESPACE`: what they need in the cluster and in their own namespace.
pub(crate) fn namespaced_objects() -> Vec<Value> {
    objects_in("namespaced")
}

/// Returns the roles of controllers with `--namespace` in this namespace, and their bindings.
pub(crate) fn watched_namespace_objects(namespace: &str) -> Vec<Value> {
    let mut objects = objects_in("namespaced/watched");
    for object in &mut objects {
        object["metadata"]["namespace"] = json!(namespace);
    }
    objects
}

/// Name of the gateway's objects.
const GATEWAY: &str = "ostler-gateway";

/// Returns the rules of the gateway's ClusterRole.
pub(crate) fn gateway_rules() -> PolicyRules {
    let role = object_named("ClusterRole", GATEWAY);
    serde_json::from_value(role["rules"].clone()).unwrap()
}

/// Returns a role and its binding to a ServiceAccount. `namespace` is that of a Role; it may be empty if the user sets it.
fn role(account: &str, name: &str, namespace: Option<&str>, rules: PolicyRules) -> Vec<Value> {
    let group = "rbac.authorization.k8s.io";
    let object = |kind: &str| {
        let mut object = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name}});
        if let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object
    };
    let prefix = if namespace.is_none() { "Cluster" } else { "" };
    let role_kind = format!("{prefix}Role");
    let (mut role, mut binding) = (object(&role_kind), object(&format!("{role_kind}Binding")));
    role["rules"] = json!(rules);
    binding["roleRef"] = json!({"apiGroup": group, "kind": role_kind, "name": name});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": account, "namespace": DEFAULT_NAMESPACE}]);
    vec![role, binding]
}

/// Returns the objects of a controller with `--namespace` without webhook, from the shipped ones.
fn namespaced_controller(name: &str) -> Vec<Value> {
    let is_needed = |object: &Value| {
        object["metadata"]["name"] == name
            && ["Deployment", "PodDisruptionBudget", "NetworkPolicy"]
                .contains(&object["kind"].as_str().unwrap_or_default())
    };
    let mut objects: Vec<Value> = objects().into_iter().filter(is_needed).collect();
    for object in &mut objects {
        match object["kind"].as_str() {
            Some("Deployment") => remove_webhook(&mut object["spec"]["template"]["spec"]["containers"][0]),
            Some("NetworkPolicy") => {
                object["spec"]["ingress"][0]["ports"].as_array_mut().unwrap().retain(|port| port["port"] != "webhook");
            }
            _ => {}
        }
    }
    objects
}

fn remove_webhook(container: &mut Value) {
    let args = container["args"].as_array_mut().unwrap();
    args.retain(|arg| !arg.as_str().unwrap().starts_with("--webhook"));
    args.insert(1, json!(format!("--namespace={EXAMPLE_NAMESPACE}")));
    container["ports"].as_array_mut().unwrap().retain(|port| port["name"] != "webhook");
}

/// Returns the generated manifests: path, first lines and objects.
fn generated_manifests() -> Vec<(&'static str, &'static str, Vec<Value>)> {
    // The roles of a controller in the cluster and in its own namespace, which has the name of the account.
    let roles = |account, cluster_role, cluster_rules, own_rules| {
        let own_role = role(account, account, Some(DEFAULT_NAMESPACE), own_rules);
        [role(account, cluster_role, None, cluster_rules), own_role].concat()
    };
    let (operator_account, actuation_account) = (SERVICE_ACCOUNT_NAME, actuation::SERVICE_ACCOUNT_NAME);
    vec![
        (
            "10-roles.yaml",
            "# Permissions of the operator: exactly those that it uses.\n",
            roles(operator_account, operator_account, operator::cluster_role_rules(), operator::namespace_role_rules()),
        ),
        (
            "11-policies.yaml",
            "# Restrict the operator's ServiceAccount to the objects that it manages.\n",
            operator::admission_policies(DEFAULT_NAMESPACE),
        ),
        (
            "12-user-roles.yaml",
            "# Permissions of users on the kinds of ostler, aggregated to the roles view, edit and admin.\n",
            operator::user_roles(),
        ),
        (
            "namespaced/10-roles.yaml",
            "# Permissions of an operator with --namespace: read cluster-scoped kinds, and lead.\n",
            roles(
                operator_account,
                "ostler-operator-reader",
                operator::cluster_reader_rules(),
                operator::own_namespace_rules(),
            ),
        ),
        (
            "namespaced/20-operator.yaml",
            "# The operator for the namespaces in --namespace, without admission webhook. Adapt --namespace and the image.\n",
            namespaced_controller(SERVICE_ACCOUNT_NAME),
        ),
        (
            "namespaced/watched/10-role.yaml",
            "# Permissions of an operator with --namespace in each of these namespaces: kubectl -n NAMESPACE apply -f …\n",
            role(operator_account, "ostler-operator-watched", Some(""), operator::watched_namespace_rules()),
        ),
        (
            "41-actuation-roles.yaml",
            "# Permissions of the controller of dual pods.\n",
            roles(
                actuation_account,
                actuation_account,
                actuation::cluster_role_rules(),
                actuation::namespace_role_rules(),
            ),
        ),
        (
            "42-actuation-policies.yaml",
            "# Protect the annotations of dual pods, and restrict the controller's ServiceAccount to requesters and providers.\n",
            actuation::admission_policies(DEFAULT_NAMESPACE),
        ),
        (
            "namespaced/40-actuation.yaml",
            "# The controller of dual pods for the namespaces in --namespace. Adapt --namespace and the image.\n",
            namespaced_controller(actuation::SERVICE_ACCOUNT_NAME),
        ),
        (
            "namespaced/41-actuation-roles.yaml",
            "# Permissions of a controller of dual pods with --namespace: read nodes and its own gpu-map, and lead.\n",
            roles(
                actuation_account,
                "ostler-actuation-reader",
                actuation::cluster_reader_rules(),
                actuation::own_namespace_rules(),
            ),
        ),
        (
            "namespaced/watched/41-actuation-role.yaml",
            "# Permissions of a controller of dual pods with --namespace in each of these namespaces.\n",
            role(actuation_account, "ostler-actuation-watched", Some(""), actuation::watched_namespace_rules()),
        ),
    ]
}

fn object_named(kind: &str, name: &str) -> Value {
    let is_match = |object: &Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects().into_iter().find(is_match).unwrap_or_else(|| panic!("no {kind} {name} in deploy/"))
}

/// Returns the Deployments of operator, controller of dual pods and gateway, each with the other objects that its users install.
fn deployments() -> Vec<(Value, Vec<Value>)> {
    let with_objects = |objects: Vec<Value>| {
        let deployments: Vec<Value> = objects.iter().filter(|object| object["kind"] == "Deployment").cloned().collect();
        deployments.into_iter().map(move |deployment| (deployment, objects.clone())).collect::<Vec<_>>()
    };
    [objects(), namespaced_objects()].into_iter().flat_map(with_objects).collect()
}

#[test]
fn generated_manifests_match_the_code() {
    for (path, header, objects) in generated_manifests() {
        let documents: Vec<String> = objects.iter().map(|object| serde_saphyr::to_string(object).unwrap()).collect();
        let expected = format!("{header}{HEADER_END}{}", documents.join("---\n"));
        let file = deploy_directory().join(path);
        if std::env::var_os(WRITE_VARIABLE).is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &expected).unwrap();
        }
        let actual = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(actual, expected, "deploy/{path} is outdated: set {WRITE_VARIABLE}=1 and run this test again");
    }
}

#[test]
fn controllers_run_as_the_restricted_service_accounts() {
    for name in [SERVICE_ACCOUNT_NAME, actuation::SERVICE_ACCOUNT_NAME] {
        assert_eq!(object_named("ServiceAccount", name)["metadata"]["namespace"], DEFAULT_NAMESPACE);
    }
    for (deployment, _) in deployments() {
        assert_eq!(deployment["spec"]["template"]["spec"]["serviceAccountName"], deployment["metadata"]["name"]);
    }
    let policies: Vec<Value> =
        objects().into_iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy").collect();
    for (account, expected) in [(SERVICE_ACCOUNT_NAME, 2), (actuation::SERVICE_ACCOUNT_NAME, 1)] {
        let condition =
            json!(format!("request.userInfo.username == 'system:serviceaccount:{DEFAULT_NAMESPACE}:{account}'"));
        let restricts = |policy: &&Value| policy["spec"]["matchConditions"][0]["expression"] == condition;
        assert_eq!(policies.iter().filter(restricts).count(), expected, "{account}");
    }
}

/// Both replicas are neither on one node nor evicted together, and only the ports of the container are reachable.
#[test]
fn replicas_are_spread_and_isolated() {
    let ports = |object: &Value| -> Vec<String> {
        object
            .as_array()
            .unwrap()
            .iter()
            .map(|port| port["name"].as_str().or(port["port"].as_str()).unwrap().to_owned())
            .collect()
    };
    for (deployment, objects) in deployments() {
        let is_match = |object: &&Value, kind: &str| {
            object["kind"] == kind && object["metadata"]["name"] == deployment["metadata"]["name"]
        };
        let find_kind = |kind: &str| objects.iter().find(|object| is_match(object, kind)).cloned();
        let of_kind = |kind: &str| find_kind(kind).unwrap();
        // An apply would reset the number that an autoscaler has set.
        let autoscaler =
            find_kind("HorizontalPodAutoscaler").map(|autoscaler| autoscaler["spec"]["minReplicas"].clone());
        let (stated, expect) =
            (&deployment["spec"]["replicas"], if autoscaler.is_some() { Value::Null } else { 2.into() });
        assert_eq!((stated, autoscaler.unwrap_or(2.into())), (&expect, 2.into()));
        let template = &deployment["spec"]["template"];
        let selects = |selector: &Value| selector["matchLabels"] == template["metadata"]["labels"];
        assert!(selects(&of_kind("PodDisruptionBudget")["spec"]["selector"]));
        let constraints = template["spec"]["topologySpreadConstraints"].as_array().unwrap();
        assert!(constraints.iter().all(|constraint| selects(&constraint["labelSelector"])) && constraints.len() == 2);
        let network_policy = of_kind("NetworkPolicy");
        assert!(selects(&network_policy["spec"]["podSelector"]));
        let rules = network_policy["spec"]["ingress"].as_array().unwrap();
        let reachable: Vec<String> = rules.iter().flat_map(|rule| ports(&rule["ports"])).collect();
        assert_eq!(reachable, ports(&template["spec"]["containers"][0]["ports"]));
    }
}

#[test]
fn probes_use_the_health_endpoints() {
    for (deployment, _) in deployments() {
        let port = if deployment["metadata"]["name"] == GATEWAY { "http" } else { "metrics" };
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["livenessProbe"]["httpGet"], json!({"path": "/livez", "port": port}));
        assert_eq!(container["readinessProbe"]["httpGet"], json!({"path": "/readyz", "port": port}));
    }
}

/// Returns the values of `--port` of all containers beside `hostNetwork: true`.
fn host_network_ports(value: &Value) -> Vec<String> {
    let children = value.as_object().into_iter().flat_map(|fields| fields.values());
    let mut ports: Vec<String> =
        children.chain(value.as_array().into_iter().flatten()).flat_map(host_network_ports).collect();
    if value["hostNetwork"] == true {
        let args = value["runner"]["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        ports.extend(args.filter_map(|arg| arg.strip_prefix("--port=")).map(str::to_owned));
    }
    ports
}

/// Engines with `hostNetwork: true` are reached at the address of their node, which selectors do not match.
#[test]
fn gateway_may_connect_to_engines_on_the_network_of_their_node() {
    let rules = object_named("NetworkPolicy", GATEWAY)["spec"]["egress"].clone();
    let any_address = rules.as_array().unwrap().iter().filter(|rule| rule["to"].is_null());
    let ports = any_address.flat_map(|rule| rule["ports"].as_array().unwrap());
    let allowed: Vec<String> =
        ports.filter(|port| port["protocol"] == "TCP").map(|port| port["port"].to_string()).collect();
    let catalog = deploy_directory().join("../catalog/runtimes");
    let shipped = objects_in(catalog.join("sglang").to_str().unwrap());
    let shipped: Vec<String> = shipped.iter().flat_map(host_network_ports).collect();
    assert!(!shipped.is_empty());
    for port in shipped.iter().map(String::as_str).chain(["8000", "30000"]) {
        assert!(allowed.iter().any(|allowed| allowed == port), "{port}: {allowed:?}");
    }
}

/// The kubelet kills the gateway after the grace period, which begins with the hook.
#[test]
fn gateway_has_time_to_complete_requests() {
    let pod = &object_named("Deployment", GATEWAY)["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let args = container["args"].as_array().unwrap();
    let drain_timeout = args.iter().find_map(|arg| arg.as_str()?.strip_prefix("--drain-timeout=")).unwrap();
    let minutes: u64 = drain_timeout.strip_suffix('m').unwrap().parse().unwrap();
    let hook = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    let grace_period = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace_period > hook + minutes * 60, "{grace_period} s");
}

#[test]
fn deployments_pass_valid_arguments() {
    for (deployment, _) in deployments() {
        check_arguments(&deployment["spec"]["template"]["spec"]["containers"][0]);
    }
    let gateway_template = &object_named("Deployment", GATEWAY)["spec"]["template"];
    assert_eq!(object_named("Service", GATEWAY)["spec"]["selector"], gateway_template["metadata"]["labels"]);
    let peers = object_named("Service", "ostler-gateway-peers");
    assert_eq!(peers["spec"]["selector"], gateway_template["metadata"]["labels"]);
    let gateway_args = gateway_template["spec"]["containers"][0]["args"].to_string();
    for arg in [
        format!("--peer-service={}.{DEFAULT_NAMESPACE}.svc", peers["metadata"]["name"].as_str().unwrap()),
        format!("--peer-listen=0.0.0.0:{}", peers["spec"]["ports"][0]["port"]),
    ] {
        assert!(gateway_args.contains(&arg), "{arg}: {gateway_args}");
    }
    let deployment = object_named("Deployment", SERVICE_ACCOUNT_NAME);
    let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    let service = object_named("Service", "ostler-webhook");
    let webhook_service = format!(
        "--webhook-service={}/{}",
        service["metadata"]["namespace"].as_str().unwrap(),
        service["metadata"]["name"].as_str().unwrap()
    );
    assert!(args.contains(&webhook_service), "{args}");
    assert_eq!(service["spec"]["selector"], deployment["spec"]["template"]["metadata"]["labels"]);
}

/// Runs `ostler` with the arguments of a container.
fn check_arguments(container: &Value) {
    let args: Vec<&str> = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    // The arguments are parsed before the kubeconfig is read.
    let local_args: Vec<String> = args
        .iter()
        .map(|arg| {
            ["9464", "8443", "8080"]
                .iter()
                .fold((*arg).to_owned(), |arg, port| arg.replace(&format!("0.0.0.0:{port}"), "127.0.0.1:0"))
        })
        .collect();
    let local_args: Vec<&str> = local_args.iter().map(String::as_str).collect();
    let (_, stderr, code) = outcome(&ostler(&local_args).args(["--kubeconfig", "/nonexistent"]).output().unwrap());
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: kubeconfig /nonexistent"), "{stderr}");
}
