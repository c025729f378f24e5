//! The file as it is written.

use serde::Deserialize;
use serde_json::Value;

use super::PolicyError;

/// Read alike: fields were added, none changed its meaning.
pub(super) const API_VERSIONS: [&str; 3] =
    ["llm-d.ai/v1alpha1", "llm-d.ai/v1", "inference.networking.x-k8s.io/v1alpha1"];

/// What is chosen from where nothing is configured.
const DEFAULT: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: prefix-cache-scorer}]
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
";

/// A list that is named and left empty is none.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    pub feature_gates: Option<Vec<String>>,
    #[serde(default, deserialize_with = "or_none")]
    pub plugins: Vec<PluginSpec>,
    #[serde(default, deserialize_with = "or_none")]
    pub scheduling_profiles: Vec<ProfileSpec>,
    #[serde(default)]
    pub data_layer: Value,
    /// Counts with the feature gate of its name only.
    #[serde(default, rename = "flowControl")]
    _flow_control: Value,
    pub saturation_detector: Option<Reference>,
    pub parser: Option<Reference>,
    pub request_handler: Option<RequestHandler>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PluginSpec {
    name: Option<String>,
    pub r#type: String,
    #[serde(default)]
    pub parameters: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileSpec {
    pub name: String,
    #[serde(default, deserialize_with = "or_none")]
    pub plugins: Vec<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Reference {
    pub plugin_ref: String,
    pub weight: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestHandler {
    pub parsers: Option<Vec<Reference>>,
}

/// # Errors
/// What is no such file.
pub(super) fn parse(text: &str) -> Result<File, PolicyError> {
    let text = if text.trim().is_empty() { DEFAULT } else { text };
    let file: File = serde_saphyr::from_str(text).map_err(|error| PolicyError::NotRead(first_line(&error)))?;
    if !API_VERSIONS.contains(&file.api_version.as_str()) || file.kind != "EndpointPickerConfig" {
        return Err(PolicyError::WrongKind { found: file.api_version, kind: file.kind });
    }
    Ok(file)
}

fn first_line(error: &impl ToString) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn or_none<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl PluginSpec {
    /// Others refer to it by this.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.r#type)
    }
}
