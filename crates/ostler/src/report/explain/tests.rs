//! Explanations of objects in a small cluster: a node with 8×H100, of which 6 are in use, and a node with 4×L40S.

use std::collections::BTreeSet;

use api::parse_manifest;
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::{Value, json};

use super::fields::text;
use super::service::ServiceContext;
use super::*;
use crate::cluster_objects::ClusterObjects;
use crate::pod_diagnostics::PodDiagnostics;

const SUPPLY: &str = include_str!("../../../tests/it/supply.yaml");

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn cluster() -> ClusterObjects {
    let mut objects = ClusterObjects::default();
    for document in parse_manifest("supply.yaml", SUPPLY).unwrap() {
        let mut object = document.value.clone();
        match document.kind() {
            "Node" => objects.nodes.push(object),
            "Pod" => objects.pods.push(object),
            "AcceleratorClass" => {
                let nodes = match document.name() {
                    "h100" => json!(["big-0"]),
                    "l40s" => json!(["small-0"]),
                    _ => json!([]),
                };
                object["status"] = json!({"nodes": nodes});
                objects.supply.push(object);
            }
            _ => objects.supply.push(object),
        }
    }
    objects
}

/// Returns a service with its recorded decision and with conditions that changed two minutes ago.
fn service(spec: Value, objects: &ClusterObjects, conditions: &[(&str, &str, &str, &str)]) -> Value {
    let mut service = json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default", "generation": 1}, "spec": spec,
    });
    let parsed = plan::Service::from_document(&crate::cluster_objects::document(service.clone())).unwrap().unwrap();
    let plan = plan::plan_service(&objects.snapshot(), &parsed);
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason, message)| {
            let message = if *message == "(decision)" { &plan.message } else { *message };
            let since = now() - SignedDuration::from_secs(120);
            json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
        })
        .collect();
    service["status"] = json!({"observedGeneration": 1, "decision": plan.record().to_json(), "conditions": conditions});
    if let Some(engine) = plan.components.get("engine") {
        let requests = json!({"nvidia.com/gpu": engine.accelerators_per_node.to_string()});
        service["status"]["components"]["engine"]["selectedAccelerator"] =
            json!({"acceleratorClass": engine.accelerator_class, "resourceRequests": requests});
    }
    service
}

fn pending_pod(name: &str, class_label: &str, accelerators: u32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"ome.io/inferenceservice": "chat", "component": "engine"}},
        "spec": {
            "nodeSelector": {"nvidia.com/gpu.product": class_label},
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": accelerators}}}],
        },
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available: insufficient resources."},
        ]},
    })
}

fn running_pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
        "status": {"phase": "Running"},
    })
}

fn render_explanation(service: &Value, objects: &ClusterObjects) -> String {
    let context = ServiceContext::new(service, objects, PodDiagnostics::new(), now());
    let text = render(&service::explain(service, context));
    assert_no_repeated_sentence(&text);
    text
}

/// Asserts that the tree repeats no sentence. Names and numbers may occur more than once.
#[track_caller]
fn assert_no_repeated_sentence(text: &str) {
    let tree = text.split("What would help").next().unwrap();
    let sentences: Vec<&str> = tree
        .lines()
        .flat_map(|line| line.split(": "))
        .map(|sentence| sentence.trim_matches([' ', '│', '├', '└', '─']))
        .map(|sentence| sentence.trim_end_matches(" (2 minutes)"))
        .filter(|sentence| sentence.split(' ').count() > 3)
        .collect();
    assert_eq!(sentences.iter().collect::<BTreeSet<_>>().len(), sentences.len(), "{text}");
}

#[test]
fn lists_services_that_use_the_accelerators() {
    let mut objects = cluster();
    let mut other_pod = objects.pods[0].clone();
    other_pod["metadata"] =
        json!({"name": "sum-0", "namespace": "default", "labels": {"fusioninfer.io/service": "sum"}});
    objects.pods = vec![other_pod];
    objects.pods.extend(["a", "b"].map(|name| pending_pod(&format!("chat-engine-{name}"), "NVIDIA-H100-80GB-HBM3", 4)));
    let message = "Pod chat-engine-a: 0/2 nodes are available: insufficient resources.";
    let spec = json!({"model": {"name": "llama-3-3-70b-instruct"}, "engine": {"minReplicas": 2}});
    let service = service(
        spec,
        &objects,
        &[("WorkloadsReady", "False", "Unschedulable", message), ("Ready", "False", "Unschedulable", message)],
    );
    insta::assert_snapshot!(render_explanation(&service, &objects));
}

/// Eight replicas of an H100 each do not fit on the node with eight, of which `sum` uses six. It need not be deleted, because a
/// node can be added, and its deletion would not help 16 replicas.
#[rstest]
#[case::no_deletion(8, true, &["add 1 node with 8 × h100: sglang-70b on 4 × h100", "free 6 more accelerators of class h100"])]
#[case::smaller_model(8, false, &[
    "add 1 node with 8 × h100: sglang-70b on 4 × h100",
    "use a smaller model: set spec.model.name to llama-3-2-3b-instruct",
    "free 6 more accelerators of class h100: sglang-70b on 4 × h100",
])]
#[case::larger_than_the_fleet(16, true, &["add 2 nodes with 8 × h100 each"])]
fn proposes_only_what_suffices(#[case] accelerators: u32, #[case] is_only_model: bool, #[case] expected: &[&str]) {
    let mut objects = cluster();
    if is_only_model {
        let is_other_model = |object: &Value| {
            object["kind"] == "ClusterBaseModel" && object["metadata"]["name"] != "llama-3-3-70b-instruct"
        };
        objects.supply.retain(|object| !is_other_model(object));
    }
    objects.pods[0]["metadata"] =
        json!({"name": "sum-0", "namespace": "default", "labels": {"fusioninfer.io/service": "sum"}});
    let replicas = accelerators / 4;
    let pod = |index| pending_pod(&format!("chat-engine-{index}"), "NVIDIA-H100-80GB-HBM3", 4);
    objects.pods.extend((0..replicas).map(pod));
    let message = "Pod chat-engine-0: 0/2 nodes are available: insufficient resources.";
    let service = service(
        json!({"model": {"name": "llama-3-3-70b-instruct"}, "engine": {"minReplicas": replicas}}),
        &objects,
        &[("WorkloadsReady", "False", "Unschedulable", message), ("Ready", "False", "Unschedulable", message)],
    );
    let text = render_explanation(&service, &objects);
    assert_eq!(text.contains("Waiting for free accelerators"), accelerators <= 8, "{text}");
    let remedies: Vec<&str> = text.split("What would help\n").nth(1).unwrap().lines().collect();
    assert_eq!(remedies.len(), expected.len(), "{text}");
    for (remedy, expected) in remedies.iter().zip(expected) {
        assert!(remedy.trim_start_matches([' ', '·']).starts_with(expected), "{text}");
    }
}

/// If the Pod requests more CPUs than any node has, neither a further node nor free accelerators would help.
#[rstest]
#[case::sufficient_node("64", true)]
#[case::too_many_cpus("65", false)]
fn proposes_no_accelerators_to_a_pod_that_lacks_another_resource(#[case] cpus: &str, #[case] expected: bool) {
    let mut objects = cluster();
    objects.nodes.iter_mut().for_each(|node| node["status"]["allocatable"]["cpu"] = json!("64"));
    let mut pod = pending_pod("chat-engine-0", "NVIDIA-H100-80GB-HBM3", 4);
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpus);
    objects.pods.push(pod);
    let message = "Pod chat-engine-0: 0/2 nodes are available: insufficient resources.";
    let service = service(
        json!({"model": {"name": "llama-3-3-70b-instruct"}}),
        &objects,
        &[("WorkloadsReady", "False", "Unschedulable", message), ("Ready", "False", "Unschedulable", message)],
    );
    let text = render_explanation(&service, &objects);
    for remedy in ["add 1 node with 8 × h100", "free 2 more accelerators"] {
        assert_eq!(text.contains(remedy), expected, "{text}");
    }
    assert!(!text.contains("kubectl delete"), "{text}");
}

/// `sum` uses six of eight H100s on the only node that `chat` accepts, so that a new node does not help.
#[rstest]
#[case::fewer_replicas(
    "kubernetes.io/hostname", &[2, 4],
    "reduce default/sum from 2 to 1 decode replicas: `ostler scale inferenceservice.fusioninfer.io/sum decode=1 -n default`"
)]
#[case::deletion_as_last_resort(
    "kubernetes.io/hostname", &[6],
    "kubectl delete inferenceservice.fusioninfer.io sum -n default   (destructive: deletes default/sum; frees 6 × nvidia.com/gpu)"
)]
#[case::node_instead_of_deletion("zone", &[6], "add 1 node with 8 × h100")]
fn proposes_the_deletion_of_another_service_last(
    #[case] label: &str,
    #[case] accelerators: &[u32],
    #[case] expected: &str,
) {
    let mut objects = cluster();
    let is_other_model =
        |object: &Value| object["kind"] == "ClusterBaseModel" && object["metadata"]["name"] != "llama-3-3-70b-instruct";
    objects.supply.retain(|object| !is_other_model(object));
    let node = objects.nodes.iter_mut().find(|node| node["metadata"]["name"] == "big-0").unwrap();
    node["metadata"]["labels"][label] = json!("big-0");
    let pod_of_sum = |(index, accelerators): (usize, &u32)| {
        let mut pod = running_pod(&format!("sum-{index}"), "big-0");
        pod["metadata"]["labels"] = json!({"fusioninfer.io/service": "sum", "fusioninfer.io/role-name": "decode",
            "fusioninfer.io/replica-index": index.to_string()});
        pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!(accelerators);
        pod
    };
    objects.pods = accelerators.iter().enumerate().map(pod_of_sum).collect();
    let mut pod = pending_pod("chat-engine-0", "NVIDIA-H100-80GB-HBM3", 4);
    pod["spec"]["nodeSelector"][label] = json!("big-0");
    objects.pods.push(pod);
    let message = "Pod chat-engine-0: 0/2 nodes are available: insufficient resources.";
    let service = service(
        json!({"model": {"name": "llama-3-3-70b-instruct"}, "engine": {"nodeSelector": {label: "big-0"}}}),
        &objects,
        &[("WorkloadsReady", "False", "Unschedulable", message), ("Ready", "False", "Unschedulable", message)],
    );
    let text = render_explanation(&service, &objects);
    let remedies: Vec<&str> = text.split("What would help\n").nth(1).unwrap().lines().collect();
    assert!(remedies[0].trim_start_matches([' ', '·']).starts_with(expected), "{text}");
    assert_eq!(text.contains("kubectl delete"), expected.starts_with("kubectl delete"), "{text}");
}

/// The record in the status does not change with the free capacity.
#[test]
fn shows_current_capacity_of_a_recorded_decision() {
    let mut objects = cluster();
    objects.pods.push(pending_pod("chat-engine-a", "NVIDIA-H100-80GB-HBM3", 4));
    let message = "Pod chat-engine-a: 0/2 nodes are available: insufficient resources.";
    let service = service(
        json!({"model": {"name": "llama-3-3-70b-instruct"}, "engine": {"minReplicas": 2}}),
        &objects,
        &[("WorkloadsReady", "False", "Unschedulable", message), ("Ready", "False", "Unschedulable", message)],
    );
    assert!(render_explanation(&service, &objects).contains("2 of 8 are free"));
    objects.pods[0]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!(5);
    let text = render_explanation(&service, &objects);
    assert!(text.contains("3 of 8 are free"), "{text}");
}

#[test]
fn suggests_similar_class_name() {
    let objects = cluster();
    let spec =
        json!({"model": {"name": "llama-3-2-3b-instruct"}, "acceleratorSelector": {"preferredClasses": ["l40"]}});
    let service = service(
        spec,
        &objects,
        &[
            ("RuntimeResolved", "False", "NoEligibleAccelerator", "(decision)"),
            ("AcceleratorResolved", "False", "NoEligibleAccelerator", "(decision)"),
            ("WorkloadsReady", "False", "NotPlanned", "Waiting for a runtime and accelerators to be selected"),
            ("Ready", "False", "NoEligibleAccelerator", "(decision)"),
        ],
    );
    insta::assert_snapshot!(render_explanation(&service, &objects));
}

// A runtime is selected, but its objects cannot be planned: the runtime is listed as able to serve the model, not as rejected.
#[test]
fn shows_plan_error_of_selected_runtime() {
    let objects = cluster();
    let terms = |letter: char| {
        let terms: Vec<Value> = (0..30)
            .map(|n| json!({"matchExpressions": [{"key": format!("{letter}{n}"), "operator": "Exists"}]}))
            .collect();
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    };
    let mut objects = objects;
    objects.supply.iter_mut().filter(|object| object["kind"] == "ClusterServingRuntime").for_each(|runtime| {
        runtime["spec"]["engineConfig"]["affinity"] = terms('a');
    });
    objects.nodes.clear();
    let spec = json!({"model": {"name": "llama-3-2-3b-instruct"}, "engine": {"affinity": terms('b')}});
    let service = service(spec, &objects, &[("RuntimeResolved", "False", "AffinityTooLarge", "(decision)")]);
    let text = render_explanation(&service, &objects);
    assert!(text.contains("multiply to 900 terms"), "{text}");
    assert!(text.contains("can serve it") && !text.contains("  :") && !text.contains("none of"), "{text}");
}

#[test]
fn shows_recorded_plan_error() {
    let objects = cluster();
    let message = "an engine with this topology is not supported";
    let mut service = service(
        json!({"model": {"name": "llama-3-2-3b-instruct"}}),
        &objects,
        &[("RuntimeResolved", "False", "InvalidTemplate", message), ("Ready", "False", "InvalidTemplate", message)],
    );
    let decision = &mut service["status"]["decision"];
    decision["feasible"] = json!(false);
    decision["reason"] = json!("InvalidTemplate");
    decision["message"] = json!(message);
    let text = render_explanation(&service, &objects);
    assert!(text.starts_with(&format!("default/chat is not ready: {message} (2 minutes)")), "{text}");
    assert!(text.contains("  can serve it"), "{text}");
}

#[test]
fn explains_model_that_is_too_large() {
    let mut objects = cluster();
    objects.supply.iter_mut().filter(|object| object["kind"] == "ClusterBaseModel").for_each(|model| {
        model["spec"]["modelParameterSize"] = json!("900B");
    });
    let service = service(
        json!({"model": {"name": "llama-3-3-70b-instruct"}}),
        &objects,
        &[
            ("RuntimeResolved", "False", "NoCompatibleRuntime", "(decision)"),
            ("Ready", "False", "NoCompatibleRuntime", "(decision)"),
        ],
    );
    insta::assert_snapshot!(render_explanation(&service, &objects));
}

/// Suggests a smaller model that can be scheduled, otherwise models that fit but would have to wait for capacity.
#[rstest]
#[case::free_capacity(0, "use a smaller model: set spec.model.name to llama-3-2-3b-instruct (3.2B)")]
#[case::no_free_capacity(1, "set spec.model.name to another model that can be served: llama-3-2-3b-instruct")]
fn suggests_other_models(#[case] pods_on_every_device: u32, #[case] expected: &str) {
    let mut objects = cluster();
    let is_model = |object: &&mut Value| {
        object["kind"] == "ClusterBaseModel" && object["metadata"]["name"] == "llama-3-3-70b-instruct"
    };
    objects.supply.iter_mut().filter(is_model).for_each(|model| model["spec"]["modelParameterSize"] = json!("90T"));
    // The other runtimes need no accelerator and would serve any model.
    let needs_class = |runtime: &Value| text(runtime, "/metadata/name").starts_with("sglang-");
    objects.supply.retain(|object| object["kind"] != "ClusterServingRuntime" || needs_class(object));
    for (node, devices) in [("big-0", 2), ("small-0", 4)] {
        objects
            .pods
            .extend((0..devices * pods_on_every_device).map(|index| running_pod(&format!("{node}-{index}"), node)));
    }
    let conditions = [("RuntimeResolved", "False", "NoCompatibleRuntime", "(decision)")];
    let text = render_explanation(
        &service(json!({"model": {"name": "llama-3-3-70b-instruct"}}), &objects, &conditions),
        &objects,
    );
    assert!(text.contains("What would help") && text.contains(expected), "{text}");
}

#[test]
fn explains_crashing_pod() {
    let mut objects = cluster();
    let mut pod = pending_pod("chat-engine-a", "NVIDIA-L40S", 1);
    pod["spec"]["nodeName"] = json!("small-0");
    pod["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}]});
    objects.pods.push(pod);
    let message = "Pod chat-engine-a: container main terminated with exit code 1 and restarted 4 times; see its logs";
    let service = service(
        json!({"model": {"name": "llama-3-2-3b-instruct"}}),
        &objects,
        &[("WorkloadsReady", "False", "CrashLoop", message), ("Ready", "False", "CrashLoop", message)],
    );
    insta::assert_snapshot!(render_explanation(&service, &objects));
}

/// A Pod of the fixed revision waits until the crashing Pod of the earlier revision has stopped.
#[test]
fn rollout_of_a_fix_neither_quotes_the_old_pod_nor_proposes_deletions() {
    let mut objects = cluster();
    let mut other_pod = objects.pods[0].clone();
    other_pod["metadata"] =
        json!({"name": "sum-0", "namespace": "default", "labels": {"fusioninfer.io/service": "sum"}});
    let pod_of_revision = |hash: &str, created: &str| {
        let mut pod = pending_pod(&format!("chat-engine-{hash}-x"), "NVIDIA-H100-80GB-HBM3", 2);
        pod["metadata"]["labels"]["pod-template-hash"] = json!(hash);
        pod["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "name": format!("chat-engine-{hash}")}]);
        pod["metadata"]["creationTimestamp"] = json!(created);
        pod
    };
    let mut old_pod = pod_of_revision("old", "2026-01-01T00:00:00Z");
    old_pod["spec"]["nodeName"] = json!("big-0");
    old_pod["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "message": "ValueError: set --max-model-len"}}}]});
    objects.pods = vec![other_pod, old_pod, pod_of_revision("new", "2026-01-01T00:01:00Z")];
    let message = "Pod chat-engine-new-x: 0/2 nodes are available: insufficient resources.";
    let service = service(
        json!({"model": {"name": "llama-3-2-3b-instruct"}}),
        &objects,
        &[("WorkloadsReady", "False", "Unschedulable", message), ("Ready", "False", "Unschedulable", message)],
    );
    let text = render_explanation(&service, &objects);
    assert!(text.contains("chat-engine-new-x"), "{text}");
    for absent in ["kubectl delete", "reduce the replicas", "max-model-len"] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
}

/// Replicas of an H100 each while `sum` uses six of eight. Two of `chat` can run, in the Deployment or in another workload.
#[rstest]
#[case::fewer_run(json!({"minReplicas": 3, "maxReplicas": 3}), "chat-engine", 2, Some("engine=2"))]
#[case::autoscaled(json!({"minReplicas": 1, "maxReplicas": 3}), "chat-engine", 2, Some("engine=1..2"))]
#[case::current_value(json!({"minReplicas": 2}), "chat-engine", 2, None)]
#[case::none_runs(json!({"minReplicas": 3}), "chat-engine", 0, None)]
#[case::replaced_workload_runs(json!({"minReplicas": 2}), "chat-old", 1, None)]
fn reduces_replicas_to_those_that_run(
    #[case] engine: Value,
    #[case] running_workload: &str,
    #[case] running: usize,
    #[case] expected: Option<&str>,
) {
    let mut objects = cluster();
    let pod = |workload: &str, index: usize| {
        let mut pod = pending_pod(&format!("{workload}-x-{index}"), "NVIDIA-H100-80GB-HBM3", 1);
        pod["metadata"]["labels"]["pod-template-hash"] = json!("x");
        pod["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "name": format!("{workload}-x")}]);
        pod
    };
    for index in 0..running {
        let mut pod = pod(running_workload, index);
        pod["spec"]["nodeName"] = json!("big-0");
        pod["status"] = json!({"phase": "Running"});
        objects.pods.push(pod);
    }
    // The node has no room for them, nor for the Pods of a replacement.
    objects.pods.extend((running..3).map(|index| {
        let mut pod = pod("chat-engine", index);
        pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!(8);
        pod
    }));
    let message = "Pod chat-engine-x-2: 0/2 nodes are available: insufficient resources.";
    let service = service(
        json!({"model": {"name": "llama-3-2-3b-instruct"}, "acceleratorSelector": {"preferredClasses": ["h100"]}, "engine": engine}),
        &objects,
        &[("WorkloadsReady", "False", "Unschedulable", message), ("Ready", "False", "Unschedulable", message)],
    );
    let text = render_explanation(&service, &objects);
    let command = expected.map(|replicas| format!("`ostler scale isvc/chat {replicas} -n default`"));
    assert_eq!(text.contains("ostler scale"), expected.is_some(), "{text}");
    assert!(command.is_none_or(|command| text.contains(&command)), "{text}");
    let pods = if running_workload == "chat-engine" { 3 } else { 2 };
    assert!(text.contains(&format!("{} of {pods} Pods cannot be scheduled", 3 - running)), "{text}");
}

#[test]
fn explains_ready_service() {
    let objects = cluster();
    let service = service(
        json!({"model": {"name": "llama-3-2-3b-instruct"}}),
        &objects,
        &[("Ready", "True", "Ready", "every component is ready")],
    );
    insta::assert_snapshot!(render_explanation(&service, &objects));
}

/// `kubectl drain` cordons the node, which is the remedy to revert.
#[test]
fn proposes_to_uncordon_a_drained_node() {
    let mut objects = cluster();
    let node = objects.nodes.iter_mut().find(|node| node["metadata"]["name"] == "small-0").unwrap();
    node["spec"]["unschedulable"] = json!(true);
    objects.pods.push(pending_pod("chat-engine-a", "NVIDIA-L40S", 1));
    let message = "Pod chat-engine-a: 0/2 nodes are available: 1 node(s) were unschedulable.";
    let service = service(
        json!({"model": {"name": "llama-3-2-3b-instruct"}, "acceleratorSelector": {"preferredClasses": ["l40s"]}}),
        &objects,
        &[("WorkloadsReady", "False", "Unschedulable", message), ("Ready", "False", "Unschedulable", message)],
    );
    insta::assert_snapshot!(render_explanation(&service, &objects));
    let class = objects.supply.iter().find(|object| object["metadata"]["name"] == "l40s").cloned().unwrap();
    let text = render(&class::explain(&class, &objects, now()));
    assert!(text.contains("small-0  0 of 4 free, cordoned"), "{text}");
}

#[test]
fn explains_unschedulable_role() {
    let mut objects = cluster();
    let mut pod = pending_pod("pd-prefill-0", "NVIDIA-L40S", 5);
    pod["metadata"]["labels"] = json!({"fusioninfer.io/service": "pd"});
    objects.pods.push(pod);
    let condition = |kind: &str| json!({"type": kind, "status": "False", "reason": "Unschedulable", "message": "Pod pd-prefill-0: insufficient resources"});
    let service = json!({
        "apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "pd", "namespace": "default", "generation": 1},
        "status": {"observedGeneration": 1, "conditions": [condition("Active"), condition("Failed"), condition("Ready")]},
    });
    let context = ServiceContext::new(&service, &objects, PodDiagnostics::new(), now());
    insta::assert_snapshot!(render(&service::explain(&service, context)));
}

#[test]
fn explains_empty_class() {
    let mut objects = cluster();
    objects.nodes.push(json!({
        "metadata": {"name": "odd-0", "labels": {"nvidia.com/gpu.product": "NVIDIA-B300"}},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}},
    }));
    let class = objects.supply.iter().find(|object| object["metadata"]["name"] == "t4").cloned().unwrap();
    let text = render(&class::explain(&class, &objects, now()));
    assert_no_repeated_sentence(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn explains_class_in_use() {
    let mut objects = cluster();
    let user =
        service(json!({"model": {"name": "llama-3-2-3b-instruct"}}), &objects, &[("Ready", "True", "Ready", "")]);
    objects.services.push(user);
    let class = objects.supply.iter().find(|object| object["metadata"]["name"] == "l40s").cloned().unwrap();
    insta::assert_snapshot!(render(&class::explain(&class, &objects, now())));
}

/// A restored copy of a class that the operator generated is neither updated nor deleted.
#[test]
fn explains_class_that_the_operator_does_not_own() {
    let objects = cluster();
    let mut class = objects.supply.iter().find(|object| object["metadata"]["name"] == "l40s").cloned().unwrap();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message});
    class["status"]["conditions"] = json!([
        condition("Ready", "True", "NodesAvailable", ""),
        condition(
            "Managed",
            "False",
            "NotOwned",
            "AcceleratorClass l40s was created by another client. Run `kubectl delete`"
        ),
    ]);
    let text = render(&class::explain(&class, &objects, now()));
    let line =
        "├─ Managed=False  NotOwned: AcceleratorClass l40s was created by another client. Run `kubectl delete`\n";
    assert!(text.contains(line) && text.contains("free"), "{text}");
}

fn explain_runtime(name: &str) -> String {
    let mut objects = cluster();
    let user =
        service(json!({"model": {"name": "llama-3-2-3b-instruct"}}), &objects, &[("Ready", "True", "Ready", "")]);
    objects.services.push(user);
    let runtime = objects.supply.iter().find(|object| object["metadata"]["name"] == name).cloned().unwrap();
    render(&runtime::explain(&runtime, &objects, now()))
}

#[test]
fn explains_disabled_runtime() {
    insta::assert_snapshot!(explain_runtime("vllm-disabled"));
}

#[test]
fn explains_outranked_runtime() {
    insta::assert_snapshot!(explain_runtime("vllm-3b"));
}

#[test]
fn explains_model() {
    let objects = cluster();
    let model =
        objects.supply.iter().find(|object| object["metadata"]["name"] == "llama-3-3-70b-instruct").cloned().unwrap();
    insta::assert_snapshot!(render(&model::explain(&model, &objects, now())));
}
