//! The manifests of `deploy/`. The RBAC roles are generated from the permissions of the operator.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::session::{ostler, outcome};

/// Environment variable; if set, the roles are generated instead of compared.
const WRITE_VARIABLE: &str = "OSTLER_WRITE_DOCS";
const ROLES: &str = "10-roles.yaml";
const HEADER: &str = "# Permissions of the operator: exactly those that it uses.
# Generated from the code: OSTLER_WRITE_DOCS=1 cargo test -p ostler --test it deploy
";

fn deploy_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Returns the objects of all manifests, in the order of `kubectl apply -f deploy/`.
pub(crate) fn objects() -> Vec<Value> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(deploy_directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
        .iter()
        .flat_map(|file| realcluster::parse_documents(&std::fs::read_to_string(file).unwrap()).unwrap())
        .collect()
}

fn roles() -> String {
    let role = |kind: &str, metadata: Value, rules: operator::PolicyRules| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules});
    let cluster = role("ClusterRole", json!({"name": "ostler-operator"}), operator::cluster_role_rules());
    let metadata = json!({"name": "ostler-operator", "namespace": operator::DEFAULT_NAMESPACE});
    let namespace = role("Role", metadata, operator::namespace_role_rules());
    let yaml = |object: &Value| serde_saphyr::to_string(object).unwrap();
    format!("{HEADER}{}---\n{}", yaml(&cluster), yaml(&namespace))
}

fn object_of_kind(kind: &str) -> Value {
    objects().into_iter().find(|object| object["kind"] == kind).unwrap()
}

#[test]
fn roles_match_the_code() {
    let (path, expected) = (deploy_directory().join(ROLES), roles());
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let actual = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "deploy/{ROLES} is outdated: set {WRITE_VARIABLE}=1 and run this test again");
}

#[test]
fn roles_are_bound_to_the_service_account() {
    let account = &object_of_kind("ServiceAccount")["metadata"];
    assert_eq!(object_of_kind("Deployment")["spec"]["template"]["spec"]["serviceAccountName"], account["name"]);
    for (binding, role) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
        let binding = object_of_kind(binding);
        assert_eq!(binding["roleRef"]["kind"], role);
        assert_eq!(binding["roleRef"]["name"], object_of_kind(role)["metadata"]["name"]);
        let subject = &binding["subjects"][0];
        assert_eq!((&subject["name"], &subject["namespace"]), (&account["name"], &account["namespace"]));
    }
}

#[test]
fn deployment_passes_valid_arguments() {
    let deployment = object_of_kind("Deployment");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let args: Vec<&str> = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    // The arguments are parsed before the kubeconfig is read.
    let local_args: Vec<String> = args
        .iter()
        .map(|arg| arg.replace("0.0.0.0:9464", "127.0.0.1:0").replace("0.0.0.0:8443", "127.0.0.1:0"))
        .collect();
    let local_args: Vec<&str> = local_args.iter().map(String::as_str).collect();
    let (_, stderr, code) = outcome(&ostler(&local_args).args(["--kubeconfig", "/nonexistent"]).output().unwrap());
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: kubeconfig /nonexistent"), "{stderr}");
    let service = object_of_kind("Service");
    let webhook_service = format!(
        "--webhook-service={}/{}",
        service["metadata"]["namespace"].as_str().unwrap(),
        service["metadata"]["name"].as_str().unwrap()
    );
    assert!(args.contains(&webhook_service.as_str()), "{args:?}");
    assert_eq!(service["spec"]["selector"], deployment["spec"]["template"]["metadata"]["labels"]);
}
