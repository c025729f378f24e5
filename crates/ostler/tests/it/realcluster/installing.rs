//! Installs the CustomResourceDefinitions, the catalog and the operator, and checks which objects are rejected.

use std::path::Path;

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::test_cluster::{CLASSES, DEPLOYMENTS, TestCluster};
use crate::deploy;
use crate::session::{ostler, outcome};

/// Runs `ostler` and parses its output as manifests.
fn read_manifests(args: &[&str]) -> Vec<Value> {
    let (stdout, stderr, code) = outcome(&ostler(args).output().unwrap());
    assert_eq!(code, Some(0), "{args:?}: {stderr}");
    realcluster::parse_documents(&stdout).unwrap()
}

pub(super) async fn install_definitions(test_cluster: &TestCluster) {
    test_cluster.cluster.apply_definitions(&read_manifests(&["crds"])).await.unwrap();
    compare_schemas_of_both_scopes(test_cluster).await;
}

// spec: RT-1
async fn compare_schemas_of_both_scopes(test_cluster: &TestCluster) {
    let definitions = ("customresourcedefinitions.apiextensions.k8s.io", "v1");
    let spec = |definition: Value| {
        let mut spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
        spec.as_object_mut().unwrap().remove("description");
        spec
    };
    let namespaced = test_cluster.get(definitions, "", "servingruntimes.ome.io").await;
    let cluster_scoped = test_cluster.get(definitions, "", "clusterservingruntimes.ome.io").await;
    assert_eq!(
        (&namespaced["spec"]["scope"], &cluster_scoped["spec"]["scope"]),
        (&json!("Namespaced"), &json!("Cluster"))
    );
    assert_eq!(spec(namespaced), spec(cluster_scoped));
}

// spec: RT-84
// spec: RT-85
pub(super) async fn install_catalog(test_cluster: &TestCluster) {
    let mut runtimes = 0;
    for object in catalog_objects(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog")) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let manifests = match object["kind"].as_str() {
            Some("ClusterServingRuntime") => read_manifests(&["catalog", "show", name]),
            _ => vec![object.clone()],
        };
        for manifest in manifests {
            let stored = test_cluster.apply(&manifest).await;
            assert!(contains(&stored["spec"], &object["spec"]), "{name} is stored as {stored}");
            runtimes += usize::from(manifest["kind"] == "ClusterServingRuntime");
        }
    }
    assert!(runtimes >= 30, "{runtimes} runtimes");
}

/// Reads the manifests below `directory`.
fn catalog_objects(directory: &Path) -> Vec<Value> {
    let mut entries: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let read = |path: &std::path::PathBuf| match path.is_dir() {
        true => catalog_objects(path),
        false => realcluster::parse_documents(&std::fs::read_to_string(path).unwrap()).unwrap(),
    };
    entries.iter().flat_map(read).collect()
}

/// Returns whether `stored` contains all values of `expected`; defaults may have been added.
fn contains(stored: &Value, expected: &Value) -> bool {
    match (stored, expected) {
        (Value::Object(stored), Value::Object(expected)) => {
            expected.iter().all(|(key, value)| stored.get(key).is_some_and(|stored| contains(stored, value)))
        }
        (Value::Array(stored), Value::Array(expected)) => {
            stored.len() == expected.len() && stored.iter().zip(expected).all(|(stored, value)| contains(stored, value))
        }
        (Value::Number(stored), Value::Number(expected)) => stored.as_f64() == expected.as_f64(),
        (stored, expected) => stored == expected,
    }
}

/// Applies `deploy/`. The Pods are admitted although the restricted Pod security standard is enforced.
pub(super) async fn install_operator(test_cluster: &TestCluster) {
    test_cluster.cluster.apply(&deploy::objects()).await.unwrap();
    test_cluster
        .wait_for("two Pods of operator and gateway", DEPLOYMENTS, operator::DEFAULT_NAMESPACE, |objects| {
            let is_ready = |name: &str| objects.get(name).is_some_and(|object| object["status"]["readyReplicas"] == 2);
            is_ready("ostler-operator") && is_ready("ostler-gateway")
        })
        .await;
}

fn runtime(kind: &str, spec: Value) -> Value {
    let mut runtime =
        json!({"apiVersion": "ome.io/v1beta1", "kind": kind, "metadata": {"name": "rejected"}, "spec": spec});
    if kind == "ServingRuntime" {
        runtime["metadata"]["namespace"] = json!("default");
    }
    runtime
}

// spec: RT-72
pub(super) async fn schema_rejects_invalid_objects(test_cluster: &TestCluster) {
    let use_cases = json!([{"modelName": "chat"}, {"modelName": "chat"}]);
    let set = json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": "LLMUseCaseSet",
        "metadata": {"name": "duplicates", "namespace": "default"},
        "spec": {"poolRef": [{"name": "p"}], "useCases": use_cases}});
    let rejection = test_cluster.rejection(&set).await.expect("a duplicate model name is rejected");
    assert!(rejection.contains("modelName of each use case must be unique"), "{rejection}");
    for kind in ["ServingRuntime", "ClusterServingRuntime"] {
        for priority in [0, -1] {
            let formats = json!([{"modelFormat": {"name": "safetensors", "version": "1.0.0"}, "priority": priority}]);
            let object = runtime(kind, json!({"supportedModelFormats": formats}));
            let rejection = test_cluster.rejection(&object).await.expect("a priority below 1 is rejected");
            assert!(rejection.contains("spec.supportedModelFormats[0].priority"), "{rejection}");
        }
    }
}

fn class(memory: &str) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "manual"}, "spec": {
        "vendor": "acme", "capabilities": {"memoryGB": memory},
        "discovery": {"nodeSelector": {"acme.example/gpu": "one"}}}})
}

// spec: ACC-12
// spec: ACC-31
pub(super) async fn update_class_and_status(test_cluster: &TestCluster) {
    let (api, params) = (test_cluster.api(CLASSES, ""), PatchParams::default());
    let mut created: Value = serde_json::to_value(
        api.create(&PostParams::default(), &serde_json::from_value(class("80Gi")).unwrap()).await.unwrap(),
    )
    .unwrap();
    assert_eq!(created["metadata"]["generation"], 1);
    // Updates of the spec ignore the status, and updates of the status ignore the spec.
    created["spec"]["vendor"] = json!("apex");
    created["status"] = json!({"availableNodes": 7});
    let replaced =
        api.replace("manual", &PostParams::default(), &serde_json::from_value(created).unwrap()).await.unwrap();
    assert_eq!(replaced.data["spec"]["vendor"], "apex");
    assert!(replaced.data["status"]["availableNodes"].is_null());
    let spec_and_status = json!({"spec": {"vendor": "ignored"}, "status": {"availableNodes": 5}});
    let patched_status = api.patch_status("manual", &params, &Patch::Merge(&spec_and_status)).await.unwrap();
    assert_eq!(
        (&patched_status.data["spec"]["vendor"], &patched_status.data["status"]["availableNodes"]),
        (&json!("apex"), &json!(5))
    );
    assert_eq!(patched_status.metadata.generation, replaced.metadata.generation);
    let patched_spec = api.patch("manual", &params, &Patch::Merge(&json!({"spec": {"vendor": "acme"}}))).await.unwrap();
    assert_eq!(
        (&patched_spec.data["spec"]["vendor"], &patched_spec.data["status"]["availableNodes"]),
        (&json!("acme"), &json!(5))
    );
    assert!(
        api.list(&Default::default())
            .await
            .unwrap()
            .items
            .iter()
            .any(|class| class.metadata.name.as_deref() == Some("manual"))
    );
    test_cluster.delete(CLASSES, "", "manual").await;
    test_cluster.wait_for("the deletion of the class", CLASSES, "", |objects| !objects.contains_key("manual")).await;
}

/// The API server calls the webhook as soon as it has observed its configuration; until then, it stores the object.
pub(super) async fn webhook_rejects_invalid_objects(test_cluster: &TestCluster) {
    for kind in ["ServingRuntime", "ClusterServingRuntime"] {
        let object = runtime(kind, json!({"disabled": true, "modelSizeRange": {"min": "9B", "max": "5B"}}));
        let configurations = ("validatingwebhookconfigurations.admissionregistration.k8s.io", "v1");
        test_cluster
            .wait_for("the webhook's configuration", configurations, "", |objects| {
                objects.contains_key("ostler-admission")
            })
            .await;
        let (resource, namespace) = if kind == "ServingRuntime" {
            ("servingruntimes.ome.io", "default")
        } else {
            ("clusterservingruntimes.ome.io", "")
        };
        let rejection = test_cluster.wait_for_rejection(&object, (resource, "v1beta1"), namespace).await;
        assert!(rejection.contains("admission.ostler.io"), "{rejection}");
        assert!(
            rejection.contains("spec.modelSizeRange") && rejection.contains("min 9B is greater than max 5B"),
            "{rejection}"
        );
    }
}
