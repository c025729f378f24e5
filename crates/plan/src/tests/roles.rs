//! Role-based services (seed 002).

use rstest::rstest;
use serde_json::{Value, json};

use super::{code, kinds, plan_one, shown};

/// Story 1 with `more` appended to the role and `meta` to the metadata.
fn story_1(meta: &str, more: &str) -> String {
    format!(
        r#"
apiVersion: fusioninfer.io/v1alpha1
kind: InferenceService
metadata: {{name: qwen-inference{meta}}}
spec:
  roles:
  - name: inference
    componentType: worker
    template:
      spec:
        containers:
        - name: vllm
          image: vllm/vllm-openai:v0.11.0
          args: ["--model", "Qwen/Qwen3-8B"]
          ports: [{{containerPort: 8000, name: http}}]
          resources: {{limits: {{nvidia.com/gpu: "1"}}}}
{more}"#
    )
}

// spec: TOP-16
// spec: TOP-18
// spec: TOP-19
// spec: TOP-30
#[test]
fn story_1_is_one_leader_worker_set() {
    let plan = plan_one(&story_1("", ""));
    assert_eq!(code(&plan), (true, "Rendered"));
    assert_eq!(
        kinds(&plan),
        ["LeaderWorkerSet qwen-inference-inference-0", "BackendPool qwen-inference", "LLMUseCaseSet qwen-inference"]
    );
    let spec = &plan.objects[0]["spec"];
    assert_eq!((&spec["replicas"], &spec["leaderWorkerTemplate"]["size"]), (&json!(1), &json!(1)));
    assert!(spec["leaderWorkerTemplate"].get("leaderTemplate").is_none());
    let pod = &spec["leaderWorkerTemplate"]["workerTemplate"]["spec"];
    assert_eq!(
        pod,
        &json!({"containers": [{
            "name": "vllm", "image": "vllm/vllm-openai:v0.11.0", "args": ["--model", "Qwen/Qwen3-8B"],
            "ports": [{"containerPort": 8000, "name": "http"}], "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }]})
    );
}

// Example 1, as the service and the role whose names it composes.
// spec: TOP-33
#[test]
fn example_1_is_two_sets_of_one() {
    let manifest = story_1("", "    replicas: 2\n")
        .replace("qwen-inference", "qwen")
        .replace(r#"args: ["--model", "Qwen/Qwen3-8B"]"#, r#"args: ["vllm", "serve", "Qwen/Qwen3-8B"]"#);
    let plan = plan_one(&manifest);
    assert_eq!(kinds(&plan)[..2], ["LeaderWorkerSet qwen-inference-0", "LeaderWorkerSet qwen-inference-1"]);
    for set in &plan.objects[..2] {
        let group = &set["spec"]["leaderWorkerTemplate"];
        assert_eq!((&set["spec"]["replicas"], &group["size"]), (&json!(1), &json!(1)));
        let container = &group["workerTemplate"]["spec"]["containers"][0];
        assert_eq!(container["args"], json!(["vllm", "serve", "Qwen/Qwen3-8B"]));
        assert_eq!(container.get("command"), None);
    }
}

// spec: TOP-31
// spec: TOP-35
// spec: TOP-36
// spec: TOP-37
// spec: TOP-38
#[test]
fn two_replicas_are_two_sets() {
    let plan = plan_one(&story_1(", namespace: team-a, uid: 0d9c, generation: 3", "    replicas: 2\n"));
    insta::assert_snapshot!(shown(&plan));
}

#[rstest]
// spec: TOP-6
#[case::no_replicas("    replicas: 0\n", 2)]
// spec: TOP-7
#[case::one_node("    multinode: {nodeCount: 1}\n", 3)]
// spec: TOP-10
#[case::router_fields("    strategy: queue-size\n    endpointPickerConfig: x\n", 3)]
fn fields_of_a_role(#[case] more: &str, #[case] objects: usize) {
    let plan = plan_one(&story_1("", more));
    assert_eq!(plan.objects.len(), objects);
    let plain = plan_one(&story_1("", ""));
    if objects == 3 {
        assert_eq!(plan.objects, plain.objects);
    }
}

// spec: TOP-10
#[test]
fn a_field_on_the_wrong_role_is_told() {
    let plan = plan_one(&story_1("", "    strategy: queue-size\n"));
    assert_eq!(plan.warnings[0].code, "FieldIgnored");
}

#[rstest]
#[case::prefiller("prefiller", true)]
#[case::decoder("decoder", true)]
#[case::worker("worker", false)]
fn half_a_pair_is_told(#[case] kind: &str, #[case] told: bool) {
    let plan = plan_one(&story_1("", "").replace("componentType: worker", &format!("componentType: {kind}")));
    assert!(plan.feasible);
    assert_eq!(plan.warnings.iter().any(|warning| warning.code == "PairIncomplete"), told);
}

// spec: TOP-12
#[test]
fn a_stated_scheduler_is_every_engine_pods() {
    let plan = plan_one(&story_1("", "  schedulingStrategy: {schedulerName: volcano}\n"));
    assert_eq!(
        plan.objects[0].pointer("/spec/leaderWorkerTemplate/workerTemplate/spec/schedulerName"),
        Some(&json!("volcano"))
    );
}

#[rstest]
#[case::router(story_1("", "").replace("componentType: worker", "componentType: router"), "NoEngines")]
// spec: TOP-9
#[case::no_container(story_1("", "").replace("containers:", "initContainers:"), "InvalidTemplate")]
// spec: TOP-39
#[case::reserved(story_1("", "").replace("    template:\n", "    template:\n      metadata: {labels: {fusioninfer.io/service: x}}\n"), "ReservedMetadata")]
// spec: TOP-56
#[case::two_routers(
    story_1("", "  - {name: r, componentType: router}\n  - {name: q, componentType: router}\n"),
    "TwoRouters"
)]
#[case::two_names(story_1("", "  - {name: inference, componentType: router}\n"), "DuplicateRole")]
#[case::scheduler(
    story_1("", "  schedulingStrategy: {schedulerName: volcano}\n").replace("        containers:", "        schedulerName: other\n        containers:"),
    "SchedulerConflict"
)]
fn refused(#[case] manifest: String, #[case] expect: &str) {
    let plan = plan_one(&manifest);
    assert_eq!(code(&plan), (false, expect), "{}", plan.message);
    assert_eq!(plan.objects, Vec::<Value>::new());
}

// spec: TOP-39
#[test]
fn the_users_metadata_and_unknown_fields_stay() {
    let manifest = story_1("", "")
        .replace("    template:\n", "    template:\n      metadata: {labels: {team: a}, annotations: {note: b}}\n")
        .replace("        containers:", "        futureField: {a: [1]}\n        containers:");
    let template = &plan_one(&manifest).objects[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"];
    assert_eq!(template["metadata"]["labels"]["team"], "a");
    assert_eq!(template["metadata"]["annotations"], json!({"note": "b"}));
    assert_eq!(template["spec"]["futureField"], json!({"a": [1]}));
}

// spec: TOP-9
#[test]
fn a_name_that_no_leader_worker_set_can_have_is_bad_input() {
    let manifest = story_1("", "").replace("qwen-inference}", "a-service-with-a-name-of-more-than-forty-characters}");
    let documents = api::parse_manifest("given.yaml", &manifest).unwrap();
    let error = crate::Service::from_document(&documents[0]).unwrap_err();
    assert_eq!((error.path.as_deref(), error.hint.is_some()), (Some("spec.roles[0].name"), true));
}

#[rstest]
#[case::replicas("    replicas: 2000000000")]
#[case::nodes("    multinode: {nodeCount: 2000000000}")]
#[case::both("    multinode: {nodeCount: 200}\n    replicas: 51")]
fn a_service_larger_than_any_cluster_is_refused_at_once(#[case] size: &str) {
    let plan = plan_one(&story_1("", size));
    assert_eq!(code(&plan), (false, "TooManyPods"), "{}", plan.message);
    assert!(plan.objects.is_empty());
}
