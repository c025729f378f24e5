//! From nothing to a cluster that has our definitions, the catalogue and the operator's account; and what is refused.

use std::path::Path;

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::world::{CLASSES, DEPLOYMENTS, World};
use crate::deploy;
use crate::session::{ostler, outcome};

fn printed(args: &[&str]) -> Vec<Value> {
    let (stdout, stderr, code) = outcome(&ostler(args).output().unwrap());
    assert_eq!(code, Some(0), "{args:?}: {stderr}");
    realcluster::documents(&stdout).unwrap()
}

pub(super) async fn definitions(world: &World) {
    world.cluster.define(&printed(&["crds"])).await.unwrap();
    schemas_of_both_scopes(world).await;
}

// spec: RT-1
async fn schemas_of_both_scopes(world: &World) {
    let definitions = ("customresourcedefinitions.apiextensions.k8s.io", "v1");
    let spec = |definition: Value| {
        let mut spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
        spec.as_object_mut().unwrap().remove("description");
        spec
    };
    let of_namespace = world.get(definitions, "", "servingruntimes.ome.io").await;
    let of_cluster = world.get(definitions, "", "clusterservingruntimes.ome.io").await;
    assert_eq!(
        (&of_namespace["spec"]["scope"], &of_cluster["spec"]["scope"]),
        (&json!("Namespaced"), &json!("Cluster"))
    );
    assert_eq!(spec(of_namespace), spec(of_cluster));
}

// spec: RT-84
// spec: RT-85
pub(super) async fn catalogue(world: &World) {
    let mut runtimes = 0;
    for given in shipped(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog")) {
        let name = given["metadata"]["name"].as_str().unwrap();
        let manifests = match given["kind"].as_str() {
            Some("ClusterServingRuntime") => printed(&["catalog", "show", name]),
            _ => vec![given.clone()],
        };
        for manifest in manifests {
            let stored = world.apply(&manifest).await;
            assert!(holds(&stored["spec"], &given["spec"]), "{name} is stored as {stored}");
            runtimes += usize::from(manifest["kind"] == "ClusterServingRuntime");
        }
    }
    assert!(runtimes >= 30, "{runtimes} runtimes");
}

fn shipped(folder: &Path) -> Vec<Value> {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let read = |path: &std::path::PathBuf| match path.is_dir() {
        true => shipped(path),
        false => realcluster::documents(&std::fs::read_to_string(path).unwrap()).unwrap(),
    };
    entries.iter().flat_map(read).collect()
}

/// Whether everything that was given is there; defaults may have come with it.
fn holds(stored: &Value, given: &Value) -> bool {
    match (stored, given) {
        (Value::Object(stored), Value::Object(given)) => {
            given.iter().all(|(key, value)| stored.get(key).is_some_and(|there| holds(there, value)))
        }
        (Value::Array(stored), Value::Array(given)) => {
            stored.len() == given.len() && stored.iter().zip(given).all(|(there, value)| holds(there, value))
        }
        (Value::Number(stored), Value::Number(given)) => stored.as_f64() == given.as_f64(),
        (stored, given) => stored == given,
    }
}

/// `kubectl apply -f deploy/`: also the Pods are admitted, where the restricted security standard is enforced.
pub(super) async fn the_shipped_manifests(world: &World) {
    world.cluster.apply(&deploy::objects()).await.unwrap();
    world
        .until("two Pods of the operator", DEPLOYMENTS, operator::NAMESPACE, |found| {
            found.get("ostler-operator").is_some_and(|one| one["status"]["readyReplicas"] == 2)
        })
        .await;
}

fn runtime(kind: &str, spec: Value) -> Value {
    let mut runtime =
        json!({"apiVersion": "ome.io/v1beta1", "kind": kind, "metadata": {"name": "refused"}, "spec": spec});
    if kind == "ServingRuntime" {
        runtime["metadata"]["namespace"] = json!("default");
    }
    runtime
}

// spec: RT-72
pub(super) async fn refusals_of_the_schema(world: &World) {
    for kind in ["ServingRuntime", "ClusterServingRuntime"] {
        for priority in [0, -1] {
            let formats = json!([{"modelFormat": {"name": "safetensors", "version": "1.0.0"}, "priority": priority}]);
            let given = runtime(kind, json!({"supportedModelFormats": formats}));
            let refusal = world.refusal(&given).await.expect("a priority below one is refused");
            assert!(refusal.contains("spec.supportedModelFormats[0].priority"), "{refusal}");
        }
    }
}

fn class(memory: &str) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "by-hand"}, "spec": {
        "vendor": "acme", "capabilities": {"memoryGB": memory},
        "discovery": {"nodeSelector": {"acme.example/gpu": "one"}}}})
}

// spec: ACC-12
// spec: ACC-31
pub(super) async fn classes(world: &World) {
    let (api, params) = (world.api(CLASSES, ""), PatchParams::default());
    let mut created: Value = serde_json::to_value(
        api.create(&PostParams::default(), &serde_json::from_value(class("80Gi")).unwrap()).await.unwrap(),
    )
    .unwrap();
    assert_eq!(created["metadata"]["generation"], 1);
    // A write of the spec leaves the status alone, also when it carries one; and the other way round.
    created["spec"]["vendor"] = json!("apex");
    created["status"] = json!({"availableNodes": 7});
    let replaced =
        api.replace("by-hand", &PostParams::default(), &serde_json::from_value(created).unwrap()).await.unwrap();
    assert_eq!(replaced.data["spec"]["vendor"], "apex");
    assert!(replaced.data["status"]["availableNodes"].is_null());
    let both = json!({"spec": {"vendor": "nobody"}, "status": {"availableNodes": 5}});
    let told = api.patch_status("by-hand", &params, &Patch::Merge(&both)).await.unwrap();
    assert_eq!((&told.data["spec"]["vendor"], &told.data["status"]["availableNodes"]), (&json!("apex"), &json!(5)));
    assert_eq!(told.metadata.generation, replaced.metadata.generation);
    let patched = api.patch("by-hand", &params, &Patch::Merge(&json!({"spec": {"vendor": "acme"}}))).await.unwrap();
    assert_eq!(
        (&patched.data["spec"]["vendor"], &patched.data["status"]["availableNodes"]),
        (&json!("acme"), &json!(5))
    );
    assert!(
        api.list(&Default::default())
            .await
            .unwrap()
            .items
            .iter()
            .any(|one| one.metadata.name.as_deref() == Some("by-hand"))
    );
    world.delete(CLASSES, "", "by-hand").await;
    world.until("a class that is gone", CLASSES, "", |found| !found.contains_key("by-hand")).await;
}

/// The webhook is asked as soon as the API server has learnt of it; until then the object is stored.
pub(super) async fn refusals_of_the_webhook(world: &World) {
    for kind in ["ServingRuntime", "ClusterServingRuntime"] {
        let given = runtime(kind, json!({"disabled": true, "modelSizeRange": {"min": "9B", "max": "5B"}}));
        let configurations = ("validatingwebhookconfigurations.admissionregistration.k8s.io", "v1");
        world
            .until("the webhook's configuration", configurations, "", |found| found.contains_key("ostler-admission"))
            .await;
        let (resource, namespace) = if kind == "ServingRuntime" {
            ("servingruntimes.ome.io", "default")
        } else {
            ("clusterservingruntimes.ome.io", "")
        };
        let refusal = world.until_refused(&given, (resource, "v1beta1"), namespace).await;
        assert!(refusal.contains("admission.ostler.io"), "{refusal}");
        assert!(refusal.contains("spec.modelSizeRange") && refusal.contains("min 9B is above max 5B"), "{refusal}");
    }
}
