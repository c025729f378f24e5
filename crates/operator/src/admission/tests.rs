use std::sync::Arc;

use cluster::Kind;
use rstest::rstest;
use serde_json::json;

use super::*;

/// Existing objects.
struct StaticObjects(Vec<Value>);

impl ObjectLister for StaticObjects {
    fn list(&self, kind: Kind) -> Vec<Arc<Value>> {
        self.0.iter().filter(|object| object["kind"] == kind.kind).cloned().map(Arc::new).collect()
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn runtime(name: &str, change: Value) -> Value {
    let mut spec = json!({
        "supportedModelFormats": [{
            "modelFormat": {"name": "safetensors", "version": "1.0.0"},
            "modelFramework": {"name": "transformers", "version": "4.36.2"},
            "modelArchitecture": "MistralForCausalLM", "autoSelect": true, "priority": 1}],
        "modelSizeRange": {"min": "5B", "max": "9B"}, "protocolVersions": ["openAI"],
        "engineConfig": {"runner": {"image": "i"}}});
    json_patch::merge(&mut spec, &change);
    object("ClusterServingRuntime", name, &spec)
}

fn with_entry(change: Value) -> Value {
    let mut with_entry = runtime("x", json!({}))["spec"]["supportedModelFormats"][0].clone();
    json_patch::merge(&mut with_entry, &change);
    json!({"supportedModelFormats": [with_entry]})
}

fn validate(new: &Value, others: Vec<Value>) -> ValidationResult {
    validate_admission(&ValidationRequest { object: Some(new), old_object: None }, &StaticObjects(others))
}

// spec: RT-73
#[rstest]
#[case::the_same(json!({}), true, 0)]
#[case::version_written_otherwise(with_entry(json!({"modelFormat": {"version": "v1.0.0"}})), true, 0)]
#[case::format_in_other_case(with_entry(json!({"modelFormat": {"name": "SafeTensors"}})), true, 0)]
#[case::protocol_by_default(json!({"protocolVersions": null}), true, 0)]
#[case::another_priority(with_entry(json!({"priority": 2})), false, 0)]
#[case::no_priority(with_entry(json!({"priority": null})), false, 0)]
#[case::not_automatic(with_entry(json!({"autoSelect": false})), false, 0)]
#[case::disabled(json!({"disabled": true}), false, 0)]
#[case::another_architecture(with_entry(json!({"modelArchitecture": "LlamaForCausalLM"})), false, 0)]
#[case::another_quantization(with_entry(json!({"quantization": "fp8"})), false, 0)]
#[case::a_wider_range(json!({"modelSizeRange": {"max": "70B"}}), false, 0)]
#[case::a_range_of_the_same_width(json!({"modelSizeRange": {"min": "6B", "max": "10B"}}), false, 1)]
#[case::a_range_apart(json!({"modelSizeRange": {"min": "10B", "max": "14B"}}), false, 0)]
#[case::another_version(with_entry(json!({"modelFramework": {"version": "4.45"}})), false, 0)]
#[case::any_version(with_entry(json!({"modelFramework": {"version": null}})), false, 1)]
#[case::more_protocols(json!({"protocolVersions": ["openAI", "cohere"]}), false, 1)]
#[case::other_protocols(json!({"protocolVersions": ["cohere"]}), false, 0)]
fn detects_conflicting_runtimes(#[case] change: Value, #[case] is_rejected: bool, #[case] warnings: usize) {
    let result = validate(&runtime("b", change), vec![runtime("a", json!({}))]);
    assert_eq!((!result.is_allowed(), result.warnings.len()), (is_rejected, warnings), "{result:?}");
    for cause in result.causes() {
        assert_eq!(cause.field, "spec.supportedModelFormats[0].priority");
        assert!(cause.message.contains("`b` and `a`"), "{}", cause.message);
    }
    assert!(result.warnings.iter().all(|warning| warning.contains("AmbiguousRuntimes: `b` and `a`")), "{result:?}");
}

#[test]
fn ignores_other_scopes_and_the_object_itself() {
    let cluster_runtime = runtime("a", json!({}));
    assert_eq!(validate(&cluster_runtime, vec![cluster_runtime.clone()]), ValidationResult::default());
    let mut namespaced = cluster_runtime.clone();
    namespaced["kind"] = json!("ServingRuntime");
    namespaced["metadata"] = json!({"name": "b", "namespace": "x"});
    let mut other_namespace = namespaced.clone();
    other_namespace["metadata"] = json!({"name": "a", "namespace": "y"});
    assert_eq!(validate(&namespaced, vec![cluster_runtime, other_namespace.clone()]), ValidationResult::default());
    other_namespace["metadata"]["namespace"] = json!("x");
    assert!(!validate(&namespaced, vec![other_namespace]).is_allowed());
}

#[test]
fn warns_about_ambiguous_runtimes_without_priorities() {
    let without_priority = |name: &str| runtime(name, with_entry(json!({"priority": null})));
    let result = validate(&without_priority("b"), vec![without_priority("a"), without_priority("c")]);
    assert_eq!(
        result.warnings,
        [
            "spec.supportedModelFormats[0]: AmbiguousRuntimes: `b`, `a` and 1 more match the same models equally well and have no priority, so the newest is selected; give them different priorities, or set autoSelect: false"
        ]
    );
}

#[test]
fn suggests_the_nearest_class_name() {
    let class = object("AcceleratorClass", "nvidia-h100-80gb", &json!({}));
    let spec = json!({"model": {"name": "m"}, "acceleratorSelector": {"preferredClasses": ["nvidia-h100-80bg"]},
        "engine": {"acceleratorOverride": {"acceleratorClass": "tpu"}}});
    let service = object("InferenceService", "a", &spec);
    let result = validate(&service, vec![class]);
    assert!(result.is_allowed());
    assert_eq!(
        result.warnings,
        [
            "spec.acceleratorSelector.preferredClasses[0]: AcceleratorClass `nvidia-h100-80bg` does not exist; did you mean `nvidia-h100-80gb`?",
            "spec.engine.acceleratorOverride.acceleratorClass: AcceleratorClass `tpu` does not exist; create the class, or list the existing ones with `kubectl get acceleratorclasses` or `ostler catalog list`",
        ]
    );
    assert_eq!(validate(&service, Vec::new()), ValidationResult::default());
}

/// An author must be able to correct an object step by step, and to delete it.
#[test]
fn existing_errors_become_warnings() {
    let invalid_runtime = runtime("a", json!({"modelSizeRange": {"min": "9B", "max": "5B"}}));
    assert!(!validate(&invalid_runtime, Vec::new()).is_allowed());
    let mut edited_runtime = invalid_runtime.clone();
    edited_runtime["spec"]["disabled"] = json!(true);
    let update = |old: &Value, new: &Value| {
        validate_admission(&ValidationRequest { object: Some(new), old_object: Some(old) }, &StaticObjects(Vec::new()))
    };
    let result = update(&invalid_runtime, &edited_runtime);
    assert!(result.is_allowed() && result.warnings.len() == 1, "{result:?}");
    let valid_runtime = runtime("a", json!({}));
    assert!(!update(&valid_runtime, &invalid_runtime).is_allowed());
    let mut terminating_runtime = invalid_runtime.clone();
    terminating_runtime["metadata"]["deletionTimestamp"] = json!("2026-11-21T14:30:05Z");
    assert_eq!(update(&valid_runtime, &terminating_runtime), ValidationResult::default());
    assert_eq!(
        validate_admission(
            &ValidationRequest { object: None, old_object: Some(&invalid_runtime) },
            &StaticObjects(Vec::new())
        ),
        ValidationResult::default()
    );
}

#[test]
fn ignores_other_kinds() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"resources": {"requests": {"cpu": 4}, "limits": {"cpu": 1}}}]}});
    assert_eq!(validate(&pod, Vec::new()), ValidationResult::default());
}

/// A thousand runtimes for the same models produce one finding each.
#[test]
fn summarizes_many_conflicts_in_one_warning() {
    let without_priority = |n: usize| runtime(&format!("r{n}"), with_entry(json!({"priority": null})));
    let result = validate(&without_priority(0), (0..1000).map(without_priority).collect());
    assert_eq!(result.warnings.len(), 1);
    assert!(result.warnings[0].contains("and 998 more"), "{result:?}");
}

fn roles(namespace: &str, name: &str, role: &str) -> Value {
    let template = json!({"spec": {"containers": [{"name": "e", "image": "i"}]}});
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"roles": [{"name": role, "componentType": "worker", "template": template}]}})
}

#[rstest]
#[case::one_name(roles("n", "a-b", "c"), true)]
#[case::elsewhere(roles("m", "a-b", "c"), false)]
#[case::another_name(roles("n", "a-b", "d"), false)]
#[case::itself(roles("n", "a", "b-c"), false)]
fn rejects_duplicate_workload_names(#[case] service: Value, #[case] is_rejected: bool) {
    let result = validate(&service, vec![roles("n", "a", "b-c")]);
    let causes: Vec<String> = result.causes().into_iter().map(|cause| format!("{cause:?}")).collect();
    assert_eq!(!result.is_allowed(), is_rejected, "{causes:?}");
    if is_rejected {
        let message = "role c creates LeaderWorkerSet a-b-c-0, which role b-c of InferenceService a also creates; rename the service or the role";
        assert!(causes[0].contains(message) && causes[0].contains("spec.roles[0].name"), "{causes:?}");
    }
}
