//! Launch lines and resources that name different numbers of accelerators.

use std::collections::BTreeMap;

use api::lint::Finding;
use api::manifest::Document;
use api::ome::{InferenceService, ServingRuntimeSpec};
use decide::demand::{Component, Demand};
use decide::fit::Stated;
use decide::supply::{KNOWN_RESOURCES, Runtime, Scope};
use serde::Deserialize;
use serde_json::Value;

/// Components of a runtime or a service whose own two statements differ.
pub(super) fn check(document: &Document) -> Vec<Finding> {
    match document.kind() {
        "ServingRuntime" | "ClusterServingRuntime" => of_runtime(&document.value),
        "InferenceService" => of_service(&document.value),
        _ => Vec::new(),
    }
}

fn of_runtime(object: &Value) -> Vec<Finding> {
    let Ok(spec) = ServingRuntimeSpec::deserialize(&object["spec"]) else { return Vec::new() };
    let Ok(runtime) = Runtime::from_api("", Scope::Cluster, "", None, &spec) else { return Vec::new() };
    let told = |(component, one): (&Component, &decide::supply::RuntimeComponent)| {
        let nodes = nodes(one.nodes, one.multi_node)?;
        finding(&format!("spec.{}Config", component.as_str()), one.parallelism, &one.resources, nodes)
    };
    runtime.components.iter().filter_map(told).collect()
}

fn of_service(object: &Value) -> Vec<Finding> {
    let Ok(service) = InferenceService::deserialize(object) else { return Vec::new() };
    let Ok(demand) = Demand::of(&service, None) else { return Vec::new() };
    let told = |(component, one): (&Component, &decide::demand::ComponentDemand)| {
        let nodes = nodes(one.nodes, one.multi_node)?;
        finding(&format!("spec.{}", component.as_str()), one.parallelism, &one.resources, nodes)
    };
    demand.components.iter().filter_map(told).collect()
}

/// Nodes of one replica, if they are known.
fn nodes(stated: Option<u32>, several: bool) -> Option<u32> {
    stated.or_else(|| (!several).then_some(1))
}

fn finding(path: &str, parallelism: Option<u32>, resources: &BTreeMap<String, u32>, nodes: u32) -> Option<Finding> {
    let counted = resources.iter().filter(|(name, count)| KNOWN_RESOURCES.contains(&name.as_str()) && **count > 0);
    let stated = Stated { parallelism, resources: counted.map(|(_, count)| *count).max() };
    let (split, asked) = stated.mismatch(nodes)?;
    let message = format!("flags or variables split the model over {split} accelerators, resources ask for {asked}");
    let hint = "make --tensor-parallel-size and its like agree with resources, or leave one of them out";
    Some(Finding::warning(path, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const RUNTIME: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {name: r}, spec: {engineConfig: {ENGINE}}}";
    const SERVICE: &str =
        "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: s}, spec: {engine: {ENGINE}}}";

    #[rstest]
    #[case::they_differ("runner: {args: [--tp=8], resources: {limits: {nvidia.com/gpu: 2}}}", true)]
    #[case::they_agree("runner: {args: [--tp=8], resources: {limits: {nvidia.com/gpu: 8}}}", false)]
    #[case::by_a_variable(
        "runner: {env: [{name: TENSOR_PARALLEL_SIZE, value: '2'}], resources: {limits: {amd.com/gpu: 1}}}",
        true
    )]
    #[case::no_resources("runner: {args: [--tp=8]}", false)]
    #[case::other_resources("runner: {args: [--tp=8], resources: {limits: {rdma/hca: 1}}}", false)]
    #[case::over_nodes(
        "leader: {runner: {args: [--tp=16], resources: {limits: {nvidia.com/gpu: 8}}}}, worker: {size: 1, runner: {image: i}}",
        false
    )]
    fn two_numbers(#[case] engine: &str, #[case] told: bool) {
        for manifest in [RUNTIME, SERVICE] {
            let document = api::manifest::read("t", &manifest.replace("ENGINE", engine)).unwrap().remove(0);
            assert_eq!(check(&document).len(), usize::from(told), "{manifest}");
        }
    }
}
