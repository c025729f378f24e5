//! Services that request dual pods: the provider that the controller derives from the rendered requester is the engine of the same
//! service without the annotation.

use std::collections::{BTreeMap, BTreeSet};

use actuation::{Derivation, GpuMap, NominalProvider, Owner, nominal_provider};
use api::parse_manifest;
use apimachinery::LabelSelector;
use apimachinery::object::labels;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::discovery::ApiResource;
use plan::Snapshot;
use rstest::rstest;
use serde_json::{Value, json};

use crate::session::{Session, ostler, outcome, post_chat, wait_until};

const OME: &str = "ome.io/actuation";
const ROLES: &str = "fusioninfer.io/actuation";
const PATCH: &str = "dual-pods.llm-d.ai/server-patch";

/// Returns the planned workload of the only service. Its annotations replace `@` in the manifest.
fn workload(manifest: &str, annotations: &str) -> Value {
    let documents = parse_manifest("f.yaml", &manifest.replace('@', annotations)).unwrap();
    let shipped: Vec<_> = ["classes/nvidia-ampere.yaml", "runtimes/vllm/llama-3.yaml", "models/meta.yaml"]
        .iter()
        .flat_map(|file| {
            let path = format!("{}/../../catalog/{file}", env!("CARGO_MANIFEST_DIR"));
            parse_manifest(file, &std::fs::read_to_string(path).unwrap()).unwrap()
        })
        .collect();
    let plan = plan::plan(&Snapshot::from_documents(&documents, &shipped).unwrap()).services.remove(0);
    assert!(plan.feasible, "{}", plan.message);
    let is_workload = |object: &&Value| ["Deployment", "LeaderWorkerSet"].iter().any(|kind| object["kind"] == *kind);
    plan.objects.iter().find(is_workload).unwrap().clone()
}

fn template(workload: &Value) -> Value {
    let spec = &workload["spec"];
    [&spec["template"], &spec["leaderWorkerTemplate"]["workerTemplate"]]
        .into_iter()
        .find(|template| template.is_object())
        .unwrap()
        .clone()
}

/// Returns the Pod that the set creates, with what set and admission add to it.
fn requester(workload: &Value) -> (Value, Owner) {
    let mut pod = template(workload);
    pod["metadata"]["namespace"] = json!("default");
    let added = match workload["kind"].as_str().unwrap() {
        "Deployment" => json!({"pod-template-hash": "5d8f"}),
        _ => json!({"leaderworkerset.sigs.k8s.io/name": "s", "leaderworkerset.sigs.k8s.io/worker-index": "0",
            "leaderworkerset.sigs.k8s.io/group-index": "0", "leaderworkerset.sigs.k8s.io/group-key": "k",
            "leaderworkerset.sigs.k8s.io/template-revision-hash": "h"}),
    };
    let mut selector = workload["spec"]["selector"]["matchLabels"].clone();
    for (key, value) in added.as_object().unwrap() {
        pod["metadata"]["labels"][key] = value.clone();
        if !key.contains("group") && !key.contains("revision") {
            selector[key] = value.clone();
        }
    }
    let spec = &mut pod["spec"];
    spec["nodeName"] = json!("node-1");
    spec["restartPolicy"] = json!("Always");
    spec["hostname"] = json!("s-0");
    spec["volumes"] = json!([{"name": "kube-api-access-x2b9k", "projected": {}}]);
    let container = &mut spec["containers"][0];
    container["volumeMounts"] = json!([{"name": "kube-api-access-x2b9k", "mountPath": "/var/run/secrets"}]);
    container["env"] = json!([{"name": "LWS_GROUP_SIZE", "value": "1"}]);
    container["resources"]["requests"] = container["resources"]["limits"].clone();
    let selector = LabelSelector::from_json(&json!({"matchLabels": selector})).unwrap();
    (pod, Owner { name: "the set".to_owned(), selector })
}

fn derive(requester: &Value, owner: &Owner) -> NominalProvider {
    let map = GpuMap::from_config_map(&json!({"data": {"node-1": r#"{"GPU-a":0,"GPU-b":1}"#}}));
    nominal_provider(&Derivation {
        requester,
        node: "node-1",
        hostname: "host-1",
        accelerators: &BTreeSet::from(["GPU-b".to_owned()]),
        gpu_map: Some(&map),
        owner: Some(owner),
        settings: &actuation::Settings::default(),
    })
    .unwrap()
}

/// Returns the spec of the engine with the differences that dual pods make: sleep mode, name, accelerators and placement.
fn expected_spec(engine: &Value, index: usize, has_probe: bool) -> Value {
    let mut spec = engine["spec"].clone();
    for field in ["affinity", "topologySpreadConstraints"] {
        spec.as_object_mut().unwrap().remove(field);
    }
    spec["restartPolicy"] = json!("Never");
    spec["nodeSelector"]["kubernetes.io/hostname"] = json!("host-1");
    let container = &mut spec["containers"][index];
    container["name"] = json!("inference-server");
    let push = |list: &mut Value, item: Value| match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    };
    push(&mut container["args"], json!("--enable-sleep-mode"));
    push(&mut container["env"], json!({"name": "VLLM_SERVER_DEV_MODE", "value": "1"}));
    push(&mut container["env"], json!({"name": "CUDA_VISIBLE_DEVICES", "value": "1"}));
    for list in ["limits", "requests"] {
        if !container["resources"][list]["nvidia.com/gpu"].is_null() {
            container["resources"][list]["nvidia.com/gpu"] = json!("0");
        }
    }
    if !has_probe {
        container["readinessProbe"] =
            json!({"failureThreshold": 3, "httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 5});
    }
    // A null that JSON indexing inserted.
    container["resources"].as_object_mut().unwrap().retain(|_, amounts| !amounts.is_null());
    spec
}

const SHORT: &str = "
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat, @}
spec:
  model: {name: llama-3-2-3b-instruct}
";

const CUSTOM: &str = r#"
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat, labels: {kueue.x-k8s.io/queue-name: q}, @}
spec:
  engine:
    labels: {team: a, app: chat}
    annotations: {sidecar.istio.io/inject: "false"}
    nodeSelector: {zone: a}
    affinity:
      podAntiAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
        - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: chat}}}
    tolerations: [{key: gpu, operator: Exists}]
    serviceAccountName: models
    imagePullSecrets: [{name: registry}]
    priorityClassName: high
    runtimeClassName: nvidia
    securityContext: {fsGroup: 1000, runAsNonRoot: true}
    terminationGracePeriodSeconds: 90
    volumes: [{name: cache, emptyDir: {}}, {name: claim, persistentVolumeClaim: {claimName: models}}]
    initContainers: [{name: fetch, image: "fetch:1", volumeMounts: [{name: cache, mountPath: /cache}]}]
    containers: [{name: proxy, image: "proxy:1", ports: [{containerPort: 9000, name: http}]}]
    runner:
      name: engine
      image: vllm/vllm-openai:v0.32.0
      command: [vllm, serve, "{{ .NodeName }}/{% if x %}"]
      args: ["--chat-template={{ messages }}", "--max-model-len=4096"]
      env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: t, key: k}}}, {name: PORT, value: "8000"}]
      ports: [{containerPort: 8000, name: api}]
      readinessProbe: {httpGet: {path: /health, port: api}, initialDelaySeconds: 60, successThreshold: 1}
      livenessProbe: {httpGet: {path: /health, port: api}}
      startupProbe: {exec: {command: ["true"]}}
      lifecycle: {preStop: {exec: {command: [sleep, "5"]}}}
      securityContext: {privileged: false, capabilities: {add: [SYS_NICE]}}
      resources: {requests: {cpu: "4", nvidia.com/gpu: 1}, limits: {memory: 32Gi, nvidia.com/gpu: 1}}
      volumeMounts: [{name: cache, mountPath: /cache}]
      workingDir: /w
      futureField: {a: [1, null]}
    hostIPC: true
    shareProcessNamespace: true
"#;

const ROLE: &str = r#"
apiVersion: fusioninfer.io/v1alpha1
kind: InferenceService
metadata: {name: chat, @}
spec:
  roles:
  - name: worker
    componentType: worker
    replicas: 2
    template:
      metadata: {labels: {team: a}, annotations: {note: b}}
      spec:
        volumes: [{name: shm, emptyDir: {medium: Memory}}]
        topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
        containers:
        - {name: log, image: "log:1"}
        - name: vllm
          image: vllm/vllm-openai:v0.11.0
          command: [vllm, serve, Qwen/Qwen3-8B]
          resources: {limits: {nvidia.com/gpu: "1"}}
          volumeMounts: [{name: shm, mountPath: /dev/shm}]
"#;

// spec: DP-17, DP-36, DP-37, DP-38
#[rstest]
#[case::selected_runtime(SHORT, OME, 0, true)]
#[case::own_engine(&CUSTOM.replace("{{ .NodeName }}", "m"), OME, 0, true)]
#[case::role(ROLE, ROLES, 1, false)]
#[case::gang(&ROLE.replace("componentType: worker", "componentType: prefiller").replace("  - name: worker", "  - {name: d, componentType: decoder, template: {spec: {containers: [{name: vllm, image: vllm/vllm-openai:v1, resources: {limits: {nvidia.com/gpu: '1'}}}]}}}\n  - name: worker"), ROLES, 0, false)]
fn provider_is_the_engine(#[case] manifest: &str, #[case] key: &str, #[case] index: usize, #[case] has_probe: bool) {
    let engine = template(&workload(manifest, ""));
    let dual = workload(manifest, &format!("annotations: {{{key}: dual-pods}}"));
    let (requester, owner) = requester(&dual);
    let nominal = derive(&requester, &owner);
    let expected = expected_spec(&engine, index, has_probe);
    pretty_assert(&nominal.spec, &expected);

    let all_labels: BTreeMap<String, String> =
        nominal.labels.iter().chain(&nominal.pool_labels).map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut expected = labels(&engine);
    expected.insert(key.to_owned(), "provider".to_owned());
    expected.extend((dual["kind"] == "Deployment").then(|| ("pod-template-hash".to_owned(), "5d8f".to_owned())));
    assert_eq!(all_labels, expected);
    assert!(nominal.pool_labels.contains_key(key), "an engine that sleeps is not selected");
    let gang = ["scheduling.k8s.io/group-name", "volcano.sh/task-spec"];
    let annotations = apimachinery::object::string_map(engine.pointer("/metadata/annotations"));
    let annotations: BTreeMap<_, _> =
        annotations.into_iter().filter(|(key, _)| !gang.contains(&key.as_str())).collect();
    assert_eq!(nominal.annotations, annotations);

    // All replicas on the same accelerators need the same engine.
    let mut other = requester.clone();
    other["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-key"] = json!("other");
    assert_eq!(derive(&other, &owner).identity, nominal.identity);
    assert!(requester["metadata"]["annotations"][PATCH].is_string());
}

/// Compares as text, of which a difference is readable.
fn pretty_assert(actual: &Value, expected: &Value) {
    let text = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    assert!(actual == expected, "actual {}\nexpected {}", text(actual), text(expected));
}

const SLEEPING: &str = "dual-pods.llm-d.ai/sleeping";
/// A role that the simulated engine serves.
const SIMULATED_ROLE: &str = "
apiVersion: fusioninfer.io/v1alpha1
kind: InferenceService
metadata: {name: chat, @}
spec:
  roles:
  - name: engine
    componentType: worker
    template:
      spec:
        containers:
        - {name: vllm, image: vllm/vllm-openai:v0.11.0, command: [vllm, serve, m], resources: {limits: {nvidia.com/gpu: 1}}}
";

/// Returns names of Pods with this value of the label `sleeping`.
async fn providers(pods: &Api<Pod>, sleeping: &str) -> Vec<String> {
    let list = pods.list(&ListParams::default().labels(&format!("{SLEEPING}={sleeping}"))).await.unwrap();
    list.items.into_iter().filter_map(|pod| pod.metadata.name).collect()
}

/// Polls until `observe` returns a value.
async fn wait_for<T>(what: &str, observe: impl AsyncFn() -> Option<T>) -> T {
    let poll = async {
        loop {
            match observe().await {
                Some(value) => return value,
                None => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    };
    tokio::time::timeout(crate::session::TIMEOUT, poll).await.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}

/// The service is scaled to zero and back: its engine sleeps, and is woken. When it is deleted while its engine sleeps, no engine is
/// left.
// spec: DP-12
#[rstest]
#[case::ome(SHORT, OME, "ome.io/v1beta1")]
#[case::role(SIMULATED_ROLE, ROLES, "fusioninfer.io/v1alpha1")]
#[tokio::test(flavor = "multi_thread")]
async fn service_sleeps_and_wakes(#[case] manifest: &str, #[case] key: &str, #[case] api_version: &str) {
    let session = Session::start(&["--nodes", "1×A100-80G"]);
    let client = session.client().await;
    let (group, version) = api_version.split_once('/').unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, "InferenceService"));
    let services = Api::<DynamicObject>::namespaced_with(client.clone(), "default", &resource);
    let pods = Api::<Pod>::namespaced(client, "default");
    let manifest = manifest.replace('@', &format!("annotations: {{{key}: dual-pods}}"));
    let service = parse_manifest("f.yaml", &manifest).unwrap().remove(0).value;
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();

    let ready = async || {
        let service = serde_json::to_value(services.get("chat").await.unwrap()).unwrap();
        let is_current = service["status"]["observedGeneration"] == service["metadata"]["generation"];
        let mut conditions = service["status"]["conditions"].as_array().into_iter().flatten();
        (is_current && conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True"))
            .then_some(())
    };
    let run = |args: &'static [&'static str]| {
        let kubeconfig = session.kubeconfig.clone();
        move || outcome(&ostler(args).args(["--kubeconfig", &kubeconfig]).output().unwrap())
    };
    wait_for("the service", ready).await;
    let engine = providers(&pods, "false").await;
    assert_eq!(engine.len(), 1);
    let request = |session: &Session| {
        post_chat(&session.gateway, r#"{"model":"chat","max_tokens":1,"messages":[{"role":"user","content":"a"}]}"#)
    };
    wait_until("a response", || request(&session).starts_with("HTTP/1.0 200").then_some(()));

    let (stdout, stderr, code) = run(&["scale", "inferenceservice/chat", "engine=0"])();
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let asleep =
        wait_for("sleep", async || Some(providers(&pods, "true").await).filter(|names| !names.is_empty())).await;
    assert_eq!(asleep, engine);
    wait_for("the service without replicas", ready).await;
    assert!(!request(&session).starts_with("HTTP/1.0 200"), "the engine sleeps");
    let explanation = run(&["explain", "inferenceservice/chat"])().0;
    assert!(explanation.contains("1 engine in dual pods, deleted with the service"), "{explanation}");
    assert!(explanation.contains("asleep since"), "{explanation}");

    assert_eq!(run(&["scale", "inferenceservice/chat", "engine=1"])().2, Some(0));
    wait_for("the engine", async || (providers(&pods, "false").await == engine).then_some(())).await;
    wait_until("a response of the engine that woke up", || request(&session).starts_with("HTTP/1.0 200").then_some(()));

    assert_eq!(run(&["scale", "inferenceservice/chat", "engine=0"])().2, Some(0));
    wait_for("sleep", async || (providers(&pods, "true").await == engine).then_some(())).await;
    services.delete("chat", &DeleteParams::default()).await.unwrap();
    wait_for("the end of all Pods", async || {
        pods.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
}
