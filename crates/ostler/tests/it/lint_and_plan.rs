//! `ostler lint` and `ostler plan` reject the same manifests.

use plan::code::error;
use rstest::rstest;
use serde_json::Value;

use crate::session::{TempDirectory, ostler, outcome};

/// A service that both accept, so that `plan` has a service to plan.
pub(crate) const SERVICE: &str = "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: accepted-by-both}, \
    spec: {engine: {runner: {image: vllm/vllm-openai, command: [vllm, serve, m]}}}}";

/// Returns whether `lint` and `plan` reject the file as invalid, and their messages.
pub(crate) fn rejections(file: &str, service: &str) -> (bool, bool, String) {
    let (stdout, stderr, lint) = outcome(&ostler(&["lint", "--no-catalog", "-f", file, service]).output().unwrap());
    let mut messages = format!("lint: {stdout}{stderr}");
    let (stdout, stderr, plan) =
        outcome(&ostler(&["plan", "--no-catalog", "-o", "json", "-f", file, service]).output().unwrap());
    messages += &format!("plan: {stderr}");
    let mut is_rejected = plan == Some(1);
    if !is_rejected {
        let plan: Value = serde_json::from_str(&stdout).unwrap();
        for service in plan["services"].as_array().unwrap() {
            let reason = service["reason"].as_str().unwrap();
            messages += &format!("{reason} ");
            // Other reasons depend on the cluster.
            is_rejected |= error::ALL.iter().any(|code| code.as_str() == reason && reason != "AdapterNotFound");
        }
    }
    (lint == Some(1), is_rejected, messages)
}

const WORKER: &str = "{name: w, componentType: worker, template: {spec: {containers: [{name: e, image: i}]}}}";

fn ome(kind: &str, spec: &str) -> String {
    format!("---\n{{apiVersion: ome.io/v1beta1, kind: {kind}, metadata: {{name: x}}, spec: {spec}}}\n")
}

fn roles(roles: &str) -> String {
    format!(
        "{{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {{name: x}}, spec: {{roles: [{roles}]}}}}"
    )
}

fn runtime(name: &str, priority: u32) -> String {
    ome(
        "ClusterServingRuntime",
        &format!(
            "{{supportedModelFormats: [{{modelFormat: {{name: new}}, autoSelect: true, priority: {priority}}}], engineConfig: {{runner: {{image: i}}}}}}"
        ),
    )
    .replace("{name: x}", &format!("{{name: {name}}}"))
}

fn service_with_adapter(adapter: &str) -> String {
    ome("ClusterBaseModel", "{modelFormat: {name: new}}")
        + &runtime("a", 7).replace("{image: i}", "{image: vllm/vllm-openai}")
        + &ome("InferenceService", &format!("{{model: {{name: x, fineTunedWeights: ['{adapter}']}}}}"))
}

#[rstest]
#[case::yaml("a: [".to_owned(), true)]
#[case::kind(ome("InferenceServce", "{}"), true)]
#[case::no_model(ome("InferenceService", "{}"), true)]
#[case::annotation(ome("InferenceService", "{model: {name: m}}").replace("{name: x}", "{name: x, annotations: {ome.io/cost-threshold: cheap}}"), true)]
#[case::name(ome("InferenceService", "{model: {name: m}}").replace("{name: x}", "{name: x.y}"), true)]
#[case::generated_name(ome("InferenceService", "{model: {name: m}}").replace("{name: x}", "{generateName: x}"), true)]
#[case::variable(ome("InferenceService", "{engine: {runner: {image: i, command: [vllm, serve, $(UNDEFINED)]}}}"), true)]
#[case::adapter(service_with_adapter("s3://bucket/adapter"), true)]
#[case::unknown_adapter(service_with_adapter("missing"), false)]
#[case::unknown_model(ome("InferenceService", "{model: {name: m}}"), false)]
#[case::unknown_class(
    ome("InferenceService", "{model: {name: m}, acceleratorSelector: {preferredClasses: [c]}}"),
    false
)]
#[case::condition(
    ome(
        "ServingRuntime",
        "{acceleratorRequirements: {preferenceOrder: [{class: a, score: 1, conditions: [{size: '<1'}]}]}}"
    ),
    true
)]
#[case::capability(ome("AcceleratorClass", "{discovery: {}, capabilities: {computeCapability: sm_90}}"), true)]
#[case::tier(ome("AcceleratorClass", "{discovery: {}, capabilities: {}, cost: {tier: huge}}"), true)]
#[case::no_nodes(ome("AcceleratorClass", "{discovery: {}, capabilities: {}}"), false)]
#[case::same_priority(runtime("a", 7) + &runtime("b", 7), false)]
#[case::other_priority(runtime("a", 7) + &runtime("b", 8), false)]
#[case::same_name(runtime("a", 7) + &runtime("a", 8), true)]
#[case::same_object(runtime("a", 7) + &runtime("a", 7), false)]
#[case::model_size(ome("BaseModel", "{modelParameterSize: huge}"), true)]
#[case::worker(roles(WORKER), false)]
#[case::no_container(roles("{name: w, componentType: worker, template: {spec: {containers: []}}}"), true)]
#[case::router_only(roles("{name: r, componentType: router}"), true)]
#[case::duplicate_role(roles(&format!("{WORKER}, {WORKER}")), true)]
#[case::half_a_pair(roles(&WORKER.replace("worker", "prefiller")), false)]
#[case::route(roles(&format!("{WORKER}, {{name: r, componentType: router, httproute: {{rules: {{}}}}}}")), true)]
#[case::picker_configuration(roles(&format!("{WORKER}, {{name: r, componentType: router, endpointPickerConfig: 'kind: Picker'}}")), false)]
#[case::other_kind("{apiVersion: v1, kind: Secret, metadata: {name: s}}".to_owned(), false)]
fn agree_on_invalid_manifests(#[case] manifest: String, #[case] is_rejected: bool) {
    let directory = TempDirectory::new();
    let (file, service) = (directory.file("f.yaml", &manifest), directory.file("service.yaml", SERVICE));
    let (lint, plan, messages) = rejections(&file, &service);
    assert_eq!((lint, plan), (is_rejected, is_rejected), "{messages}");
}

#[test]
fn lint_warns_of_adapters_that_the_cluster_may_have() {
    let directory = TempDirectory::new();
    let file = directory.file("f.yaml", &service_with_adapter("missing"));
    let (stdout, _, code) = outcome(&ostler(&["lint", "--no-catalog", "-f", &file]).output().unwrap());
    assert_eq!(code, Some(0), "{stdout}");
    assert!(
        stdout.contains("warning") && stdout.contains("fineTunedWeights[0]: adapter missing not found"),
        "{stdout}"
    );
}
