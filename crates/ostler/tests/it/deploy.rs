//! The manifests of `deploy/`: the roles are written from what the operator does, and kept in step with it here.

use std::path::{Path, PathBuf};

use operator::rights;
use serde_json::{Value, json};

use crate::session::{ostler, outcome};

/// Set, the roles are written anew instead of compared.
const WRITE: &str = "OSTLER_WRITE_DOCS";
const ROLES: &str = "10-roles.yaml";
const INTRODUCTION: &str = "# What the operator may do: exactly what it does.
# Written from the code: OSTLER_WRITE_DOCS=1 cargo test -p ostler --test it deploy
";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Every object of the folder, in the order in which `kubectl apply -f deploy/` takes them.
pub(crate) fn objects() -> Vec<Value> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files.iter().flat_map(|file| realcluster::documents(&std::fs::read_to_string(file).unwrap()).unwrap()).collect()
}

fn roles() -> String {
    let role = |kind: &str, metadata: Value, rules: rights::Rules| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules});
    let cluster = role("ClusterRole", json!({"name": "ostler-operator"}), rights::of_cluster());
    let place = json!({"name": "ostler-operator", "namespace": operator::NAMESPACE});
    let namespace = role("Role", place, rights::of_namespace());
    let yaml = |object: &Value| serde_saphyr::to_string(object).unwrap();
    format!("{INTRODUCTION}{}---\n{}", yaml(&cluster), yaml(&namespace))
}

fn the(kind: &str) -> Value {
    objects().into_iter().find(|object| object["kind"] == kind).unwrap()
}

#[test]
fn the_roles_are_in_step_with_the_code() {
    let (path, wanted) = (folder().join(ROLES), roles());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, wanted, "deploy/{ROLES} is out of step: set {WRITE}=1 and run this test again");
}

#[test]
fn both_roles_are_bound_to_the_account_that_the_operator_runs_as() {
    let account = &the("ServiceAccount")["metadata"];
    assert_eq!(the("Deployment")["spec"]["template"]["spec"]["serviceAccountName"], account["name"]);
    for (binding, role) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
        let binding = the(binding);
        assert_eq!(binding["roleRef"]["kind"], role);
        assert_eq!(binding["roleRef"]["name"], the(role)["metadata"]["name"]);
        let subject = &binding["subjects"][0];
        assert_eq!((&subject["name"], &subject["namespace"]), (&account["name"], &account["namespace"]));
    }
}

#[test]
fn the_deployment_starts_what_the_binary_has() {
    let deployment = the("Deployment");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let args: Vec<&str> = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    // It reads its arguments before it looks for a cluster.
    let local: Vec<String> = args
        .iter()
        .map(|arg| arg.replace("0.0.0.0:9464", "127.0.0.1:0").replace("0.0.0.0:8443", "127.0.0.1:0"))
        .collect();
    let local: Vec<&str> = local.iter().map(String::as_str).collect();
    let (_, stderr, code) = outcome(&ostler(&local).args(["--kubeconfig", "/nonexistent"]).output().unwrap());
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: kubeconfig /nonexistent"), "{stderr}");
    let service = the("Service");
    let named = format!(
        "--webhook-service={}/{}",
        service["metadata"]["namespace"].as_str().unwrap(),
        service["metadata"]["name"].as_str().unwrap()
    );
    assert!(args.contains(&named.as_str()), "{args:?}");
    assert_eq!(service["spec"]["selector"], deployment["spec"]["template"]["metadata"]["labels"]);
}
