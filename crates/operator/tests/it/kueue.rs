//! Kueue's flavors and our classes keep in step, and a person's word counts.

use cluster::conditions::find;
use operator::Options;
use serde_json::{Value, json};

use crate::accelerators::{CLASSES, by_hand, gpu, knowing, names};
use crate::cluster::{CATALOGUE, SERVICES, World, five_lines};

const FLAVORS: &str = "resourceflavors.kueue.x-k8s.io";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const A100: &str = "A100-SXM4-40GB";

/// What Kueue's own definition says about the fields that matter here.
fn definition(versions: &[&str]) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "nodeLabels": {"type": "object", "maxProperties": 8, "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"}}}}}});
    let last = versions.len() - 1;
    let version = |(index, name): (usize, &&str)| json!({"name": name, "served": true, "storage": index == last, "schema": schema});
    json!({"metadata": {"name": FLAVORS}, "spec": {"group": "kueue.x-k8s.io", "scope": "Cluster",
        "names": {"kind": "ResourceFlavor", "listKind": "ResourceFlavorList", "plural": "resourceflavors", "singular": "resourceflavor"},
        "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>()}})
}

fn flavor(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeLabels": labels}})
}

/// Kueue with both versions, and the operator without discovery, so that every class has one origin.
fn start() -> World {
    let world = World::empty();
    world.server.create(DEFINITIONS, definition(&["v1beta1", "v1beta2"])).unwrap();
    world.operate(Options { discovery: false, ..knowing() });
    world
}

impl World {
    fn edit_flavor(&self, name: &str, change: impl Fn(&mut Value)) {
        let mut flavor = (*self.server.get(FLAVORS, "", name).unwrap()).clone();
        change(&mut flavor);
        self.server.update(FLAVORS, flavor).unwrap();
    }

    async fn gone(&self, resource: &str, name: &str) {
        self.until(&format!("{resource} {name} gone"), |server| server.get(resource, "", name).is_none().then_some(()))
            .await;
    }
}

fn synced(class: &Value) -> Option<&Value> {
    find(&class["status"]["conditions"], "FlavorSynced")
}

fn linked(name: &str, flavor: &str, product: &str) -> Value {
    let mut class = by_hand(name, json!({"nvidia.com/gpu.product": product}));
    class["spec"]["integration"] = json!({"kueueResourceFlavor": flavor});
    class
}

// spec: ACC-49
// spec: ACC-52
// spec: ACC-53
#[tokio::test(start_paused = true)]
async fn a_flavor_makes_a_class_that_follows_it_until_edited() {
    let world = start();
    world.server.create(FLAVORS, flavor("gpu-nvidia-a100", json!({"nvidia.com/gpu.product": A100}))).unwrap();
    world.server.create(FLAVORS, flavor("gpu-like", json!({"node-pool": "cpu"}))).unwrap();
    let class = world.class("gpu-nvidia-a100", |class| synced(class).is_some_and(|one| one["status"] == "True")).await;
    assert_eq!(class["metadata"]["annotations"]["ome.io/kueue-resource-flavor"], "gpu-nvidia-a100");
    assert_eq!(class["spec"]["discovery"]["nodeSelector"], json!({"nvidia.com/gpu.product": A100}));
    assert_eq!(class["spec"]["capabilities"]["memoryGB"], "40Gi");
    assert_eq!(class["spec"]["capabilities"]["computeCapability"], "8.0");
    world.edit_flavor("gpu-nvidia-a100", |one| one["spec"]["nodeLabels"]["zone"] = json!("a"));
    world.class("gpu-nvidia-a100", |class| class["spec"]["discovery"]["nodeSelector"]["zone"] == "a").await;

    world.edit_class("gpu-nvidia-a100", |class| class["spec"]["cost"] = json!({"perHour": "2.21"}));
    world.edit_flavor("gpu-nvidia-a100", |one| one["spec"]["nodeLabels"]["zone"] = json!("b"));
    let kept =
        world.class("gpu-nvidia-a100", |class| synced(class).is_some_and(|one| one["reason"] == "ClassEdited")).await;
    assert_eq!(kept["spec"]["discovery"]["nodeSelector"]["zone"], "a");
    world.server.delete(FLAVORS, "", "gpu-nvidia-a100", None).unwrap();
    world.class("gpu-nvidia-a100", |class| synced(class).is_some_and(|one| one["reason"] == "FlavorGone")).await;
    world.quiet().await;
    assert_eq!(names(&world.server, CLASSES), ["gpu-nvidia-a100"], "an edited class stays, a CPU flavor makes none");
}

// spec: ACC-53
#[tokio::test(start_paused = true)]
async fn an_unedited_class_goes_with_its_flavor() {
    let world = start();
    world.server.create(FLAVORS, flavor("a100-pool", json!({"nvidia.com/gpu.product": A100}))).unwrap();
    world.class("a100-pool", |_| true).await;
    world.server.delete(FLAVORS, "", "a100-pool", None).unwrap();
    world.gone(CLASSES, "a100-pool").await;
}

// spec: ACC-52
// spec: ACC-53
#[tokio::test(start_paused = true)]
async fn a_class_makes_the_flavor_that_it_names() {
    let world = start();
    world.server.create(CLASSES, linked("mine", "f", A100)).unwrap();
    let made = world.until("the flavor", |server| server.get(FLAVORS, "", "f")).await;
    assert_eq!(made["spec"]["nodeLabels"], json!({"nvidia.com/gpu.product": A100}));
    assert_eq!(made["apiVersion"], "kueue.x-k8s.io/v1beta2");
    world.class("mine", |class| synced(class).is_some_and(|one| one["status"] == "True")).await;
    world.edit_class("mine", |class| class["spec"]["discovery"]["nodeSelector"]["zone"] = json!("a"));
    world
        .until("the change", |server| {
            server.get(FLAVORS, "", "f").filter(|one| one["spec"]["nodeLabels"]["zone"] == "a")
        })
        .await;
    world.quiet().await;
    assert_eq!(names(&world.server, CLASSES), ["mine"], "a made flavor makes no class");

    world.edit_flavor("f", |one| one["spec"]["nodeLabels"]["zone"] = json!("mine"));
    world.class("mine", |class| synced(class).is_some_and(|one| one["reason"] == "FlavorDiffers")).await;
    world.server.delete(CLASSES, "", "mine", None).unwrap();
    world.quiet().await;
    assert_eq!(names(&world.server, FLAVORS), ["f"], "an edited flavor stays");
    world.server.create(CLASSES, linked("other", "g", "NVIDIA-L4")).unwrap();
    world.until("the second flavor", |server| server.get(FLAVORS, "", "g")).await;
    world.server.delete(CLASSES, "", "other", None).unwrap();
    world.gone(FLAVORS, "g").await;
}

#[tokio::test(start_paused = true)]
async fn a_class_of_terms_says_that_no_flavor_can_express_it() {
    let world = start();
    let mut class = linked("mine", "f", A100);
    class["spec"]["discovery"] =
        json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]});
    world.server.create(CLASSES, class).unwrap();
    world.class("mine", |class| synced(class).is_some_and(|one| one["reason"] == "FlavorNotExpressible")).await;
    assert!(names(&world.server, FLAVORS).is_empty());
}

// spec: ACC-53
#[tokio::test(start_paused = true)]
async fn ten_further_reconciles_write_nothing() {
    let world = start();
    world.server.create(FLAVORS, flavor("theirs", json!({"nvidia.com/gpu.product": A100}))).unwrap();
    world.server.create(CLASSES, linked("mine", "ours", "NVIDIA-L4")).unwrap();
    world.class("theirs", |class| synced(class).is_some_and(|one| one["status"] == "True")).await;
    world.class("mine", |class| synced(class).is_some_and(|one| one["status"] == "True")).await;
    world.quiet().await;
    let before = world.requests();
    for touch in 0..10 {
        for name in ["theirs", "ours"] {
            world.edit_flavor(name, |one| {
                one["metadata"]["annotations"]["example.com/touched"] = json!(touch.to_string());
            });
        }
        world
            .edit_class("mine", |one| one["metadata"]["annotations"]["example.com/touched"] = json!(touch.to_string()));
    }
    world.quiet().await;
    assert_eq!(world.requests(), before);
}

// spec: ACC-11
// spec: ACC-54
#[tokio::test(start_paused = true)]
async fn kueue_may_come_later_and_in_its_older_version() {
    let world = World::empty();
    world.server.create("nodes", gpu("a", A100)).unwrap();
    world.server.create(CLASSES, linked("mine", "f", A100)).unwrap();
    world.create_all(CATALOGUE[1].0, CATALOGUE[1].1);
    world.create_all(CATALOGUE[2].0, CATALOGUE[2].1);
    world.operate(Options { discovery: false, ..knowing() });
    let class = world.class("mine", |class| synced(class).is_some()).await;
    assert_eq!(synced(&class).unwrap()["reason"], "KueueMissing");
    assert_eq!(find(&class["status"]["conditions"], "Ready").unwrap()["status"], "True");
    world.server.create(SERVICES, five_lines("chat", "llama-3-2-3b-instruct")).unwrap();
    world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    world.server.create(DEFINITIONS, definition(&["v1beta1"])).unwrap();
    world.until("the flavor", |server| server.get(FLAVORS, "", "f")).await;
    world.server.create(FLAVORS, flavor("a100-pool", json!({"nvidia.com/gpu.memory": "40960"}))).unwrap();
    world.class("a100-pool", |_| true).await;
    world.class("mine", |class| synced(class).is_some_and(|one| one["status"] == "True")).await;
}

// spec: ACC-104
// spec: ACC-124
#[tokio::test(start_paused = true)]
async fn carol_applies_a_flavor_and_a_service() {
    let world = World::empty();
    world.server.create(DEFINITIONS, definition(&["v1beta1", "v1beta2"])).unwrap();
    world.create_all(CATALOGUE[1].0, CATALOGUE[1].1);
    world.create_all(CATALOGUE[2].0, CATALOGUE[2].1);
    world.server.create(CLASSES, by_hand("elsewhere", json!({"nvidia.com/gpu.product": "NVIDIA-L4"}))).unwrap();
    world.operate(Options { discovery: false, ..knowing() });
    let mut service = five_lines("chat", "llama-3-2-3b-instruct");
    service["metadata"]["annotations"] = json!({"ome.io/accelerator-class": "gpu-nvidia-a100"});
    service["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "carol"});
    world.server.create(SERVICES, service).unwrap();
    world.condition(SERVICES, "chat", "Ready", "False").await;
    // The waiting service learns of the flavor and of its nodes through stored objects alone.
    world.server.create(FLAVORS, flavor("gpu-nvidia-a100", json!({"nvidia.com/gpu.product": A100}))).unwrap();
    world.class("gpu-nvidia-a100", |_| true).await;
    let mut node = gpu("a", A100);
    node["metadata"]["labels"]["nvidia.com/gpu.memory"] = json!("40960");
    world.server.create("nodes", node).unwrap();
    world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    let deployment =
        world.until("the workload", |server| server.get("deployments.apps", "default", "chat-engine")).await;
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"]["nvidia.com/gpu.product"], A100);
    assert_eq!(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"].to_string().trim_matches('"'), "1");
    assert_eq!(deployment["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "carol");
}
