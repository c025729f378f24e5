use super::*;
use rstest::rstest;
use serde_json::json;

/// Objects by the plural of their kind.
struct Objects(Vec<Value>);

impl View for Objects {
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

fn entry(change: Value) -> Value {
    let mut entry = runtime("x", json!({}))["spec"]["supportedModelFormats"][0].clone();
    json_patch::merge(&mut entry, &change);
    json!({"supportedModelFormats": [entry]})
}

fn verdict(new: &Value, others: Vec<Value>) -> Verdict {
    review(&Request { object: Some(new), old: None }, &Objects(others))
}

// spec: RT-73
#[rstest]
#[case::the_same(json!({}), true, 0)]
#[case::version_written_otherwise(entry(json!({"modelFormat": {"version": "v1.0.0"}})), true, 0)]
#[case::protocol_by_default(json!({"protocolVersions": null}), true, 0)]
#[case::another_priority(entry(json!({"priority": 2})), false, 0)]
#[case::no_priority(entry(json!({"priority": null})), false, 0)]
#[case::not_automatic(entry(json!({"autoSelect": false})), false, 0)]
#[case::disabled(json!({"disabled": true}), false, 0)]
#[case::another_architecture(entry(json!({"modelArchitecture": "LlamaForCausalLM"})), false, 0)]
#[case::another_quantization(entry(json!({"quantization": "fp8"})), false, 0)]
#[case::a_wider_range(json!({"modelSizeRange": {"max": "70B"}}), false, 0)]
#[case::a_range_of_the_same_width(json!({"modelSizeRange": {"min": "6B", "max": "10B"}}), false, 1)]
#[case::a_range_apart(json!({"modelSizeRange": {"min": "10B", "max": "14B"}}), false, 0)]
#[case::another_version(entry(json!({"modelFramework": {"version": "4.45"}})), false, 0)]
#[case::any_version(entry(json!({"modelFramework": {"version": null}})), false, 1)]
#[case::more_protocols(json!({"protocolVersions": ["openAI", "cohere"]}), false, 1)]
#[case::other_protocols(json!({"protocolVersions": ["cohere"]}), false, 0)]
fn two_runtimes_for_the_same_models(#[case] change: Value, #[case] refused: bool, #[case] warnings: usize) {
    let verdict = verdict(&runtime("b", change), vec![runtime("a", json!({}))]);
    assert_eq!((!verdict.allowed(), verdict.warnings.len()), (refused, warnings), "{verdict:?}");
    for cause in verdict.causes() {
        assert_eq!(cause.field, "spec.supportedModelFormats[0].priority");
        assert!(cause.message.contains("`b` and `a`"), "{}", cause.message);
    }
    assert!(verdict.warnings.iter().all(|warning| warning.contains("AmbiguousRuntimes: `b` and `a`")), "{verdict:?}");
}

#[test]
fn other_scopes_do_not_clash_and_an_object_not_with_itself() {
    let one = runtime("a", json!({}));
    assert_eq!(verdict(&one, vec![one.clone()]), Verdict::default());
    let mut namespaced = one.clone();
    namespaced["kind"] = json!("ServingRuntime");
    namespaced["metadata"] = json!({"name": "b", "namespace": "x"});
    let mut elsewhere = namespaced.clone();
    elsewhere["metadata"] = json!({"name": "a", "namespace": "y"});
    assert_eq!(verdict(&namespaced, vec![one, elsewhere.clone()]), Verdict::default());
    elsewhere["metadata"]["namespace"] = json!("x");
    assert!(!verdict(&namespaced, vec![elsewhere]).allowed());
}

#[test]
fn without_priorities_the_newest_is_selected_and_said() {
    let of = |name: &str| runtime(name, entry(json!({"priority": null})));
    let verdict = verdict(&of("b"), vec![of("a"), of("c")]);
    assert_eq!(
        verdict.warnings,
        [
            "spec.supportedModelFormats[0]: AmbiguousRuntimes: `b` and `a` and 1 more fit the same models equally and none has a priority, so the newest is selected; give one of them another priority, or set autoSelect: false"
        ]
    );
}

#[test]
fn unknown_classes_are_named_with_the_nearest() {
    let class = object("AcceleratorClass", "nvidia-h100-80gb", &json!({}));
    let spec = json!({"model": {"name": "m"}, "acceleratorSelector": {"preferredClasses": ["nvidia-h100-80bg"]},
        "engine": {"acceleratorOverride": {"acceleratorClass": "tpu"}}});
    let service = object("InferenceService", "a", &spec);
    let said = verdict(&service, vec![class]);
    assert!(said.allowed());
    assert_eq!(
        said.warnings,
        [
            "spec.acceleratorSelector.preferredClasses[0]: no AcceleratorClass `nvidia-h100-80bg`; did you mean `nvidia-h100-80gb`?",
            "spec.engine.acceleratorOverride.acceleratorClass: no AcceleratorClass `tpu`; define the class, or see `kubectl get acceleratorclasses` and `ostler catalog list`",
        ]
    );
    assert_eq!(verdict(&service, Vec::new()), Verdict::default());
}

/// An author must be able to repair an object step by step, and anybody to let it go.
#[test]
fn faults_that_stood_before_are_said_and_not_refused() {
    let faulty = runtime("a", json!({"modelSizeRange": {"min": "9B", "max": "5B"}}));
    assert!(!verdict(&faulty, Vec::new()).allowed());
    let mut edited = faulty.clone();
    edited["spec"]["disabled"] = json!(true);
    let update =
        |old: &Value, new: &Value| review(&Request { object: Some(new), old: Some(old) }, &Objects(Vec::new()));
    let said = update(&faulty, &edited);
    assert!(said.allowed() && said.warnings.len() == 1, "{said:?}");
    let sound = runtime("a", json!({}));
    assert!(!update(&sound, &faulty).allowed());
    let mut going = faulty.clone();
    going["metadata"]["deletionTimestamp"] = json!("2026-11-21T14:30:05Z");
    assert_eq!(update(&sound, &going), Verdict::default());
    assert_eq!(review(&Request { object: None, old: Some(&faulty) }, &Objects(Vec::new())), Verdict::default());
}

#[test]
fn what_is_not_ours_is_not_looked_at() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"resources": {"requests": {"cpu": 4}, "limits": {"cpu": 1}}}]}});
    assert_eq!(verdict(&pod, Vec::new()), Verdict::default());
}

/// A thousand runtimes for the same models: one finding each, and soon.
#[test]
fn a_crowd_is_told_in_one_line() {
    let of = |n: usize| runtime(&format!("r{n}"), entry(json!({"priority": null})));
    let verdict = verdict(&of(0), (0..1000).map(of).collect());
    assert_eq!(verdict.warnings.len(), 1);
    assert!(verdict.warnings[0].contains("and 998 more"), "{verdict:?}");
}

#[test]
fn an_admission_review_is_answered_in_kind() {
    let asked = |object: &Value| {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u1", "name": "a",
            "kind": {"group": "ome.io", "version": "v1beta1", "kind": "ClusterServingRuntime"}, "operation": "CREATE",
            "object": object, "oldObject": null}})
    };
    let nothing = Objects(Vec::new());
    let answer = webhook::answer(&asked(&runtime("a", json!({}))), &nothing);
    assert_eq!(answer["response"], json!({"uid": "u1", "allowed": true}));
    let answer =
        webhook::answer(&asked(&runtime("a", json!({"modelSizeRange": {"min": "9B", "max": "5B"}}))), &nothing);
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["code"], 422);
    assert_eq!(
        answer["response"]["status"]["message"],
        "ClusterServingRuntime.ome.io \"a\" is invalid: spec.modelSizeRange: min 9B is above max 5B, so no model fits; swap the two bounds"
    );
    assert_eq!(webhook::answer(&json!({}), &nothing)["response"]["allowed"], true);
}

#[test]
fn the_configuration_never_stops_a_cluster() {
    let target = webhook::Target::Service { namespace: "ome-system".to_owned(), name: "ostler".to_owned() };
    let configuration = webhook::configuration(&target, "PEM");
    let hook = &configuration["webhooks"][0];
    assert_eq!((&hook["failurePolicy"], &hook["timeoutSeconds"]), (&json!("Ignore"), &json!(5)));
    assert_eq!(
        hook["clientConfig"],
        json!({"caBundle": "UEVN", "service": {"namespace": "ome-system", "name": "ostler", "path": "/validate", "port": 443}})
    );
    let resources: Vec<&str> = hook["rules"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|rule| rule["resources"].as_array().unwrap())
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(resources.len(), api::crds().len());
    assert!(resources.iter().all(|resource| !resource.contains(['/', '*'])));
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
fn names_that_another_service_composes_too(#[case] service: Value, #[case] refused: bool) {
    let verdict = verdict(&service, vec![roles("n", "a", "b-c")]);
    let told: Vec<String> = verdict.causes().into_iter().map(|cause| format!("{cause:?}")).collect();
    assert_eq!(!verdict.allowed(), refused, "{told:?}");
    if refused {
        let words = "role c makes LeaderWorkerSet a-b-c-0, and so does role b-c of InferenceService a; rename the service or the role";
        assert!(told[0].contains(words) && told[0].contains("spec.roles[0].name"), "{told:?}");
    }
}
