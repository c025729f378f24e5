//! Synchronization of Kueue's ResourceFlavors and accelerator classes.

use cluster::find_condition;
use operator::Options;
use serde_json::{Value, json};

use crate::accelerator_classes::{CLASSES, copy_of, gpu_node, names, options_with_known_classes, user_class};
use crate::test_cluster::{CATALOG, OME_SERVICES, TestCluster, minimal_service};

pub(crate) const FLAVORS: &str = "resourceflavors.kueue.x-k8s.io";
const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const A100: &str = "A100-SXM4-40GB";

/// Returns the relevant fields of Kueue's CRD.
pub(crate) fn flavor_crd(versions: &[&str]) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "nodeLabels": {"type": "object", "maxProperties": 8, "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"}}}}}});
    let last_index = versions.len() - 1;
    let version = |(index, name): (usize, &&str)| json!({"name": name, "served": true, "storage": index == last_index, "schema": schema});
    json!({"metadata": {"name": FLAVORS}, "spec": {"group": "kueue.x-k8s.io", "scope": "Cluster",
        "names": {"kind": "ResourceFlavor", "listKind": "ResourceFlavorList", "plural": "resourceflavors", "singular": "resourceflavor"},
        "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>()}})
}

pub(crate) fn flavor(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeLabels": labels}})
}

/// Installs both versions of Kueue's CRD and starts the operator without discovery, so that every class has one origin.
fn start() -> TestCluster {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create(CRDS, flavor_crd(&["v1beta1", "v1beta2"])).unwrap();
    test_cluster.start_operator(Options { discovery: false, ..options_with_known_classes() });
    test_cluster
}

impl TestCluster {
    fn edit_flavor(&self, name: &str, change: impl Fn(&mut Value)) {
        let mut flavor = (*self.server.get(FLAVORS, "", name).unwrap()).clone();
        change(&mut flavor);
        self.server.update(FLAVORS, flavor).unwrap();
    }

    pub(crate) async fn wait_for_deletion(&self, resource: &str, name: &str) {
        self.wait_for(&format!("deletion of {resource} {name}"), |server| {
            server.get(resource, "", name).is_none().then_some(())
        })
        .await;
    }
}

fn flavor_condition(class: &Value) -> Option<&Value> {
    find_condition(&class["status"]["conditions"], "FlavorSynced")
}

fn linked_class(name: &str, flavor: &str, product: &str) -> Value {
    let mut class = user_class(name, json!({"nvidia.com/gpu.product": product}));
    class["spec"]["integration"] = json!({"kueueResourceFlavor": flavor});
    class
}

// spec: ACC-49
// spec: ACC-52
// spec: ACC-53
#[tokio::test(start_paused = true)]
async fn class_follows_its_flavor_until_it_is_edited() {
    let test_cluster = start();
    test_cluster.server.create(FLAVORS, flavor("gpu-nvidia-a100", json!({"nvidia.com/gpu.product": A100}))).unwrap();
    test_cluster.server.create(FLAVORS, flavor("gpu-like", json!({"node-pool": "cpu"}))).unwrap();
    let class = test_cluster
        .wait_for_class("gpu-nvidia-a100", |class| {
            flavor_condition(class).is_some_and(|condition| condition["status"] == "True")
        })
        .await;
    assert_eq!(class["metadata"]["annotations"]["ome.io/kueue-resource-flavor"], "gpu-nvidia-a100");
    assert_eq!(class["spec"]["discovery"]["nodeSelector"], json!({"nvidia.com/gpu.product": A100}));
    assert_eq!(class["spec"]["capabilities"]["memoryGB"], "40Gi");
    assert_eq!(class["spec"]["capabilities"]["computeCapability"], "8.0");
    test_cluster.edit_flavor("gpu-nvidia-a100", |flavor| flavor["spec"]["nodeLabels"]["zone"] = json!("a"));
    test_cluster
        .wait_for_class("gpu-nvidia-a100", |class| class["spec"]["discovery"]["nodeSelector"]["zone"] == "a")
        .await;

    test_cluster.edit_class("gpu-nvidia-a100", |class| class["spec"]["cost"] = json!({"perHour": "2.21"}));
    test_cluster.edit_flavor("gpu-nvidia-a100", |flavor| flavor["spec"]["nodeLabels"]["zone"] = json!("b"));
    let edited_class = test_cluster
        .wait_for_class("gpu-nvidia-a100", |class| {
            flavor_condition(class).is_some_and(|condition| condition["reason"] == "ClassEdited")
        })
        .await;
    assert_eq!(edited_class["spec"]["discovery"]["nodeSelector"]["zone"], "a");
    test_cluster.server.delete(FLAVORS, "", "gpu-nvidia-a100", None).unwrap();
    test_cluster
        .wait_for_class("gpu-nvidia-a100", |class| {
            flavor_condition(class).is_some_and(|condition| condition["reason"] == "FlavorGone")
        })
        .await;
    test_cluster.wait_until_idle().await;
    assert_eq!(
        names(&test_cluster.server, CLASSES),
        ["gpu-nvidia-a100"],
        "the edited class is retained, and a CPU flavor creates no class"
    );
}

// spec: ACC-53
#[tokio::test(start_paused = true)]
async fn unmodified_class_is_deleted_with_its_flavor() {
    let test_cluster = start();
    test_cluster.server.create(FLAVORS, flavor("a100-pool", json!({"nvidia.com/gpu.product": A100}))).unwrap();
    test_cluster.wait_for_class("a100-pool", |_| true).await;
    test_cluster.server.delete(FLAVORS, "", "a100-pool", None).unwrap();
    test_cluster.wait_for_deletion(CLASSES, "a100-pool").await;
}

// spec: ACC-52
// spec: ACC-53
#[tokio::test(start_paused = true)]
async fn class_creates_the_flavor_that_it_references() {
    let test_cluster = start();
    test_cluster.server.create(CLASSES, linked_class("mine", "f", A100)).unwrap();
    let created = test_cluster.wait_for("the flavor", |server| server.get(FLAVORS, "", "f")).await;
    assert_eq!(created["spec"]["nodeLabels"], json!({"nvidia.com/gpu.product": A100}));
    assert_eq!(created["apiVersion"], "kueue.x-k8s.io/v1beta2");
    test_cluster
        .wait_for_class("mine", |class| flavor_condition(class).is_some_and(|condition| condition["status"] == "True"))
        .await;
    test_cluster.edit_class("mine", |class| class["spec"]["discovery"]["nodeSelector"]["zone"] = json!("a"));
    test_cluster
        .wait_for("the change", |server| {
            server.get(FLAVORS, "", "f").filter(|flavor| flavor["spec"]["nodeLabels"]["zone"] == "a")
        })
        .await;
    test_cluster.wait_until_idle().await;
    assert_eq!(names(&test_cluster.server, CLASSES), ["mine"], "a created flavor creates no class");

    test_cluster.edit_flavor("f", |flavor| flavor["spec"]["nodeLabels"]["zone"] = json!("mine"));
    test_cluster
        .wait_for_class("mine", |class| {
            flavor_condition(class).is_some_and(|condition| condition["reason"] == "FlavorDiffers")
        })
        .await;
    test_cluster.server.delete(CLASSES, "", "mine", None).unwrap();
    test_cluster.wait_until_idle().await;
    assert_eq!(names(&test_cluster.server, FLAVORS), ["f"], "the edited flavor is retained");
    test_cluster.server.create(CLASSES, linked_class("other", "g", "NVIDIA-L4")).unwrap();
    test_cluster.wait_for("the second flavor", |server| server.get(FLAVORS, "", "g")).await;
    test_cluster.server.delete(CLASSES, "", "other", None).unwrap();
    test_cluster.wait_for_deletion(FLAVORS, "g").await;
}

/// Copies have the annotations of the generated objects, but their field manager is the user.
#[tokio::test(start_paused = true)]
async fn copies_of_generated_objects_are_not_deleted() {
    let test_cluster = start();
    test_cluster.server.create(FLAVORS, flavor("a100-pool", json!({"nvidia.com/gpu.product": A100}))).unwrap();
    let generated_class = test_cluster.wait_for_class("a100-pool", |_| true).await;
    test_cluster.server.create(CLASSES, linked_class("mine", "f", "NVIDIA-L4")).unwrap();
    let generated_flavor = test_cluster.wait_for("the flavor", |server| server.get(FLAVORS, "", "f")).await;
    let class = copy_of(&generated_class, "class-copy");
    test_cluster.server.create(CLASSES, class.clone()).unwrap();
    let flavor = test_cluster.server.create(FLAVORS, copy_of(&generated_flavor, "flavor-copy")).unwrap();
    test_cluster.wait_until_idle().await;
    test_cluster.server.delete(FLAVORS, "", "a100-pool", None).unwrap();
    test_cluster.server.delete(CLASSES, "", "mine", None).unwrap();
    test_cluster.wait_for_deletion(CLASSES, "a100-pool").await;
    test_cluster.wait_for_deletion(FLAVORS, "f").await;
    test_cluster.wait_until_idle().await;
    let retained_class = test_cluster.server.get(CLASSES, "", "class-copy").unwrap();
    assert_eq!(retained_class["spec"], class["spec"]);
    assert_eq!(flavor_condition(&retained_class).unwrap()["reason"], "FlavorGone");
    assert_eq!(test_cluster.server.get(FLAVORS, "", "flavor-copy").unwrap(), flavor);
}

#[tokio::test(start_paused = true)]
async fn reports_class_that_no_flavor_can_express() {
    let test_cluster = start();
    let mut class = linked_class("mine", "f", A100);
    class["spec"]["discovery"] =
        json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]});
    test_cluster.server.create(CLASSES, class).unwrap();
    test_cluster
        .wait_for_class("mine", |class| {
            flavor_condition(class).is_some_and(|condition| condition["reason"] == "FlavorNotExpressible")
        })
        .await;
    assert!(names(&test_cluster.server, FLAVORS).is_empty());
}

// spec: ACC-53
#[tokio::test(start_paused = true)]
async fn repeated_reconciles_write_nothing() {
    let test_cluster = start();
    test_cluster.server.create(FLAVORS, flavor("theirs", json!({"nvidia.com/gpu.product": A100}))).unwrap();
    test_cluster.server.create(CLASSES, linked_class("mine", "ours", "NVIDIA-L4")).unwrap();
    test_cluster
        .wait_for_class("theirs", |class| {
            flavor_condition(class).is_some_and(|condition| condition["status"] == "True")
        })
        .await;
    test_cluster
        .wait_for_class("mine", |class| flavor_condition(class).is_some_and(|condition| condition["status"] == "True"))
        .await;
    test_cluster.wait_until_idle().await;
    let requests_before = test_cluster.requests();
    for round in 0..10 {
        for name in ["theirs", "ours"] {
            test_cluster.edit_flavor(name, |flavor| {
                flavor["metadata"]["annotations"]["example.com/touched"] = json!(round.to_string());
            });
        }
        test_cluster.edit_class("mine", |class| {
            class["metadata"]["annotations"]["example.com/touched"] = json!(round.to_string());
        });
    }
    test_cluster.wait_until_idle().await;
    assert_eq!(test_cluster.requests(), requests_before);
}

// spec: ACC-11
// spec: ACC-54
#[tokio::test(start_paused = true)]
async fn kueue_may_be_installed_later_in_its_older_version() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("nodes", gpu_node("a", A100)).unwrap();
    test_cluster.server.create(CLASSES, linked_class("mine", "f", A100)).unwrap();
    test_cluster.create_all(CATALOG[1].0, CATALOG[1].1);
    test_cluster.create_all(CATALOG[2].0, CATALOG[2].1);
    test_cluster.start_operator(Options { discovery: false, ..options_with_known_classes() });
    let class = test_cluster.wait_for_class("mine", |class| flavor_condition(class).is_some()).await;
    assert_eq!(flavor_condition(&class).unwrap()["reason"], "KueueMissing");
    assert_eq!(find_condition(&class["status"]["conditions"], "Ready").unwrap()["status"], "True");
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", "llama-3-2-3b-instruct")).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    test_cluster.server.create(CRDS, flavor_crd(&["v1beta1"])).unwrap();
    test_cluster.wait_for("the flavor", |server| server.get(FLAVORS, "", "f")).await;
    test_cluster.server.create(FLAVORS, flavor("a100-pool", json!({"nvidia.com/gpu.memory": "40960"}))).unwrap();
    test_cluster.wait_for_class("a100-pool", |_| true).await;
    test_cluster
        .wait_for_class("mine", |class| flavor_condition(class).is_some_and(|condition| condition["status"] == "True"))
        .await;
}

// spec: ACC-104
// spec: ACC-124
#[tokio::test(start_paused = true)]
async fn service_waits_for_a_flavor_and_its_nodes() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create(CRDS, flavor_crd(&["v1beta1", "v1beta2"])).unwrap();
    test_cluster.create_all(CATALOG[1].0, CATALOG[1].1);
    test_cluster.create_all(CATALOG[2].0, CATALOG[2].1);
    test_cluster
        .server
        .create(CLASSES, user_class("elsewhere", json!({"nvidia.com/gpu.product": "NVIDIA-L4"})))
        .unwrap();
    test_cluster.start_operator(Options { discovery: false, ..options_with_known_classes() });
    let mut service = minimal_service("chat", "llama-3-2-3b-instruct");
    service["metadata"]["annotations"] = json!({"ome.io/accelerator-class": "gpu-nvidia-a100"});
    service["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "carol"});
    test_cluster.server.create(OME_SERVICES, service).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "Ready", "False").await;
    // The waiting service is enqueued by changes of stored objects only.
    test_cluster.server.create(FLAVORS, flavor("gpu-nvidia-a100", json!({"nvidia.com/gpu.product": A100}))).unwrap();
    test_cluster.wait_for_class("gpu-nvidia-a100", |_| true).await;
    let mut node = gpu_node("a", A100);
    node["metadata"]["labels"]["nvidia.com/gpu.memory"] = json!("40960");
    test_cluster.server.create("nodes", node).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    let deployment =
        test_cluster.wait_for("the workload", |server| server.get("deployments.apps", "default", "chat-engine")).await;
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"]["nvidia.com/gpu.product"], A100);
    assert_eq!(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"].to_string().trim_matches('"'), "1");
    assert_eq!(deployment["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "carol");
}
