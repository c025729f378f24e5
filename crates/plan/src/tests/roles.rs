//! Role-based services (seed 002).

use rstest::rstest;
use serde_json::{Value, json};

use super::plan_manifests;
use super::{code, kinds, plan_text, plan_with_supply};

/// Returns the service of seed 002, Story 1, with additional metadata and role fields.
fn story_1(metadata: &str, role_fields: &str) -> String {
    format!(
        r#"
apiVersion: fusioninfer.io/v1alpha1
kind: InferenceService
metadata: {{name: qwen-inference{metadata}}}
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
{role_fields}"#
    )
}

// spec: TOP-16
// spec: TOP-18
// spec: TOP-19
// spec: TOP-30
#[test]
fn story_1_has_one_leader_worker_set() {
    let plan = plan_with_supply(&story_1("", ""));
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

// spec: TOP-33
#[test]
fn example_1_has_two_sets_of_one_pod() {
    let manifest = story_1("", "    replicas: 2\n")
        .replace("qwen-inference", "qwen")
        .replace(r#"args: ["--model", "Qwen/Qwen3-8B"]"#, r#"args: ["vllm", "serve", "Qwen/Qwen3-8B"]"#);
    let plan = plan_with_supply(&manifest);
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
fn two_replicas_have_two_sets() {
    let plan = plan_with_supply(&story_1(", namespace: team-a, uid: 0d9c, generation: 3", "    replicas: 2\n"));
    insta::assert_snapshot!(plan_text(&plan));
}

// spec: TOP-36
#[test]
fn replica_index_is_a_string_on_sets_and_all_pods() {
    let plan = plan_with_supply(&story_1("", "    replicas: 2\n    multinode: {nodeCount: 2}\n"));
    let sets: Vec<&Value> = plan.objects.iter().filter(|object| object["kind"] == "LeaderWorkerSet").collect();
    assert_eq!(sets.len(), 2);
    for (index, set) in sets.into_iter().enumerate() {
        let group = &set["spec"]["leaderWorkerTemplate"];
        for object in [set, &group["leaderTemplate"], &group["workerTemplate"]] {
            assert_eq!(object["metadata"]["labels"]["fusioninfer.io/replica-index"], json!(index.to_string()));
        }
    }
}

#[rstest]
// spec: TOP-6
#[case::no_replicas("    replicas: 0\n", 2)]
// spec: TOP-7
#[case::one_node("    multinode: {nodeCount: 1}\n", 3)]
// spec: TOP-10
#[case::router_fields("    strategy: queue-size\n    endpointPickerConfig: x\n", 3)]
fn optional_fields_of_a_role(#[case] role_fields: &str, #[case] objects: usize) {
    let plan = plan_with_supply(&story_1("", role_fields));
    assert_eq!(plan.objects.len(), objects);
    let baseline = plan_with_supply(&story_1("", ""));
    if objects == 3 {
        assert_eq!(plan.objects, baseline.objects);
    }
}

// spec: TOP-10
#[test]
fn warns_about_fields_of_other_component_types() {
    let plan = plan_with_supply(&story_1("", "    strategy: queue-size\n"));
    assert_eq!(plan.warnings[0].code, "FieldIgnored");
}

#[rstest]
#[case::prefiller("prefiller", true)]
#[case::decoder("decoder", true)]
#[case::worker("worker", false)]
fn warns_about_incomplete_pairs(#[case] kind: &str, #[case] expect: bool) {
    let plan = plan_with_supply(&story_1("", "").replace("componentType: worker", &format!("componentType: {kind}")));
    assert!(plan.feasible);
    assert_eq!(plan.warnings.iter().any(|warning| warning.code == "PairIncomplete"), expect);
}

// spec: TOP-12
#[test]
fn sets_the_scheduler_of_the_strategy() {
    let plan = plan_with_supply(&story_1("", "  schedulingStrategy: {schedulerName: volcano}\n"));
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
#[case::duplicate_name(story_1("", "  - {name: inference, componentType: router}\n"), "DuplicateRole")]
#[case::scheduler(
    story_1("", "  schedulingStrategy: {schedulerName: volcano}\n").replace("        containers:", "        schedulerName: other\n        containers:"),
    "SchedulerConflict"
)]
fn rejects_invalid_services(#[case] manifest: String, #[case] expect: &str) {
    let plan = plan_with_supply(&manifest);
    assert_eq!(code(&plan), (false, expect), "{}", plan.message);
    assert_eq!(plan.objects, Vec::<Value>::new());
}

// spec: TOP-39
#[test]
fn preserves_metadata_and_unknown_fields_of_the_user() {
    let manifest = story_1("", "")
        .replace("    template:\n", "    template:\n      metadata: {labels: {team: a}, annotations: {note: b}}\n")
        .replace("        containers:", "        futureField: {a: [1]}\n        containers:");
    let template = &plan_with_supply(&manifest).objects[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"];
    assert_eq!(template["metadata"]["labels"]["team"], "a");
    assert_eq!(template["metadata"]["annotations"], json!({"note": "b"}));
    assert_eq!(template["spec"]["futureField"], json!({"a": [1]}));
}

// spec: TOP-9
#[test]
fn rejects_names_too_long_for_a_leader_worker_set() {
    let manifest = story_1("", "").replace("qwen-inference}", "a-service-with-a-name-of-more-than-forty-characters}");
    let documents = api::parse_manifest("manifests.yaml", &manifest).unwrap();
    let error = crate::Service::from_document(&documents[0]).unwrap_err();
    assert_eq!((error.path.as_deref(), error.hint.is_some()), (Some("spec.roles[0].name"), true));
}

#[rstest]
#[case::replicas("    replicas: 2000000000")]
#[case::nodes("    multinode: {nodeCount: 2000000000}")]
#[case::both("    multinode: {nodeCount: 200}\n    replicas: 51")]
fn rejects_services_with_too_many_pods(#[case] size: &str) {
    let plan = plan_with_supply(&story_1("", size));
    assert_eq!(code(&plan), (false, "TooManyPods"), "{}", plan.message);
    assert!(plan.objects.is_empty());
}

/// Eight H100 on the only node, which has a taint.
#[rstest]
#[case::fits("8", "[{operator: Exists}]", None)]
#[case::too_many(
    "16",
    "[{operator: Exists}]",
    Some(
        "a Pod requests 16 of nvidia.com/gpu; the largest node has 8; request less nvidia.com/gpu, or add a larger node"
    )
)]
#[case::not_tolerated(
    "8",
    "[]",
    Some("they do not tolerate taint gpu=yes:NoSchedule of node n; add a toleration of gpu")
)]
fn roles_that_no_node_could_run_are_reported(
    #[case] accelerators: &str,
    #[case] tolerations: &str,
    #[case] expected: Option<&str>,
) {
    let node = "{apiVersion: v1, kind: Node, metadata: {name: 'n'}, spec: {taints: [{key: gpu, value: 'yes', effect: NoSchedule}]}, status: {allocatable: {nvidia.com/gpu: '8', cpu: '8', memory: 16Gi}}}";
    let service = format!(
        "{{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {{name: s}}, spec: {{roles: [{{name: inference, componentType: worker, template: {{spec: {{tolerations: {tolerations}, containers: [{{name: engine, image: i, resources: {{limits: {{nvidia.com/gpu: '{accelerators}'}}}}}}]}}}}}}]}}}}"
    );
    let plan = plan_manifests(&[node, &service]);
    assert!(plan.feasible, "{}", plan.message);
    let warning = plan.warnings.iter().find(|warning| warning.code == "PodsUnschedulable");
    let expected =
        expected.map(|reason| format!("No node could run the Pods of inference, so they stay pending: {reason}"));
    assert_eq!(warning.map(|warning| warning.message.clone()), expected);
}
