//! Detects engine arguments and resources that specify different numbers of accelerators.

use std::collections::BTreeMap;

use api::ACCELERATOR_RESOURCES;
use api::ome::{InferenceService, ServingRuntimeSpec};
use api::{Document, Finding};
use decide::{AcceleratorRequest, Component, Demand, Origin, ParallelismSettings, Runtime, Scope};
use serde::Deserialize;
use serde_json::Value;

/// Returns warnings about components whose arguments and resources differ.
pub(super) fn validate(document: &Document) -> Vec<Finding> {
    match document.kind() {
        "ServingRuntime" | "ClusterServingRuntime" => validate_runtime(&document.value),
        "InferenceService" => validate_service(&document.value),
        _ => Vec::new(),
    }
}

fn validate_runtime(object: &Value) -> Vec<Finding> {
    let Ok(spec) = ServingRuntimeSpec::deserialize(&object["spec"]) else { return Vec::new() };
    let Ok(runtime) = Runtime::from_api("", Scope::Cluster, "", None, &spec) else { return Vec::new() };
    let finding_of = |(component, component_spec): (&Component, &decide::RuntimeComponent)| {
        let nodes = nodes(component_spec.nodes, component_spec.multi_node)?;
        mismatch_finding(
            &format!("spec.{}Config", component.as_str()),
            &component_spec.parallelism,
            &component_spec.resources,
            nodes,
        )
    };
    runtime.components.iter().filter_map(finding_of).collect()
}

fn validate_service(object: &Value) -> Vec<Finding> {
    let Ok(service) = InferenceService::deserialize(object) else { return Vec::new() };
    let Ok(demand) = Demand::from_api(&service, None) else { return Vec::new() };
    let finding_of = |(component, component_spec): (&Component, &decide::ComponentDemand)| {
        let nodes = nodes(component_spec.nodes, component_spec.multi_node)?;
        mismatch_finding(
            &format!("spec.{}", component.as_str()),
            &component_spec.parallelism,
            &component_spec.resources,
            nodes,
        )
    };
    demand.components.iter().filter_map(finding_of).collect()
}

/// Returns the number of nodes of one replica, if known.
fn nodes(node_count: Option<u32>, is_multi_node: bool) -> Option<u32> {
    node_count.or_else(|| (!is_multi_node).then_some(1))
}

fn mismatch_finding(
    path: &str,
    parallelism: &ParallelismSettings,
    resources: &BTreeMap<String, u32>,
    nodes: u32,
) -> Option<Finding> {
    let accelerators =
        resources.iter().filter(|(name, count)| ACCELERATOR_RESOURCES.contains(&name.as_str()) && **count > 0);
    let per_node = accelerators.map(|(_, count)| *count).max();
    let accelerator_request = AcceleratorRequest {
        parallelism: parallelism.sizes(Origin::Service),
        per_node,
        ..AcceleratorRequest::default()
    };
    let (parallelism, requested) = accelerator_request.mismatch(nodes)?;
    let noun = if parallelism == 1 { "accelerator" } else { "accelerators" };
    let message =
        format!("arguments or environment variables use {parallelism} {noun}, but resources request {requested}");
    let hint = "make --tensor-parallel-size and similar arguments agree with resources, or remove one of them";
    Some(Finding::warning(path, message).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const RUNTIME: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {name: r}, spec: {engineConfig: {ENGINE}}}";
    const SERVICE: &str =
        "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: s}, spec: {engine: {ENGINE}}}";

    #[rstest]
    #[case::different("runner: {args: [--tp=8], resources: {limits: {nvidia.com/gpu: 2}}}", true)]
    #[case::equal("runner: {args: [--tp=8], resources: {limits: {nvidia.com/gpu: 8}}}", false)]
    #[case::environment_variable(
        "runner: {env: [{name: TENSOR_PARALLEL_SIZE, value: '2'}], resources: {limits: {amd.com/gpu: 1}}}",
        true
    )]
    #[case::no_resources("runner: {args: [--tp=8]}", false)]
    #[case::other_resources("runner: {args: [--tp=8], resources: {limits: {rdma/hca: 1}}}", false)]
    #[case::multi_node(
        "leader: {runner: {args: [--tp=16], resources: {limits: {nvidia.com/gpu: 8}}}}, worker: {size: 1, runner: {image: i}}",
        false
    )]
    fn warns_about_different_counts(#[case] engine: &str, #[case] has_warning: bool) {
        for manifest in [RUNTIME, SERVICE] {
            let document = api::parse_manifest("t", &manifest.replace("ENGINE", engine)).unwrap().remove(0);
            assert_eq!(validate(&document).len(), usize::from(has_warning), "{manifest}");
        }
    }
}
