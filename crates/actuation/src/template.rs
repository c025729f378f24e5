//! Derives the provider of a requester that has no node yet, such as one in a manifest.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::gpu_map::GpuMap;
use crate::nominal::{Derivation, NominalProvider, Owner, nominal_provider};
use crate::problem::Problem;
use crate::requester::{Requester, unsupported_feature};
use crate::settings::Settings;

/// Name of the node and of the accelerator that the derivation assumes.
const ASSUMED: &str = "assumed";

/// Returns the provider of a requester Pod, or of a Pod template, on a node with one accelerator. `owner` is the set that will create
/// the Pod.
///
/// # Errors
/// The first problem that does not depend on the node.
pub fn template_provider(requester: &Value, owner: Option<&Owner>) -> Result<NominalProvider, Problem> {
    if let Some(problem) = unsupported_feature(requester) {
        return Err(problem);
    }
    Requester::from_pod(requester).admin_port?;
    let map = GpuMap::from_config_map(&json!({"data": {ASSUMED: json!({ASSUMED: 0}).to_string()}}));
    nominal_provider(&Derivation {
        requester,
        node: ASSUMED,
        hostname: ASSUMED,
        accelerators: &BTreeSet::from([ASSUMED.to_owned()]),
        gpu_map: Some(&map),
        owner,
        settings: &Settings::default(),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const EXAMPLE: &str = include_str!("../tests/data/requester.yaml");

    // spec: DP-35
    #[rstest]
    #[case::example("", "", Ok(()))]
    #[case::mode("dual-pod.llm-d.ai/admin-port", "dual-pod.llm-d.ai/mode", Err("InvalidAnnotation"))]
    #[case::port(r#""8082""#, r#""x""#, Err("InvalidAnnotation"))]
    #[case::patch("metadata:\n        labels", "metadata:\n        lables", Err("InvalidPatch"))]
    fn problems_of_templates_are_found(#[case] text: &str, #[case] by: &str, #[case] expected: Result<(), &str>) {
        let pod: Value = serde_saphyr::from_str(&EXAMPLE.replacen(text, by, usize::from(!text.is_empty()))).unwrap();
        let result = template_provider(&pod, None);
        assert_eq!(result.map(drop).map_err(|problem| problem.code().as_str()), expected);
    }
}
