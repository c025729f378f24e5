//! The inputs that the status of an `ome.io` service describes. A change of a runtime, a model or a class does not change the
//! generation of the service, so its status also contains a fingerprint of these objects.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Kind, NamespacedName, metadata_field};
use plan::DecisionRecord;
use serde_json::{Value, json};

use crate::kinds::{ACCELERATOR_CLASS, BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, SERVING_RUNTIME};

/// Versions of the runtimes, models and classes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectVersions(BTreeMap<(Kind, NamespacedName), String>);

// === impl ObjectVersions ===

impl ObjectVersions {
    /// Adds an object.
    pub(crate) fn insert(&mut self, kind: Kind, object: &Value) {
        let metadata = &object["metadata"];
        let annotations = metadata["annotations"].as_object().into_iter().flatten();
        let read: Vec<_> = annotations.filter(|(key, _)| is_read(key)).collect();
        let version = format!("{} {} {}", metadata["uid"], metadata["generation"], json!(read));
        self.0.insert((kind, NamespacedName::from_object(object)), version);
    }

    /// Records in `status`, which was computed for `service` with these versions of the objects, what it describes.
    pub(crate) fn record(&self, service: &Value, status: &mut Value) {
        let fingerprint = self.fingerprint(service, status);
        set_inputs(status, Some(fingerprint));
    }

    /// Returns whether the status of `service` describes other versions of the objects. The status of an earlier release contains
    /// no fingerprint and is never outdated.
    pub(crate) fn is_outdated(&self, service: &Value) -> bool {
        let recorded = DecisionRecord::from_status(&service["status"]).and_then(|record| record.inputs);
        recorded.is_some_and(|recorded| recorded != self.fingerprint(service, &service["status"]))
    }

    /// Returns the fingerprint of the objects that `status` depends on and of the metadata of the service, which has its own
    /// `observedGeneration`.
    fn fingerprint(&self, service: &Value, status: &Value) -> String {
        let metadata = ["uid", "labels", "annotations"].map(|name| &service["metadata"][name]);
        let mut text = json!(metadata).to_string();
        for input in inputs(service, status) {
            let version = self.0.get(&input).map(String::as_str);
            text += &format!("\n{} {} {}", input.0.kind, input.1, version.unwrap_or_default());
        }
        format!("{:016x}", plan::fingerprint(&text))
    }
}

/// Removes the fingerprint from a status whose conditions do not follow from a plan.
pub(crate) fn remove_inputs(status: &mut Value) {
    set_inputs(status, None);
}

/// Sets the fingerprint. The schema of the decision preserves unknown fields, so the operator may be newer than the
/// CustomResourceDefinition.
fn set_inputs(status: &mut Value, inputs: Option<String>) {
    // The record of an earlier release may contain other fields.
    if let Some(record) = DecisionRecord::from_status(status).filter(|record| record.inputs != inputs) {
        status["decision"] = DecisionRecord { inputs, ..record }.to_json();
    }
}

/// Returns the objects that `status` depends on, whether or not they exist: runtimes and models of these names may exist in the
/// namespace of the service and in cluster scope.
fn inputs(service: &Value, status: &Value) -> BTreeSet<(Kind, NamespacedName)> {
    let (spec, namespace) = (&service["spec"], metadata_field(service, "namespace"));
    let runtimes = [&spec["runtime"], &status["decision"]["runtime"]];
    let runtimes = runtimes.map(|runtime| (SERVING_RUNTIME, CLUSTER_SERVING_RUNTIME, &runtime["name"]));
    let models = [(BASE_MODEL, CLUSTER_BASE_MODEL, &spec["model"]["name"])];
    let named = runtimes.into_iter().chain(models).filter_map(|(namespaced, cluster_scoped, name)| {
        let name = name.as_str()?;
        Some([(namespaced, NamespacedName::new(namespace, name)), (cluster_scoped, NamespacedName::new("", name))])
    });
    let components = plan::recorded_components(status);
    let classes = components.values().flat_map(|component| {
        let variants = component.variants.iter().map(|variant| &variant.accelerator_class);
        component.accelerator_class.iter().chain(variants)
    });
    named.flatten().chain(classes.map(|class| (ACCELERATOR_CLASS, NamespacedName::new("", class)))).collect()
}

/// Returns whether plans may depend on an annotation of a runtime, a model or a class. Changes of others change no status.
fn is_read(annotation: &str) -> bool {
    annotation.split_once('/').is_some_and(|(domain, _)| domain == "ome.io" || domain.ends_with(".ome.io"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn object(namespace: &str, name: &str, generation: i64) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name, "uid": name, "generation": generation}})
    }

    fn versions() -> ObjectVersions {
        let mut versions = ObjectVersions::default();
        versions.insert(CLUSTER_SERVING_RUNTIME, &object("", "vllm", 1));
        versions.insert(CLUSTER_BASE_MODEL, &object("", "llama", 1));
        versions.insert(ACCELERATOR_CLASS, &object("", "h100", 1));
        versions.insert(ACCELERATOR_CLASS, &object("", "l40s", 1));
        versions
    }

    /// Returns a service whose status describes [`versions`].
    fn service() -> Value {
        let mut service = object("n", "chat", 1);
        service["spec"] = json!({"model": {"name": "llama"}});
        let variants =
            json!([{"acceleratorClass": "l40s", "acceleratorsPerNode": 1, "replicas": 1, "requestTokens": {}}]);
        let mut status = json!({"decision": {"reason": "Selected", "message": "m", "runtime": {"name": "vllm"}},
            "components": {"engine": {"selectedAccelerator": {"acceleratorClass": "h100"}, "variants": variants}}});
        versions().record(&service, &mut status);
        service["status"] = status;
        service
    }

    /// Columns: kind and namespace of an object that is created or edited, its name, whether the status is outdated then.
    #[rstest]
    #[case::runtime(CLUSTER_SERVING_RUNTIME, "", "vllm", true)]
    #[case::other_runtime(CLUSTER_SERVING_RUNTIME, "", "sglang", false)]
    #[case::runtime_of_the_namespace(SERVING_RUNTIME, "n", "vllm", true)]
    #[case::runtime_of_another_namespace(SERVING_RUNTIME, "m", "vllm", false)]
    #[case::model(CLUSTER_BASE_MODEL, "", "llama", true)]
    #[case::other_model(CLUSTER_BASE_MODEL, "", "qwen", false)]
    #[case::class(ACCELERATOR_CLASS, "", "h100", true)]
    #[case::class_of_a_variant(ACCELERATOR_CLASS, "", "l40s", true)]
    #[case::other_class(ACCELERATOR_CLASS, "", "a100", false)]
    fn change_of_an_input_outdates_the_status(
        #[case] kind: Kind,
        #[case] namespace: &str,
        #[case] name: &str,
        #[case] expected: bool,
    ) {
        let mut versions = versions();
        assert!(!versions.is_outdated(&service()));
        versions.insert(kind, &object(namespace, name, 2));
        assert_eq!(versions.is_outdated(&service()), expected);
    }

    #[test]
    fn metadata_of_inputs_and_service_is_compared() {
        let with_annotation = |key: &str| {
            let mut model = object("", "llama", 1);
            model["metadata"]["annotations"] = json!({key: "LARGE"});
            let mut versions = versions();
            versions.insert(CLUSTER_BASE_MODEL, &model);
            versions
        };
        let annotated = with_annotation("models.ome.io/category");
        assert!(!with_annotation("example.com/owner").is_outdated(&service()), "no plan depends on it");
        let mut recreated = versions();
        let mut runtime = object("", "vllm", 1);
        runtime["metadata"]["uid"] = json!("2");
        recreated.insert(CLUSTER_SERVING_RUNTIME, &runtime);
        let deleted = ObjectVersions::default();
        assert!([annotated, recreated, deleted].iter().all(|versions| versions.is_outdated(&service())));
        let mut labeled = service();
        labeled["metadata"]["labels"] = json!({"a": "b"});
        assert!(versions().is_outdated(&labeled));
        let mut scaled = service();
        (scaled["metadata"]["generation"], scaled["status"]["components"]["engine"]["replicas"]) = (json!(2), json!(3));
        assert!(!versions().is_outdated(&scaled));
    }

    #[test]
    fn status_without_a_fingerprint_is_not_outdated() {
        let mut service = service();
        remove_inputs(&mut service["status"]);
        let decision = json!({"reason": "Selected", "message": "m", "runtime": {"name": "vllm"}});
        assert_eq!(service["status"]["decision"], decision);
        assert!(!ObjectVersions::default().is_outdated(&service));
    }
}
