//! Services that are decided count, whether they run yet or not.

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

fn two_nodes() -> String {
    [node("a", "NVIDIA-A100-SXM4-40GB"), node("b", "NVIDIA-H100-80GB-HBM3")].join("\n---\n")
}

fn cheap(name: &str) -> String {
    service(name, "{runtime: {name: rt}, acceleratorSelector: {strategy: cost}}")
}

#[test]
fn two_services_do_not_choose_the_same_accelerators() {
    let given = snapshot(&[CLASSES, RUNTIME, &two_nodes(), &cheap("one"), &cheap("two"), &cheap("three")]);
    let plan = crate::plan(&given);
    let classes: Vec<Option<&str>> = plan.services.iter().map(class).collect();
    // The cheapest while it is free, then what is left, then the cheapest again, which is worth waiting for.
    assert_eq!(classes, [Some("nvidia-a100-40gb"), Some("nvidia-h100-80gb"), Some("nvidia-a100-40gb")]);
    let waits: Vec<bool> = plan.services.iter().map(|service| codes(service).contains(&"NoFreeCapacity")).collect();
    assert_eq!(waits, [false, false, true]);
    let told = &plan.services[2].warnings.iter().find(|one| one.code == "NoFreeCapacity").unwrap().message;
    assert!(told.ends_with("it waits (8 promised to default/one)"), "{told}");
}

/// One that waits does not keep what is left from a smaller one that fits.
#[test]
fn what_waits_claims_nothing() {
    let small = "{runtime: {name: rt}, acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}}";
    let only = |name: &str| service(name, small);
    let given = snapshot(&[CLASSES, RUNTIME, &two_nodes(), &only("one"), &only("two"), &cheap("three")]);
    let plan = crate::plan(&given);
    let waits: Vec<bool> = plan.services.iter().map(|service| codes(service).contains(&"NoFreeCapacity")).collect();
    assert_eq!((waits, class(&plan.services[2])), (vec![false, true, false], Some("nvidia-h100-80gb")));
    let told = &plan.services[1].warnings.iter().find(|one| one.code == "NoFreeCapacity").unwrap().message;
    assert!(told.ends_with("(8 promised to default/one)"), "{told}");
}

#[test]
fn a_services_own_claim_does_not_count_against_it() {
    let mut given = snapshot(&[CLASSES, RUNTIME, &two_nodes(), &cheap("one")]);
    let first = crate::plan(&given).services.remove(0);
    given.claims = Claim::new("default", "one", &first.components).into_iter().collect();
    assert_eq!(crate::plan_service(&given, &given.services[0]), first);
}

/// What is claimed is counted once: as long as the pod does not run, and not beside it.
#[rstest]
#[case::not_yet(None, Some("nvidia-h100-80gb"))]
#[case::pending(Some(json!(null)), Some("nvidia-h100-80gb"))]
#[case::running(Some(json!("a")), Some("nvidia-h100-80gb"))]
fn claims_become_pods(#[case] pod: Option<Value>, #[case] expect: Option<&str>) {
    let mut given = snapshot(&[CLASSES, RUNTIME, &two_nodes(), &cheap("one"), &cheap("two")]);
    let first = crate::plan_service(&given, &given.services[0]);
    given.claims = Claim::new("default", "one", &first.components).into_iter().collect();
    let pod = pod.map(|node| running(&first.objects[0], &node));
    std::sync::Arc::make_mut(&mut given.inventory).set_pod("default", "one-0", pod.as_ref());
    let second = crate::plan_service(&given, &given.services[1]);
    assert_eq!(class(&second), expect);
    // The other class is free, whichever way the first one counts.
    assert!(!codes(&second).contains(&"NoFreeCapacity"));
}

/// A pod of the Deployment, on `node`.
fn running(deployment: &Value, node: &Value) -> Value {
    let template = &deployment["spec"]["template"];
    let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["namespace"] = json!("default");
    pod["spec"]["nodeName"] = node.clone();
    pod
}

#[rstest]
#[case::decided(1, true, None, true)]
#[case::edited_since(2, true, None, false)]
#[case::refused(1, false, None, false)]
#[case::waits(1, true, Some("NoFreeCapacity"), false)]
#[case::warned_of_something_else(1, true, Some("NodeSelectorOverridden"), true)]
fn a_recorded_decision_is_a_claim(
    #[case] generation: i64,
    #[case] feasible: bool,
    #[case] warning: Option<&str>,
    #[case] claims: bool,
) {
    let decision = json!({
        "feasible": feasible, "reason": "Selected", "message": "",
        "warnings": warning.map(|code| json!([{"code": code, "message": ""}])),
        "components": {"engine": {"acceleratorClass": "h100", "acceleratorsPerNode": 4, "nodes": 2, "replicas": 3}},
    });
    let claim = Claim::from_status(&json!({
        "metadata": {"name": "chat", "namespace": "n", "generation": generation},
        "status": {"observedGeneration": 1, "decision": decision},
    }));
    assert_eq!(claim.is_some(), claims);
    if let Some(claim) = claim {
        assert!(claim.belongs_to("n", "chat"));
        assert_eq!((claim.pod_sets[0].accelerators_per_pod, claim.pod_sets[0].count), (4, 6));
    }
}

/// Somebody may write any status: accelerators that nobody asks for are no claim, however many Pods ask for none.
#[rstest]
#[case::none_each(0, 1)]
#[case::no_nodes(4, 0)]
fn nothing_claimed_is_no_claim(#[case] per_node: u32, #[case] nodes: u32) {
    let service = json!({
        "metadata": {"name": "chat", "namespace": "n", "generation": 1},
        "status": {"observedGeneration": 1, "decision": {"feasible": true, "components": {"engine": {
            "acceleratorClass": "h100", "acceleratorsPerNode": per_node, "nodes": nodes, "replicas": u32::MAX,
        }}}},
    });
    assert_eq!(Claim::from_status(&service), None);
}
