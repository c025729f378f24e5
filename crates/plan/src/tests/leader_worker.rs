//! Components with leader and workers.

use decide::SettingField;
use rstest::rstest;
use serde_json::{Value, json};

use super::{code, codes, kinds, plan_manifests, service, strings};
use crate::ServicePlan;
use crate::gang::PodGroupSchema;

/// Runtime whose commands configure the rendezvous of leader and workers.
const JOINING_RUNTIME: &str = r#"
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: joined}
spec:
  supportedModelFormats: [{name: safetensors}]
  engineConfig:
    minReplicas: 2
    maxReplicas: 2
    volumes: [{name: shm, emptyDir: {}}]
    leader:
      nodeSelector: {place: front}
      runner: {image: head:1, command: [head, --address, $(LWS_LEADER_ADDRESS)], ports: [{containerPort: 9000, name: http}], resources: {limits: {nvidia.com/gpu: "8"}}}
    worker:
      size: 3
      hostNetwork: true
      runner: {image: member:1, command: [member, --rank, $(LWS_WORKER_INDEX)], resources: {limits: {nvidia.com/gpu: "8"}}}
"#;

fn object<'a>(plan: &'a ServicePlan, kind: &str, name: &str) -> &'a Value {
    let object = plan.objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    object.unwrap_or_else(|| panic!("no {kind} {name} in {:?}: {} {}", kinds(plan), plan.reason, plan.message))
}

fn group<'a>(plan: &'a ServicePlan, name: &str) -> &'a Value {
    &object(plan, "LeaderWorkerSet", name)["spec"]["leaderWorkerTemplate"]
}

/// Returns the warning codes, except those about a missing model and class.
fn warning_codes(plan: &ServicePlan) -> Vec<&str> {
    codes(plan).into_iter().filter(|code| !["AcceleratorNotConsidered", "ModelUnstated"].contains(code)).collect()
}

fn line(template: &Value) -> Vec<String> {
    let container = &template["spec"]["containers"][0];
    [strings(&container["command"]), strings(&container["args"])].concat()
}

fn plan_joining_runtime() -> ServicePlan {
    plan_manifests(&[JOINING_RUNTIME, &service("chat", "{runtime: {name: joined}}")])
}

// spec: RT-35
// spec: RT-37
// spec: RT-38
#[test]
fn leader_and_workers_have_separate_containers() {
    let plan = plan_joining_runtime();
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    assert_eq!(
        kinds(&plan),
        [
            "PodGroup chat",
            "LeaderWorkerSet chat-engine",
            "Service chat-engine",
            "PodDisruptionBudget chat-engine",
            "BackendPool chat",
            "LLMUseCaseSet chat"
        ]
    );
    let set = object(&plan, "LeaderWorkerSet", "chat-engine");
    assert_eq!((&set["spec"]["replicas"], &set["spec"]["startupPolicy"]), (&json!(2), &json!("LeaderCreated")));
    let group = group(&plan, "chat-engine");
    assert_eq!(group["size"], 4);
    assert_eq!(plan.components["engine"].nodes, 4);
    let (leader, worker) = (&group["leaderTemplate"]["spec"], &group["workerTemplate"]["spec"]);
    assert_eq!(leader["containers"][0]["image"], "head:1");
    assert_eq!(worker["containers"][0]["image"], "member:1");
    assert_eq!(worker["containers"][0]["command"], json!(["member", "--rank", "$(LWS_WORKER_INDEX)"]));
    assert_eq!((&leader["nodeSelector"]["place"], worker.get("nodeSelector")), (&json!("front"), None));
    assert_eq!((leader.get("hostNetwork"), &worker["hostNetwork"]), (None, &json!(true)));
    assert_eq!(
        (&leader["volumes"], &worker["volumes"]),
        (&json!([{"name": "shm", "emptyDir": {}}]), &leader["volumes"])
    );
    assert_eq!(leader["containers"][0]["readinessProbe"]["tcpSocket"]["port"], 9000);
    assert_eq!(worker["containers"][0].get("readinessProbe"), None);
    assert_eq!(warning_codes(&plan), Vec::<&str>::new());
}

#[test]
fn services_select_leaders() {
    let plan = plan_joining_runtime();
    let leaders = json!({"ome.io/inferenceservice": "chat", "component": "engine", "leaderworkerset.sigs.k8s.io/worker-index": "0"});
    assert_eq!(object(&plan, "Service", "chat-engine")["spec"]["selector"], leaders);
    assert_eq!(object(&plan, "BackendPool", "chat")["spec"]["selector"], leaders);
    let labels = object(&plan, "Service", "chat-engine")["metadata"]["labels"].as_object().unwrap();
    assert!(!labels.contains_key("leaderworkerset.sigs.k8s.io/worker-index"));
    // LeaderWorkerSet creates headless Services per group, which do not collide with the component's Service.
    let set = object(&plan, "LeaderWorkerSet", "chat-engine");
    assert_eq!(set["spec"]["networkConfig"]["subdomainPolicy"], "UniquePerReplica");
}

#[test]
fn replica_is_a_subgroup() {
    let plan = plan_joining_runtime();
    let spec = &object(&plan, "PodGroup", "chat")["spec"];
    assert_eq!((&spec["minMember"], &spec["minResources"]), (&json!(4), &json!({"nvidia.com/gpu": "32"})));
    assert_eq!(
        spec["subGroupPolicy"],
        json!([{
            "name": "engine",
            "labelSelector": {"matchLabels": {"ome.io/inferenceservice": "chat", "component": "engine"}},
            "matchLabelKeys": ["leaderworkerset.sigs.k8s.io/group-index"],
            "subGroupSize": 4,
            "minSubGroups": 1,
        }])
    );
    for template in ["leaderTemplate", "workerTemplate"] {
        let template = &group(&plan, "chat-engine")[template];
        assert_eq!(template["spec"]["schedulerName"], "volcano");
        assert_eq!(
            template["metadata"]["annotations"],
            json!({"ome.io/serving-runtime": "joined", "scheduling.k8s.io/group-name": "chat", "volcano.sh/task-spec": "engine"})
        );
    }
}

#[test]
fn older_volcano_schedules_all_replicas_or_none() {
    let mut snapshot = super::snapshot(&[JOINING_RUNTIME, &service("chat", "{runtime: {name: joined}}")]);
    snapshot.pod_group_schema = PodGroupSchema::MinTaskMember;
    let plan = crate::plan(&snapshot).services.remove(0);
    let spec = &object(&plan, "PodGroup", "chat")["spec"];
    assert_eq!((&spec["minMember"], &spec["minTaskMember"]), (&json!(8), &json!({"engine": 8})));
    assert_eq!(warning_codes(&plan), ["GangAllOrNothing"]);
}

#[rstest]
// spec: RT-35
// spec: TOP-49
#[case::sglang(
    "lmsysorg/sglang:v1",
    "[python3, -m, sglang.launch_server, --tp, '16']",
    "python3 -m sglang.launch_server --tp 16 --dist-init-addr $(LWS_LEADER_ADDRESS):20000 --nnodes 2 --node-rank $(LWS_WORKER_INDEX)",
    "python3 -m sglang.launch_server --tp 16 --dist-init-addr $(LWS_LEADER_ADDRESS):20000 --nnodes 2 --node-rank $(LWS_WORKER_INDEX)"
)]
// spec: TOP-43
#[case::vllm(
    "vllm/vllm-openai:v1",
    "[vllm, serve, m]",
    "/bin/sh -c ray start --head --port=6379 && vllm serve m --distributed-executor-backend ray",
    "/bin/sh -c timeout 600 /bin/sh -c 'until ray health-check --address=$LWS_LEADER_ADDRESS:6379 >/dev/null 2>&1; do sleep 2; done'; ray start --address=$LWS_LEADER_ADDRESS:6379 --block"
)]
fn workers_without_a_command_inherit_the_leader(
    #[case] image: &str,
    #[case] command: &str,
    #[case] leader: &str,
    #[case] worker: &str,
) {
    let runner = format!("{{image: '{image}', command: {command}, env: [{{name: A, value: b}}]}}");
    for engine in [
        format!("{{leader: {{runner: {runner}}}, worker: {{size: 1}}}}"),
        format!("{{runner: {runner}, worker: {{size: 1}}}}"),
    ] {
        let plan = plan_manifests(&[&service("chat", &format!("{{engine: {engine}}}"))]);
        let group = group(&plan, "chat-engine");
        assert_eq!(line(&group["leaderTemplate"]).join(" "), leader);
        assert_eq!(line(&group["workerTemplate"]).join(" "), worker);
        assert_eq!(group["workerTemplate"]["spec"]["containers"][0]["image"], image);
        assert_eq!(group["workerTemplate"]["spec"]["containers"][0]["env"][0]["name"], "A");
        assert_eq!(group["workerTemplate"]["spec"]["containers"][0].get("readinessProbe"), None);
    }
}

#[test]
fn warns_about_nodes_that_do_not_join() {
    let spec = "{engine: {leader: {runner: {image: x, args: [a]}}, worker: {size: 1, runner: {image: x, args: [a]}}}}";
    let plan = plan_manifests(&[&service("chat", spec)]);
    assert_eq!(warning_codes(&plan), ["NodesNotJoined"]);
}

#[test]
fn service_overrides_runtime_for_leader_and_worker() {
    let spec = "{runtime: {name: joined}, engine: {minReplicas: 1, maxReplicas: 1,
        leader: {runner: {env: [{name: ROLE, value: leader}]}}, worker: {size: 1, tolerations: [{key: w}]}}}";
    let plan = plan_manifests(&[JOINING_RUNTIME, &service("chat", spec)]);
    let group = group(&plan, "chat-engine");
    assert_eq!(group["size"], 2);
    let (leader, worker) = (&group["leaderTemplate"]["spec"], &group["workerTemplate"]["spec"]);
    assert_eq!(leader["containers"][0]["env"][0], json!({"name": "ROLE", "value": "leader"}));
    assert!(worker["containers"][0]["env"].as_array().unwrap().iter().all(|env| env["name"] != "ROLE"));
    let resource = json!({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
    assert_eq!(
        (&leader["tolerations"], &worker["tolerations"]),
        (&json!([resource]), &json!([{"key": "w"}, resource]))
    );
    let fields: Vec<&SettingField> = plan.settings["engine"].iter().map(|setting| &setting.field).collect();
    let worker_image = SettingField::Worker(Box::new(SettingField::named("image")));
    assert!(fields.contains(&&SettingField::Env("ROLE".to_owned())) && fields.contains(&&worker_image), "{fields:?}");
}

// spec: RT-26
// spec: RT-28
#[test]
fn autoscaler_targets_the_leader_worker_set() {
    let spec = "{runtime: {name: joined}, engine: {minReplicas: 1, maxReplicas: 3, scaleMetric: memory}}";
    let plan = plan_manifests(&[JOINING_RUNTIME, &service("chat", spec)]);
    let scaler = &object(&plan, "HorizontalPodAutoscaler", "chat-engine")["spec"];
    let target = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "chat-engine"});
    assert_eq!(scaler["scaleTargetRef"], target);
    assert_eq!(object(&plan, "LeaderWorkerSet", "chat-engine")["spec"].get("replicas"), None);
}

const PAIR: &str = "engine: {runner: {image: vllm/vllm-openai}}, decoder: {LEADERS runner: {image: vllm/vllm-openai}}";

// spec: RT-36
#[rstest]
#[case::single_nodes("", None, &["Deployment chat-engine", "Deployment chat-decoder"])]
#[case::requested("", Some("true"), &["PodGroup chat", "LeaderWorkerSet chat-engine", "LeaderWorkerSet chat-decoder"])]
#[case::several_nodes("worker: {size: 1},", None, &["PodGroup chat", "LeaderWorkerSet chat-engine", "LeaderWorkerSet chat-decoder"])]
#[case::disabled("worker: {size: 1},", Some("false"), &["Deployment chat-engine", "LeaderWorkerSet chat-decoder"])]
fn schedules_a_pair_as_a_gang(#[case] leaders: &str, #[case] annotation: Option<&str>, #[case] expect: &[&str]) {
    let spec = PAIR.replace("LEADERS", leaders);
    let annotations = annotation.map(|value| format!(", annotations: {{ome.io/gang: '{value}'}}")).unwrap_or_default();
    let manifest = service("chat", &format!("{{{spec}}}")).replace("name: chat", &format!("name: chat{annotations}"));
    let plan = plan_manifests(&[&manifest]);
    let workloads: Vec<String> = kinds(&plan)
        .into_iter()
        .filter(|kind| ["Pod", "Lea", "Dep"].iter().any(|start| kind.starts_with(start) && !kind.contains("Budget")))
        .collect();
    assert_eq!(workloads, expect, "{}", plan.message);
    if expect.len() == 3 {
        let policies = object(&plan, "PodGroup", "chat")["spec"]["subGroupPolicy"].as_array().unwrap();
        let sizes: Vec<i64> = policies.iter().map(|policy| policy["subGroupSize"].as_i64().unwrap()).collect();
        assert_eq!(sizes, [1, if leaders.is_empty() { 1 } else { 2 }]);
    }
}

#[rstest]
#[case::no_gang("{engine: {runner: {image: x}}}", "true", (true, "Selected"), &["FieldIgnored"])]
#[case::invalid_value("{engine: {runner: {image: x}}}", "yes", (false, "InvalidAnnotation"), &[])]
#[case::scheduler("{engine: {schedulerName: other, runner: {image: vllm/x, args: [a]}, worker: {size: 1}}}", "true", (false, "SchedulerConflict"), &[])]
fn checks_gang_annotation_and_scheduler(
    #[case] spec: &str,
    #[case] annotation: &str,
    #[case] expect: (bool, &str),
    #[case] warnings: &[&str],
) {
    let manifest = service("chat", spec)
        .replace("name: chat", &format!("name: chat, annotations: {{ome.io/gang: '{annotation}'}}"));
    let plan = plan_manifests(&[&manifest]);
    assert_eq!((code(&plan), warning_codes(&plan).as_slice()), (expect, warnings), "{}", plan.message);
}

#[rstest]
#[case::strategy(
    "{deploymentStrategy: {type: Recreate}, worker: {size: 1}, runner: {image: vllm/x}}",
    "deploymentStrategy has no effect"
)]
#[case::labels(
    "{labels: {component: mine, team: a}, runner: {image: x}}",
    "engine.labels: component is managed by the operator"
)]
fn warns_about_ignored_fields(#[case] engine: &str, #[case] expect: &str) {
    let plan = plan_manifests(&[&service("chat", &format!("{{engine: {engine}}}"))]);
    let message = plan.warnings.iter().find(|warning| warning.code == "FieldIgnored").map(|warning| &warning.message);
    assert!(message.is_some_and(|message| message.contains(expect)), "{message:?}");
}

#[test]
fn truncates_long_names_of_leader_worker_sets() {
    let name = "a-service-of-a-name-that-is-longer-than-any-set-may-be";
    let plan = plan_manifests(&[JOINING_RUNTIME, &service(name, "{runtime: {name: joined}}")]);
    let set = plan.objects.iter().find(|object| object["kind"] == "LeaderWorkerSet").unwrap();
    assert!(set["metadata"]["name"].as_str().unwrap().len() <= 50);
}
