//! The base set of accelerator classes in the operator's namespace.

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::accelerator_classes::{CLASSES, copy_of, gpu_node, names, options_with_known_classes, user_class};
use crate::events::event_faults;
use crate::test_cluster::TestCluster;

const BASE_SET: &str = include_str!("../../../decide/src/inventory/base_set_seed.yaml");

fn config_map(text: &str) -> Value {
    json!({"metadata": {"namespace": "ome-system", "name": "accelerator-classes-base"}, "data": {"accelerator-classes.yaml": text}})
}

fn start(text: &str) -> TestCluster {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("namespaces", json!({"metadata": {"name": "ome-system"}})).unwrap();
    test_cluster.server.create("configmaps", config_map(text)).unwrap();
    test_cluster.start_operator(options_with_known_classes());
    test_cluster
}

fn update_config_map(test_cluster: &TestCluster, text: &str) {
    let mut object =
        (*test_cluster.server.get("configmaps", "ome-system", "accelerator-classes-base").unwrap()).clone();
    object["data"]["accelerator-classes.yaml"] = json!(text);
    test_cluster.server.update("configmaps", object).unwrap();
}

/// Returns the text of the event about an invalid base set.
pub(crate) fn invalid_document_event(server: &embedded::Server) -> Option<String> {
    let events = server.list("events.events.k8s.io");
    let events = if events.is_empty() { server.list("events") } else { events };
    let event = events.into_iter().find(|event| event["reason"] == "InvalidDocument")?;
    Some(event["note"].as_str().or(event["message"].as_str())?.to_owned())
}

// spec: ACC-35
#[tokio::test(start_paused = true)]
async fn applies_updates_and_deletes_classes() {
    let test_cluster = start(BASE_SET);
    for name in ["small-gpu", "medium-gpu", "large-gpu"] {
        test_cluster.wait_for_class(name, |class| class["status"]["conditions"].is_array()).await;
    }
    test_cluster.server.create("nodes", gpu_node("a", "NVIDIA-X900")).unwrap();
    test_cluster.wait_for_class("large-gpu", |class| class["status"]["nodes"] == json!(["a"])).await;
    test_cluster.edit_class("medium-gpu", |class| class["spec"]["vendor"] = json!("nvidia"));
    update_config_map(
        &test_cluster,
        &BASE_SET
            .replace("memoryGB: \"80Gi\"", "memoryGB: \"94Gi\"")
            .replace("memoryGB: \"40Gi\"", "memoryGB: \"48Gi\""),
    );
    test_cluster.wait_for_class("large-gpu", |class| class["spec"]["capabilities"]["memoryGB"] == "94Gi").await;
    test_cluster.wait_until_idle().await;
    let edited_class = test_cluster.server.get(CLASSES, "", "medium-gpu").unwrap();
    assert_eq!(edited_class["spec"]["capabilities"]["memoryGB"], "40Gi", "the edit is retained");
    test_cluster.server.delete("configmaps", "ome-system", "accelerator-classes-base", None).unwrap();
    test_cluster
        .wait_for("deletion of unmodified classes", |server| {
            (!names(server, CLASSES).contains(&"large-gpu".to_owned())).then_some(())
        })
        .await;
    test_cluster.wait_until_idle().await;
    assert!(names(&test_cluster.server, CLASSES).contains(&"medium-gpu".to_owned()));
}

// spec: ACC-35
#[tokio::test(start_paused = true)]
async fn invalid_document_emits_an_event_and_deletes_nothing() {
    let test_cluster = start(BASE_SET);
    test_cluster.wait_for_class("large-gpu", |_| true).await;
    let invalid_document = BASE_SET.replace("name: large-gpu", "name: [");
    update_config_map(&test_cluster, &invalid_document);
    let text = test_cluster.wait_for("the event", invalid_document_event).await;
    assert!(text.starts_with("accelerator-classes.yaml, document 3"), "{text}");
    test_cluster.wait_until_idle().await;
    assert!(names(&test_cluster.server, CLASSES).contains(&"large-gpu".to_owned()));
}

/// An error counts as reported only once its event was created.
#[tokio::test(start_paused = true)]
async fn event_about_invalid_document_is_retried() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("namespaces", json!({"metadata": {"name": "ome-system"}})).unwrap();
    let invalid_document = BASE_SET.replace("name: large-gpu", "name: [");
    test_cluster.server.create("configmaps", config_map(&invalid_document)).unwrap();
    let (faults, _) = event_faults(2);
    let _operator = test_cluster.start_operator_with_faults(options_with_known_classes(), faults);
    let invalid_document_event = |server: &embedded::Server| {
        server.list("events").into_iter().find(|event| event["reason"] == "InvalidDocument")
    };
    test_cluster.wait_for("the event", invalid_document_event).await;
}

#[tokio::test(start_paused = true)]
async fn user_class_with_the_same_name_is_not_modified() {
    let test_cluster = TestCluster::empty();
    test_cluster.server.create("namespaces", json!({"metadata": {"name": "ome-system"}})).unwrap();
    test_cluster.server.create(CLASSES, user_class("small-gpu", json!({"a": "b"}))).unwrap();
    let spec_before = test_cluster.server.get(CLASSES, "", "small-gpu").unwrap()["spec"].clone();
    test_cluster.server.create("configmaps", config_map(BASE_SET)).unwrap();
    test_cluster.start_operator(options_with_known_classes());
    test_cluster.wait_for_class("large-gpu", |_| true).await;
    test_cluster.wait_until_idle().await;
    assert_eq!(test_cluster.server.get(CLASSES, "", "small-gpu").unwrap()["spec"], spec_before);
}

/// A misspelled key does not mean that the base set is empty.
#[tokio::test(start_paused = true)]
async fn misspelled_key_emits_an_event_and_deletes_nothing() {
    let test_cluster = start(BASE_SET);
    test_cluster.wait_for_class("large-gpu", |_| true).await;
    let mut object =
        (*test_cluster.server.get("configmaps", "ome-system", "accelerator-classes-base").unwrap()).clone();
    object["data"] = json!({"accelerator-class.yaml": BASE_SET});
    test_cluster.server.update("configmaps", object).unwrap();
    let text = test_cluster.wait_for("the event", invalid_document_event).await;
    assert_eq!(
        text,
        "key `accelerator-classes.yaml` is missing; the ConfigMap has `accelerator-class.yaml`; hint: rename the key to \
         `accelerator-classes.yaml`, or delete the ConfigMap to remove its classes"
    );
    test_cluster.wait_until_idle().await;
    for name in ["small-gpu", "medium-gpu", "large-gpu"] {
        assert!(names(&test_cluster.server, CLASSES).contains(&name.to_owned()), "{name}");
    }
}

/// Earlier releases did not record the identity of generated classes. Classes of the base set are adopted; others may be copies.
#[tokio::test(start_paused = true)]
async fn classes_of_an_earlier_release_are_adopted() {
    let test_cluster = start(BASE_SET);
    let generated = test_cluster.wait_for_class("large-gpu", |_| true).await;
    test_cluster.wait_until_idle().await;
    let earlier = TestCluster::empty();
    earlier.server.create("namespaces", json!({"metadata": {"name": "ome-system"}})).unwrap();
    let api = kube::Api::<DynamicObject>::all_with(
        earlier.user_client(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk("ome.io", "v1beta1", "AcceleratorClass")),
    );
    for name in ["large-gpu", "large-gpu-copy"] {
        let mut class = copy_of(&generated, name);
        class["metadata"]["annotations"].as_object_mut().unwrap().remove(cluster::IDENTITY_ANNOTATION);
        let params = PatchParams::apply(operator::FIELD_MANAGER);
        api.patch(name, &params, &Patch::Apply(&class)).await.unwrap();
    }
    earlier.server.create("configmaps", config_map(BASE_SET)).unwrap();
    earlier.start_operator(options_with_known_classes());
    earlier
        .wait_for_class("large-gpu", |class| {
            class["metadata"]["annotations"][cluster::IDENTITY_ANNOTATION] == "AcceleratorClass/large-gpu"
        })
        .await;
    earlier.wait_until_idle().await;
    for name in ["large-gpu", "large-gpu-copy"] {
        let class = earlier.server.get(CLASSES, "", name).unwrap();
        assert_eq!(cluster::find_current_condition(&class, "Managed"), None, "{name}");
    }
    earlier.server.delete("configmaps", "ome-system", "accelerator-classes-base", None).unwrap();
    earlier.wait_for_deletion(CLASSES, "large-gpu").await;
    earlier.wait_until_idle().await;
    assert!(earlier.server.get(CLASSES, "", "large-gpu-copy").is_some());
}

/// Creates a copy with the field managers of the source, as a client that copies complete objects does: the creation makes the
/// client the manager, and a later update restores the managers of the source.
fn copy_with_managers(test_cluster: &TestCluster, resource: &str, source: &Value, name: &str) -> Value {
    let mut created = Value::clone(&test_cluster.server.create(resource, copy_of(source, name)).unwrap());
    created["metadata"]["managedFields"] = source["metadata"]["managedFields"].clone();
    Value::clone(&test_cluster.server.update(resource, created).unwrap())
}

#[tokio::test(start_paused = true)]
async fn copy_with_field_managers_is_reported_and_not_deleted() {
    let test_cluster = start(BASE_SET);
    let generated = test_cluster.wait_for_class("large-gpu", |_| true).await;
    test_cluster.wait_until_idle().await;
    let copy = copy_with_managers(&test_cluster, CLASSES, &generated, "my-gpu");
    test_cluster.wait_until_idle().await;
    let class = test_cluster.server.get(CLASSES, "", "my-gpu").unwrap();
    let condition = cluster::find_current_condition(&class, "Managed").unwrap();
    assert_eq!(
        (&condition["reason"], condition["message"].as_str().unwrap()),
        (
            &json!("NotOwned"),
            "AcceleratorClass my-gpu is a copy of AcceleratorClass large-gpu, which the operator generated; it is neither updated \
             nor deleted. Run `kubectl delete acceleratorclasses.ome.io my-gpu`, or, to maintain the copy yourself, remove its \
             annotation ome.io/made-from"
        )
    );
    test_cluster.server.delete("configmaps", "ome-system", "accelerator-classes-base", None).unwrap();
    test_cluster.wait_for_deletion(CLASSES, "large-gpu").await;
    test_cluster.wait_until_idle().await;
    assert_eq!(test_cluster.server.get(CLASSES, "", "my-gpu").unwrap()["spec"], copy["spec"]);
}

/// A copy has the annotations of the generated class, but its field manager is the user.
#[tokio::test(start_paused = true)]
async fn copy_of_a_generated_class_is_not_deleted() {
    let test_cluster = start(BASE_SET);
    let generated = test_cluster.wait_for_class("large-gpu", |_| true).await;
    let copy = copy_of(&generated, "my-gpu");
    test_cluster.server.create(CLASSES, copy.clone()).unwrap();
    test_cluster.wait_until_idle().await;
    // The user replaces a generated class with a copy, too.
    test_cluster.server.delete(CLASSES, "", "small-gpu", None).unwrap();
    test_cluster.server.create(CLASSES, copy_of(&generated, "small-gpu")).unwrap();
    test_cluster.wait_until_idle().await;
    test_cluster.server.delete("configmaps", "ome-system", "accelerator-classes-base", None).unwrap();
    test_cluster
        .wait_for("deletion of the generated class", |server| {
            server.get(CLASSES, "", "large-gpu").is_none().then_some(())
        })
        .await;
    test_cluster.wait_until_idle().await;
    for name in ["my-gpu", "small-gpu"] {
        let retained = test_cluster.server.get(CLASSES, "", name).unwrap();
        assert_eq!(retained["spec"], copy["spec"], "{name}");
        assert_eq!(retained["metadata"]["annotations"], copy["metadata"]["annotations"], "{name}");
    }
}
