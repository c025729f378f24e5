//! The configuration of a router's picker, read as the picker that we deploy reads it.

use api::fusioninfer;
use api::lint::Finding;
use api::manifest::Document;
use picker::policy_file;
use serde_json::Value;

/// What the picker does not understand. Never an error: the text is the user's, byte for byte.
#[must_use]
pub fn check(document: &Document) -> Vec<Finding> {
    if (document.api_version(), document.kind()) != (fusioninfer::API_VERSION, "InferenceService") {
        return Vec::new();
    }
    let roles = document.value["spec"]["roles"].as_array().into_iter().flatten().enumerate();
    roles.flat_map(|(at, role)| misread(at, role)).collect()
}

fn misread(at: usize, role: &Value) -> Vec<Finding> {
    let text = role["endpointPickerConfig"].as_str().filter(|text| !text.is_empty());
    let Some(text) = text.filter(|_| role["componentType"] == "router") else { return Vec::new() };
    let finding = |message: String| Finding::warning(format!("spec.roles[{at}].endpointPickerConfig"), message);
    match policy_file::read(text) {
        Ok(read) => read.warnings.iter().map(|warning| finding(warning.to_string())).collect(),
        Err(error) => {
            let hint = "the text is used as it is, and the picker does not start with it";
            vec![finding(error.to_string()).hint(hint)]
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
        api::manifest::read("s.yaml", &text).unwrap().remove(0)
    }

    /// What we write is understood to the last word by the picker that we start with it.
    #[rstest]
    #[case("prefix-cache")]
    #[case("kv-cache-utilization")]
    #[case("queue-size")]
    #[case("lora-affinity")]
    #[case("pd-disaggregation")]
    fn every_strategy_is_understood(#[case] strategy: &str) {
        let mut snapshot = plan::Snapshot::default();
        snapshot.add(&service(&format!(", strategy: {strategy}"))).unwrap();
        let plan = plan::plan(&snapshot);
        let config = plan.services[0].objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
        let read = policy_file::read(config["data"]["config.yaml"].as_str().unwrap()).unwrap();
        assert_eq!(read.warnings, []);
    }

    #[rstest]
    #[case::nothing("", "")]
    #[case::understood(", endpointPickerConfig: 'apiVersion: llm-d.ai/v1alpha1\n\n  kind: EndpointPickerConfig'", "")]
    #[case::another_kind(", endpointPickerConfig: 'kind: Picker'", "expected kind EndpointPickerConfig")]
    #[case::no_yaml(", endpointPickerConfig: '{{'", "not an EndpointPickerConfig")]
    #[case::in_part(
        ", endpointPickerConfig: '{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, featureGates: [flowControl]}'",
        "flowControl is not done"
    )]
    fn a_stated_configuration_is_never_an_error(#[case] router: &str, #[case] expect: &str) {
        let found = check(&service(router));
        assert!(found.iter().all(
            |one| one.severity == api::lint::Severity::Warning && one.path == "spec.roles[2].endpointPickerConfig"
        ));
        let told: String = found.into_iter().map(|one| one.message).collect();
        assert!(told.contains(expect) && told.is_empty() == expect.is_empty(), "{told}");
    }
}
