//! File format of an `EndpointPickerConfig`.

use serde::Deserialize;
use serde_json::Value;

use super::ConfigError;

/// Supported API versions. Later versions add fields, but do not change the meaning of existing ones.
pub(super) const API_VERSIONS: [&str; 3] =
    ["llm-d.ai/v1alpha1", "llm-d.ai/v1", "inference.networking.x-k8s.io/v1alpha1"];

/// Default configuration.
const DEFAULT_CONFIG: &str = "
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

/// An `EndpointPickerConfig`. Lists may be `null`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EndpointPickerConfig {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    pub(super) feature_gates: Option<Vec<String>>,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub(super) plugins: Vec<PluginEntry>,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub(super) scheduling_profiles: Vec<ProfileEntry>,
    #[serde(default)]
    pub(super) data_layer: Value,
    /// Ignored, because the feature gate `flowControl` already causes a warning.
    #[serde(default, rename = "flowControl")]
    _flow_control: Value,
    pub(super) saturation_detector: Option<PluginReference>,
    pub(super) parser: Option<PluginReference>,
    pub(super) request_handler: Option<RequestHandler>,
}

/// An entry of `plugins`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PluginEntry {
    name: Option<String>,
    pub(super) r#type: String,
    #[serde(default)]
    pub(super) parameters: Value,
}

/// An entry of `schedulingProfiles`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileEntry {
    pub(super) name: String,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub(super) plugins: Vec<PluginReference>,
}

/// A reference to a plugin by name.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PluginReference {
    pub(super) plugin_ref: String,
    pub(super) weight: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestHandler {
    pub(super) parsers: Option<Vec<PluginReference>>,
}

/// Parses the file; empty text results in the default configuration.
///
/// # Errors
/// The text is not valid YAML, contains unknown fields, or is of another kind.
pub(super) fn parse_document(text: &str) -> Result<EndpointPickerConfig, ConfigError> {
    let text = if text.trim().is_empty() { DEFAULT_CONFIG } else { text };
    let config: EndpointPickerConfig =
        serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax(first_line(&error)))?;
    if !API_VERSIONS.contains(&config.api_version.as_str()) || config.kind != "EndpointPickerConfig" {
        return Err(ConfigError::WrongKind { api_version: config.api_version, kind: config.kind });
    }
    Ok(config)
}

fn first_line(error: &impl ToString) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Deserializes a list; `null` is an empty list.
fn null_as_empty<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl PluginEntry {
    /// Returns the name that other plugins and profiles use to reference the plugin.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.r#type)
    }
}
