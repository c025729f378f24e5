//! Whole explanations, over one small cluster: 8×H100 of which 6 are held, 4×L40S.

use std::collections::BTreeSet;

use api::manifest;
use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::live::Live;

const SUPPLY: &str = include_str!("../../../tests/it/supply.yaml");

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn cluster() -> Live {
    let mut live = Live::default();
    for document in manifest::read("supply.yaml", SUPPLY).unwrap() {
        let mut object = document.value.clone();
        match document.kind() {
            "Node" => live.nodes.push(object),
            "Pod" => live.pods.push(object),
            "AcceleratorClass" => {
                let nodes = match document.name() {
                    "h100" => json!(["big-0"]),
                    "l40s" => json!(["small-0"]),
                    _ => json!([]),
                };
                object["status"] = json!({"nodes": nodes});
                live.offered.push(object);
            }
            _ => live.offered.push(object),
        }
    }
    live
}

/// A service with the decision that would be recorded, and conditions since two minutes.
fn service(spec: Value, live: &Live, conditions: &[(&str, &str, &str, &str)]) -> Value {
    let mut service = json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default", "generation": 1}, "spec": spec,
    });
    let read = plan::Service::read(&crate::live::document(service.clone())).unwrap().unwrap();
    let plan = serde_json::to_value(plan::plan_service(&live.snapshot(), &read)).unwrap();
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason, message)| {
            let message = if *message == "(decision)" { text(&plan, "/message") } else { message };
            let since = now() - SignedDuration::from_secs(120);
            json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
        })
        .collect();
    service["status"] = json!({"observedGeneration": 1, "decision": plan, "conditions": conditions});
    service
}

fn pending(name: &str, class_label: &str, accelerators: u32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"ome.io/inferenceservice": "chat", "component": "engine"}},
        "spec": {
            "nodeSelector": {"nvidia.com/gpu.product": class_label},
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": accelerators}}}],
        },
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available: many words."},
        ]},
    })
}

fn running(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
        "status": {"phase": "Running"},
    })
}

fn explained(service: &Value, live: &Live) -> String {
    let text = render(&service::explain(service, crate::commands::explain::around(live, service, now())));
    no_sentence_twice(&text);
    text
}

/// Names and numbers may come again; what is said of them may not. Remedies say what would be, not what is.
#[track_caller]
fn no_sentence_twice(text: &str) {
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
fn accelerators_that_others_hold() {
    let mut live = cluster();
    let mut held = live.pods[0].clone();
    held["metadata"] = json!({"name": "sum-0", "namespace": "default", "labels": {"fusioninfer.io/service": "sum"}});
    live.pods = vec![held];
    live.pods.extend(["a", "b"].map(|name| pending(&format!("chat-engine-{name}"), "NVIDIA-H100-80GB-HBM3", 4)));
    let told = "Pod chat-engine-a: 0/2 nodes are available: many words.";
    let spec = json!({"model": {"name": "llama-3-3-70b-instruct"}, "engine": {"minReplicas": 2}});
    let service = service(
        spec,
        &live,
        &[("WorkloadsReady", "False", "Unschedulable", told), ("Ready", "False", "Unschedulable", told)],
    );
    insta::assert_snapshot!(explained(&service, &live));
}

#[test]
fn a_class_that_does_not_exist() {
    let live = cluster();
    let spec =
        json!({"model": {"name": "llama-3-2-3b-instruct"}, "acceleratorSelector": {"preferredClasses": ["l40"]}});
    let service = service(
        spec,
        &live,
        &[
            ("RuntimeResolved", "False", "NoEligibleAccelerator", "(decision)"),
            ("AcceleratorResolved", "False", "NoEligibleAccelerator", "(decision)"),
            ("WorkloadsReady", "False", "NotPlanned", "nothing runs until a runtime and its accelerators are found"),
            ("Ready", "False", "NoEligibleAccelerator", "(decision)"),
        ],
    );
    insta::assert_snapshot!(explained(&service, &live));
}

// A runtime would do, and its topology cannot be made: the winner is no row without a reason, and nobody is said to refuse.
#[test]
fn a_choice_that_cannot_be_made() {
    let live = cluster();
    let terms = |letter: char| {
        let terms: Vec<Value> = (0..30)
            .map(|n| json!({"matchExpressions": [{"key": format!("{letter}{n}"), "operator": "Exists"}]}))
            .collect();
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    };
    let mut live = live;
    live.offered.iter_mut().filter(|one| one["kind"] == "ClusterServingRuntime").for_each(|runtime| {
        runtime["spec"]["engineConfig"]["affinity"] = terms('a');
    });
    live.nodes.clear();
    let spec = json!({"model": {"name": "llama-3-2-3b-instruct"}, "engine": {"affinity": terms('b')}});
    let service = service(spec, &live, &[("RuntimeResolved", "False", "AffinityTooLarge", "(decision)")]);
    let text = explained(&service, &live);
    assert!(text.contains("multiply to 900 terms"), "{text}");
    assert!(text.contains("would serve it") && !text.contains("  :") && !text.contains("none of"), "{text}");
}

#[test]
fn a_runtime_that_was_chosen_and_cannot_be_laid_out() {
    let live = cluster();
    let told = "an engine of this shape is not supported yet";
    let mut service = service(
        json!({"model": {"name": "llama-3-2-3b-instruct"}}),
        &live,
        &[("RuntimeResolved", "False", "InvalidTemplate", told), ("Ready", "False", "InvalidTemplate", told)],
    );
    let decision = &mut service["status"]["decision"];
    decision["feasible"] = json!(false);
    decision["reason"] = json!("InvalidTemplate");
    decision["message"] = json!(told);
    let text = explained(&service, &live);
    assert!(text.starts_with(&format!("default/chat is not ready: {told} (2 minutes)")), "{text}");
    assert!(text.contains("  would serve it"), "{text}");
}

#[test]
fn a_model_that_is_too_big_for_every_runtime() {
    let mut live = cluster();
    live.offered.iter_mut().filter(|one| one["kind"] == "ClusterBaseModel").for_each(|model| {
        model["spec"]["modelParameterSize"] = json!("900B");
    });
    let service = service(
        json!({"model": {"name": "llama-3-3-70b-instruct"}}),
        &live,
        &[
            ("RuntimeResolved", "False", "NoCompatibleRuntime", "(decision)"),
            ("Ready", "False", "NoCompatibleRuntime", "(decision)"),
        ],
    );
    insta::assert_snapshot!(explained(&service, &live));
}

/// No change to the service but another model would help: a smaller one that is served at once, else those that wait for room.
#[rstest]
#[case::with_room(0, "serve a smaller model: set spec.model.name to llama-3-2-3b-instruct (3.2B)")]
#[case::without_room(1, "name another model in spec.model.name; served here: llama-3-2-3b-instruct")]
fn a_model_that_is_too_big_where_others_are_served(#[case] pods_on_every_device: u32, #[case] expect: &str) {
    let mut live = cluster();
    let is_it =
        |one: &&mut Value| one["kind"] == "ClusterBaseModel" && one["metadata"]["name"] == "llama-3-3-70b-instruct";
    live.offered.iter_mut().filter(is_it).for_each(|model| model["spec"]["modelParameterSize"] = json!("90T"));
    // The others use no accelerator, and would take anything.
    let needs_class = |one: &Value| text(one, "/metadata/name").starts_with("sglang-");
    live.offered.retain(|one| one["kind"] != "ClusterServingRuntime" || needs_class(one));
    for (node, devices) in [("big-0", 2), ("small-0", 4)] {
        live.pods.extend((0..devices * pods_on_every_device).map(|index| running(&format!("{node}-{index}"), node)));
    }
    let told = [("RuntimeResolved", "False", "NoCompatibleRuntime", "(decision)")];
    let text = explained(&service(json!({"model": {"name": "llama-3-3-70b-instruct"}}), &live, &told), &live);
    assert!(text.contains("What would help") && text.contains(expect), "{text}");
}

#[test]
fn a_pod_that_crashes() {
    let mut live = cluster();
    let mut pod = pending("chat-engine-a", "NVIDIA-L40S", 1);
    pod["spec"]["nodeName"] = json!("small-0");
    pod["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}]});
    live.pods.push(pod);
    let told = "Pod chat-engine-a: container main ended with exit code 1 and was restarted 4 times; see its logs";
    let service = service(
        json!({"model": {"name": "llama-3-2-3b-instruct"}}),
        &live,
        &[("WorkloadsReady", "False", "CrashLoop", told), ("Ready", "False", "CrashLoop", told)],
    );
    insta::assert_snapshot!(explained(&service, &live));
}

#[test]
fn one_that_is_ready() {
    let live = cluster();
    let service = service(
        json!({"model": {"name": "llama-3-2-3b-instruct"}}),
        &live,
        &[("Ready", "True", "Ready", "every component is ready")],
    );
    insta::assert_snapshot!(explained(&service, &live));
}

#[test]
fn roles_that_wait() {
    let mut live = cluster();
    let mut pod = pending("pd-prefill-0", "NVIDIA-L40S", 5);
    pod["metadata"]["labels"] = json!({"fusioninfer.io/service": "pd"});
    live.pods.push(pod);
    let condition = |kind: &str| json!({"type": kind, "status": "False", "reason": "Unschedulable", "message": "Pod pd-prefill-0: many words"});
    let service = json!({
        "apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "pd", "namespace": "default", "generation": 1},
        "status": {"observedGeneration": 1, "conditions": [condition("Active"), condition("Failed"), condition("Ready")]},
    });
    let around = crate::commands::explain::around(&live, &service, now());
    insta::assert_snapshot!(render(&service::explain(&service, around)));
}

#[test]
fn an_empty_class_finds_the_node_that_no_class_has() {
    let mut live = cluster();
    live.nodes.push(json!({
        "metadata": {"name": "odd-0", "labels": {"nvidia.com/gpu.product": "NVIDIA-B300"}},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}},
    }));
    let class = live.offered.iter().find(|one| one["metadata"]["name"] == "t4").cloned().unwrap();
    let text = render(&class::explain(&class, &live, now()));
    no_sentence_twice(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_class_with_nodes_and_who_uses_it() {
    let mut live = cluster();
    let user = service(json!({"model": {"name": "llama-3-2-3b-instruct"}}), &live, &[("Ready", "True", "Ready", "")]);
    live.services.push(user);
    let class = live.offered.iter().find(|one| one["metadata"]["name"] == "l40s").cloned().unwrap();
    insta::assert_snapshot!(render(&class::explain(&class, &live, now())));
}

fn of_runtime(name: &str) -> String {
    let mut live = cluster();
    let user = service(json!({"model": {"name": "llama-3-2-3b-instruct"}}), &live, &[("Ready", "True", "Ready", "")]);
    live.services.push(user);
    let runtime = live.offered.iter().find(|one| one["metadata"]["name"] == name).cloned().unwrap();
    render(&runtime::runtime(&runtime, &live, now()))
}

#[test]
fn a_runtime_that_is_switched_off() {
    insta::assert_snapshot!(of_runtime("switched-off"));
}

#[test]
fn a_runtime_that_another_outranks() {
    insta::assert_snapshot!(of_runtime("vllm-3b"));
}

#[test]
fn a_model_and_its_runtimes() {
    let live = cluster();
    let model = live.offered.iter().find(|one| one["metadata"]["name"] == "llama-3-3-70b-instruct").cloned().unwrap();
    insta::assert_snapshot!(render(&runtime::model(&model, &live, now())));
}

#[rstest]
#[case(1, "1 second")]
#[case(119, "119 seconds")]
#[case(120, "2 minutes")]
#[case(7200, "2 hours")]
#[case(200_000, "2 days")]
#[case(-5, "0 seconds")]
fn ages(#[case] seconds: i64, #[case] text: &str) {
    assert_eq!(age(now() - SignedDuration::from_secs(seconds), now()).as_deref(), Some(text));
}
