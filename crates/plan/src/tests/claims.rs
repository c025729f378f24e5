//! Claims of planned services reduce the capacity for other services.

use rstest::rstest;
use serde_json::{Value, json};

use super::{class, codes, node, service, snapshot};
use crate::Claim;

const CLASSES: &str = include_str!("stories/classes.yaml");
const RUNTIME: &str = "
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: rt}
spec:
  supportedModelFormats: [{name: safetensors}]
  acceleratorRequirements: {supportedClasses: [nvidia-a100-40gb, nvidia-h100-80gb]}
  engineConfig: {runner: {image: x, args: [--tp-size, \"8\"]}}
";

fn nodes() -> String {
    [node("a", "NVIDIA-A100-SXM4-40GB"), node("b", "NVIDIA-H100-80GB-HBM3")].join("\n---\n")
}

fn cost_optimized(name: &str) -> String {
    service(name, "{runtime: {name: rt}, acceleratorSelector: {strategy: cost}}")
}

#[test]
fn services_do_not_select_the_same_accelerators() {
    let snapshot = snapshot(&[
        CLASSES,
        RUNTIME,
        &nodes(),
        &cost_optimized("one"),
        &cost_optimized("two"),
        &cost_optimized("three"),
    ]);
    let plan = crate::plan(&snapshot);
    let classes: Vec<Option<&str>> = plan.services.iter().map(class).collect();
    // The first service selects the cheapest class, the second one the other class, and the third one waits for the cheapest
    // class.
    assert_eq!(classes, [Some("nvidia-a100-40gb"), Some("nvidia-h100-80gb"), Some("nvidia-a100-40gb")]);
    let waiting: Vec<bool> = plan.services.iter().map(|service| codes(service).contains(&"NoFreeCapacity")).collect();
    assert_eq!(waiting, [false, false, true]);
    let message = &plan.services[2].warnings.iter().find(|warning| warning.code == "NoFreeCapacity").unwrap().message;
    assert!(message.ends_with("0 of 8 are free on eligible nodes (8 claimed by default/one)"), "{message}");
}

/// A service that waits for capacity does not block another service.
#[test]
fn waiting_service_claims_nothing() {
    let spec = "{runtime: {name: rt}, acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}}";
    let service_on_a100 = |name: &str| service(name, spec);
    let snapshot = snapshot(&[
        CLASSES,
        RUNTIME,
        &nodes(),
        &service_on_a100("one"),
        &service_on_a100("two"),
        &cost_optimized("three"),
    ]);
    let plan = crate::plan(&snapshot);
    let waiting: Vec<bool> = plan.services.iter().map(|service| codes(service).contains(&"NoFreeCapacity")).collect();
    assert_eq!((waiting, class(&plan.services[2])), (vec![false, true, false], Some("nvidia-h100-80gb")));
    let message = &plan.services[1].warnings.iter().find(|warning| warning.code == "NoFreeCapacity").unwrap().message;
    assert!(message.ends_with("(8 claimed by default/one)"), "{message}");
}

#[test]
fn own_claim_does_not_reduce_capacity() {
    let mut snapshot = snapshot(&[CLASSES, RUNTIME, &nodes(), &cost_optimized("one")]);
    let first = crate::plan(&snapshot).services.remove(0);
    snapshot.claims = Claim::new("default", "one", &first.components).into_iter().collect();
    assert_eq!(crate::plan_service(&snapshot, &snapshot.services[0]), first);
}

/// A claim is counted only until its Pods run.
#[rstest]
#[case::no_pod(None, Some("nvidia-h100-80gb"))]
#[case::pending(Some(json!(null)), Some("nvidia-h100-80gb"))]
#[case::running(Some(json!("a")), Some("nvidia-h100-80gb"))]
fn running_pods_replace_claims(#[case] pod: Option<Value>, #[case] expect: Option<&str>) {
    let mut snapshot = snapshot(&[CLASSES, RUNTIME, &nodes(), &cost_optimized("one"), &cost_optimized("two")]);
    let first = crate::plan_service(&snapshot, &snapshot.services[0]);
    snapshot.claims = Claim::new("default", "one", &first.components).into_iter().collect();
    let pod = pod.map(|node| running(&first.objects[0], &node));
    std::sync::Arc::make_mut(&mut snapshot.inventory).set_pod("default", "one-0", pod.as_ref());
    let second = crate::plan_service(&snapshot, &snapshot.services[1]);
    assert_eq!(class(&second), expect);
    // The other class is free in every case.
    assert!(!codes(&second).contains(&"NoFreeCapacity"));
}

/// Returns a Pod of the Deployment on `node`.
fn running(deployment: &Value, node: &Value) -> Value {
    let template = &deployment["spec"]["template"];
    let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["namespace"] = json!("default");
    pod["spec"]["nodeName"] = node.clone();
    pod
}

#[rstest]
#[case::current(1, true, None, true)]
#[case::older_generation(2, true, None, false)]
#[case::infeasible(1, false, None, false)]
#[case::waiting(1, true, Some("NoFreeCapacity"), false)]
#[case::other_warning(1, true, Some("NodeSelectorOverridden"), true)]
fn decision_in_status_is_a_claim(
    #[case] generation: i64,
    #[case] feasible: bool,
    #[case] warning: Option<&str>,
    #[case] has_claim: bool,
) {
    let warnings: Vec<Value> = warning.iter().map(|code| json!({"code": code, "message": ""})).collect();
    let decision = json!({"feasible": feasible, "reason": "Selected", "message": "", "warnings": warnings});
    let engine = json!({"replicas": 3, "nodes": 2, "selectedAccelerator":
        {"acceleratorClass": "h100", "resourceRequests": {"nvidia.com/gpu": "4"}}});
    let claim = Claim::from_status(&json!({
        "metadata": {"name": "chat", "namespace": "n", "generation": generation},
        "status": {"observedGeneration": 1, "decision": decision, "components": {"engine": engine}},
    }));
    assert_eq!(claim.is_some(), has_claim);
    if let Some(claim) = claim {
        assert!(claim.belongs_to("n", "chat"));
        assert_eq!((claim.pod_sets[0].accelerators_per_pod, claim.pod_sets[0].count), (4, 6));
    }
}

/// A status may contain arbitrary values; Pods without accelerators claim nothing.
#[rstest]
#[case::no_accelerators(0, 1)]
#[case::no_nodes(4, 0)]
fn pods_without_accelerators_claim_nothing(#[case] per_node: u32, #[case] nodes: u32) {
    let engine = json!({"replicas": u32::MAX, "nodes": nodes, "selectedAccelerator":
        {"acceleratorClass": "h100", "resourceRequests": {"nvidia.com/gpu": per_node.to_string()}}});
    let service = json!({
        "metadata": {"name": "chat", "namespace": "n", "generation": 1},
        "status": {"observedGeneration": 1, "decision": {"reason": "Selected", "message": ""},
            "components": {"engine": engine}},
    });
    assert_eq!(Claim::from_status(&service), None);
}
