//! Validation of endpoint picker configurations with the parser of the picker that ostler deploys.

use api::{Document, Finding, fusioninfer};
use picker::parse_config;
use serde_json::Value;

/// Returns warnings about `endpointPickerConfig` of router roles. They are never errors because the text is passed to
/// the picker unchanged.
#[must_use]
pub fn validate_picker_config(document: &Document) -> Vec<Finding> {
    if (document.api_version(), document.kind()) != (fusioninfer::API_VERSION, "InferenceService") {
        return Vec::new();
    }
    let roles = document.value["spec"]["roles"].as_array().into_iter().flatten().enumerate();
    roles.flat_map(|(index, role)| config_findings(index, role)).collect()
}

fn config_findings(index: usize, role: &Value) -> Vec<Finding> {
    let text = role["endpointPickerConfig"].as_str().filter(|text| !text.is_empty());
    let Some(text) = text.filter(|_| role["componentType"] == "router") else { return Vec::new() };
    let finding = |message: String| Finding::warning(format!("spec.roles[{index}].endpointPickerConfig"), message);
    match parse_config(text) {
        Ok(config) => config.warnings.iter().map(|warning| finding(warning.to_string())).collect(),
        Err(error) => {
            let hint = "the text is passed to the picker unchanged, and the picker fails to start with it";
            vec![finding(error.to_string()).with_hint(hint)]
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn service(router: &str) -> Document {
        let role = |name: &str, kind: &str| {
            format!(
                "{{name: {name}, componentType: {kind}, template: {{spec: {{containers: [{{name: e, image: i}}]}}}}}}"
            )
        };
        let text = format!(
            "{{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {{name: s}}, spec: {{roles: [{}, {}, \
             {{name: r, componentType: router{router}}}]}}}}",
            role("p", "prefiller"),
            role("d", "decoder")
        );
        api::parse_manifest("s.yaml", &text).unwrap().remove(0)
    }

    /// The picker parses every generated configuration without warnings.
    #[rstest]
    #[case("prefix-cache")]
    #[case("kv-cache-utilization")]
    #[case("queue-size")]
    #[case("lora-affinity")]
    #[case("pd-disaggregation")]
    fn parses_generated_configuration_of_every_strategy(#[case] strategy: &str) {
        let mut snapshot = plan::Snapshot::default();
        snapshot.add(&service(&format!(", strategy: {strategy}"))).unwrap();
        let plan = plan::plan(&snapshot);
        let config = plan.services[0].objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
        let parsed = parse_config(config["data"]["config.yaml"].as_str().unwrap()).unwrap();
        assert_eq!(parsed.warnings, []);
    }

    #[rstest]
    #[case::no_configuration("", "")]
    #[case::valid(", endpointPickerConfig: 'apiVersion: llm-d.ai/v1alpha1\n\n  kind: EndpointPickerConfig'", "")]
    #[case::another_kind(", endpointPickerConfig: 'kind: Picker'", "expected kind EndpointPickerConfig")]
    #[case::invalid_yaml(", endpointPickerConfig: '{{'", "invalid EndpointPickerConfig")]
    #[case::unsupported_feature(
        ", endpointPickerConfig: '{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, featureGates: [flowControl]}'",
        "flowControl has no effect"
    )]
    fn invalid_configuration_is_a_warning(#[case] router: &str, #[case] expect: &str) {
        let findings = validate_picker_config(&service(router));
        assert!(findings.iter().all(|finding| finding.severity == api::Severity::Warning
            && finding.path == "spec.roles[2].endpointPickerConfig"));
        let messages: String = findings.into_iter().map(|finding| finding.message).collect();
        assert!(messages.contains(expect) && messages.is_empty() == expect.is_empty(), "{messages}");
    }
}
