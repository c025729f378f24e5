//! Gangs and multi-node replicas: Stories 2 to 4 of seed 002.

use rstest::rstest;
use serde_json::{Value, json};

use super::{code, kinds, plan_with_supply};
use crate::ServicePlan;
use crate::gang::PodGroupSchema;

/// Returns a role with name, component type, replicas, nodes and GPUs per Pod.
fn role(name: &str, kind: &str, replicas: u32, nodes: u32, gpus: u32) -> String {
    format!(
        r#"
  - name: {name}
    componentType: {kind}
    replicas: {replicas}
    multinode: {{nodeCount: {nodes}}}
    template:
      spec:
        containers:
        - name: vllm
          image: vllm/vllm-openai:v0.8.5
          args: ["--model", "deepseek-ai/DeepSeek-R1", "--tensor-parallel-size", "32"]
          ports: [{{containerPort: 8000, name: http}}]
          resources: {{limits: {{nvidia.com/gpu: "{gpus}"}}}}"#
    )
}

fn service(name: &str, strategy: &str, roles: &[String]) -> String {
    format!(
        "apiVersion: fusioninfer.io/v1alpha1\nkind: InferenceService\nmetadata: {{name: {name}}}\nspec:\n  schedulingStrategy: {{{strategy}}}\n  roles:{}\n",
        roles.concat()
    )
}

fn story_2(strategy: &str) -> String {
    service(
        "qwen-inference-service",
        strategy,
        &[role("prefill", "prefiller", 2, 1, 1), role("decode", "decoder", 4, 1, 1)],
    )
}

fn story_3(strategy: &str) -> String {
    service("deepseek-r1-inference", strategy, &[role("inference", "worker", 2, 4, 8)])
}

fn story_4(strategy: &str) -> String {
    service(
        "deepseek-r1-disagg",
        strategy,
        &[role("prefill", "prefiller", 1, 2, 8), role("decode", "decoder", 2, 4, 8)],
    )
}

fn pod_group(plan: &ServicePlan) -> &Value {
    assert_eq!(plan.objects[0]["kind"], "PodGroup", "the PodGroup is created before its Pods");
    &plan.objects[0]
}

// spec: TOP-21
// spec: TOP-22
// spec: TOP-51
// spec: TOP-53
#[test]
fn story_2_schedules_all_replicas_or_none() {
    let plan = plan_with_supply(&story_2("gangPolicy: All"));
    let sets = ["prefill-0", "prefill-1", "decode-0", "decode-1", "decode-2", "decode-3"];
    let sets = sets.map(|set| format!("LeaderWorkerSet qwen-inference-service-{set}"));
    assert_eq!(kinds(&plan)[0], "PodGroup qwen-inference-service");
    assert_eq!(kinds(&plan)[1..7], sets);
    assert_eq!(
        pod_group(&plan)["spec"],
        json!({"minMember": 6, "minResources": {"nvidia.com/gpu": "6"},
               "minTaskMember": {"prefill-0": 1, "prefill-1": 1, "decode-0": 1, "decode-1": 1, "decode-2": 1, "decode-3": 1}})
    );
}

// spec: TOP-54
// spec: TOP-55
// spec: TOP-23
#[test]
fn pods_have_group_and_task_annotations() {
    let plan = plan_with_supply(&story_2(""));
    let set = &plan.objects[2];
    assert_eq!(set["spec"]["leaderWorkerTemplate"]["size"], 1);
    let template = &set["spec"]["leaderWorkerTemplate"]["workerTemplate"];
    assert_eq!(
        template["metadata"]["annotations"],
        json!({"scheduling.k8s.io/group-name": "qwen-inference-service", "volcano.sh/task-spec": "prefill-1"})
    );
    assert_eq!(template["spec"]["schedulerName"], "volcano");
    assert_eq!(template["spec"]["containers"][0].get("command"), None);
}

// spec: TOP-24
// spec: TOP-25
// spec: TOP-32
// spec: TOP-34
// spec: TOP-44
#[test]
fn story_3_has_two_sets_of_four_pods() {
    let plan = plan_with_supply(&story_3("gangPolicy: All"));
    let spec = &pod_group(&plan)["spec"];
    assert_eq!((&spec["minMember"], &spec["minTaskMember"]), (&json!(8), &json!({"inference-0": 4, "inference-1": 4})));
    assert_eq!(spec["minResources"], json!({"nvidia.com/gpu": "64"}));
    let sets = ["inference-0", "inference-1"].map(|set| format!("LeaderWorkerSet deepseek-r1-inference-{set}"));
    assert_eq!(kinds(&plan)[1..3], sets);
    for set in &plan.objects[1..3] {
        let group = &set["spec"]["leaderWorkerTemplate"];
        assert_eq!((&set["spec"]["replicas"], &group["size"]), (&json!(1), &json!(4)));
        assert!(group["leaderTemplate"].is_object() && group["workerTemplate"].is_object());
    }
    let group = &plan.objects[1]["spec"]["leaderWorkerTemplate"];
    let (leader, worker) =
        (&group["leaderTemplate"]["spec"]["containers"][0], &group["workerTemplate"]["spec"]["containers"][0]);
    assert_eq!(
        leader["args"],
        json!([
            "ray start --head --port=6379 && vllm serve --model deepseek-ai/DeepSeek-R1 --tensor-parallel-size 32 --distributed-executor-backend ray"
        ])
    );
    for container in [leader, worker] {
        assert_eq!(container["image"], "vllm/vllm-openai:v0.8.5");
        assert_eq!(container["resources"], json!({"limits": {"nvidia.com/gpu": "8"}}));
    }
}

#[rstest]
// spec: TOP-28
// spec: TOP-58
#[case::all("gangPolicy: All", 10, "80")]
// spec: TOP-65
#[case::minimum("gangPolicy: MinimumAvailable", 6, "48")]
#[case::by_default("", 6, "48")]
fn story_4_min_member_and_resources(#[case] strategy: &str, #[case] min_member: u32, #[case] gpus: &str) {
    let plan = plan_with_supply(&story_4(strategy));
    let spec = &pod_group(&plan)["spec"];
    assert_eq!(spec["minMember"], min_member);
    assert_eq!(spec["minResources"], json!({"nvidia.com/gpu": gpus}));
}

// spec: TOP-27
// spec: TOP-65
#[test]
fn story_4_requires_one_replica_of_each_role() {
    let plan = plan_with_supply(&story_4(""));
    let sizes: Vec<&Value> =
        plan.objects[1..4].iter().map(|set| &set["spec"]["leaderWorkerTemplate"]["size"]).collect();
    assert_eq!(sizes, [&json!(2), &json!(4), &json!(4)]);
    let subgroup = |role: &str, size: u32| {
        json!({"name": role, "subGroupSize": size, "minSubGroups": 1, "matchLabelKeys": ["fusioninfer.io/replica-index"],
               "labelSelector": {"matchLabels": {"fusioninfer.io/service": "deepseek-r1-disagg", "fusioninfer.io/role-name": role}}})
    };
    let spec = &pod_group(&plan)["spec"];
    assert_eq!(spec["subGroupPolicy"], json!([subgroup("prefill", 2), subgroup("decode", 4)]));
    assert_eq!(spec.get("minTaskMember"), None);
}

// spec: TOP-65
#[test]
fn warns_about_old_volcano_without_subgroups() {
    let mut snapshot = super::snapshot_with_supply(&story_4(""));
    snapshot.pod_group_schema = PodGroupSchema::MinTaskMember;
    let plan = crate::plan(&snapshot).services.remove(0);
    assert_eq!(plan.objects[0]["spec"]["minMember"], 10);
    assert_eq!(plan.warnings[0].code, "GangAllOrNothing");
}

#[rstest]
// spec: TOP-50
#[case::single_nodes(service("a", "", &[role("inference", "worker", 4, 1, 1)]), false)]
#[case::single_node_decoders(service("a", "", &[role("decode", "decoder", 4, 1, 1)]), false)]
#[case::pair(story_2(""), true)]
#[case::multi_node_workers(story_3(""), true)]
#[case::no_replica(service("a", "", &[role("inference", "worker", 0, 4, 8)]), false)]
fn creates_pod_group_when_required(#[case] manifest: String, #[case] expect: bool) {
    let plan = plan_with_supply(&manifest);
    assert!(plan.feasible, "{}", plan.message);
    assert_eq!(kinds(&plan).iter().any(|kind| kind.starts_with("PodGroup")), expect);
}

// spec: TOP-5
#[test]
fn behavior_depends_on_the_component_type() {
    let plan = plan_with_supply(&service(
        "a",
        "gangPolicy: All",
        &[role("foo", "prefiller", 1, 1, 1), role("prefill", "decoder", 1, 1, 1)],
    ));
    assert_eq!(pod_group(&plan)["spec"]["minTaskMember"], json!({"foo-0": 1, "prefill-0": 1}));
}

#[test]
fn single_node_worker_is_not_in_the_gang() {
    let roles =
        [role("prefill", "prefiller", 1, 1, 1), role("decode", "decoder", 1, 1, 1), role("extra", "worker", 1, 1, 1)];
    let plan = plan_with_supply(&service("a", "", &roles));
    assert_eq!(pod_group(&plan)["spec"]["minMember"], 2);
    let single_node_worker = plan.objects.iter().find(|object| object["metadata"]["name"] == "a-extra-0").unwrap();
    assert_eq!(single_node_worker["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"].get("schedulerName"), None);
}

// spec: TOP-14
#[test]
fn changing_a_role_does_not_change_others() {
    let before = plan_with_supply(&story_4(""));
    let edited = story_4("").replace("replicas: 2", "replicas: 3");
    let after = plan_with_supply(&edited);
    assert_eq!(before.objects[1], after.objects[1], "prefill-0");
    assert_eq!(code(&after), (true, "Rendered"));
}

#[test]
fn spreads_pods_of_a_replica_over_hosts() {
    let manifest = story_3("").replace("{nodeCount: 4}", "{nodeCount: 4, spread: true}");
    let plan = plan_with_supply(&manifest);
    let worker = &plan.objects[2]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"];
    let rule = &worker["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(rule["labelSelector"]["matchLabels"]["fusioninfer.io/replica-index"], "1");
    assert_eq!(rule["topologyKey"], "kubernetes.io/hostname");
}
