//! File format of an `EndpointPickerConfig`.

use serde::Deserialize;
use serde_json::Value;

/// Supported API versions. Later versions add fields, but do not change the meaning of existing ones.
pub(super) const API_VERSIONS: [&str; 3] =
    ["llm-d.ai/v1alpha1", "llm-d.ai/v1", "inference.networking.x-k8s.io/v1alpha1"];

/// Maximum size of a configuration in bytes. Those of other pickers have a few kilobytes.
pub(super) const MAX_BYTES: usize = 64 * 1024;

/// Maximum number of YAML nodes, including those of expanded aliases.
pub(super) const MAX_NODES: usize = 10_000;

/// Maximum number of plugins: each may process every request.
pub(super) const MAX_PLUGINS: usize = 64;

/// An `EndpointPickerConfig`. Lists may be `null`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EndpointPickerConfig {
    /// One of [`API_VERSIONS`].
    #[serde(default)]
    pub(super) api_version: String,
    /// `EndpointPickerConfig`.
    #[serde(default)]
    pub(super) kind: String,
    /// `NAME` or `NAME=false`.
    pub(super) feature_gates: Option<Vec<String>>,
    /// Plugins that profiles and other plugins reference by name.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub(super) plugins: Vec<PluginEntry>,
    /// Profiles; if empty, one profile contains all plugins.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub(super) scheduling_profiles: Vec<ProfileEntry>,
    /// Sources of metrics and endpoints.
    #[serde(default)]
    pub(super) data_layer: Value,
    /// Ignored, because the feature gate `flowControl` already causes a warning.
    #[serde(default, rename = "flowControl")]
    _flow_control: Value,
    /// Detector of overload. Only the reference is checked.
    pub(super) saturation_detector: Option<PluginReference>,
    /// Parser of request bodies.
    pub(super) parser: Option<PluginReference>,
    /// Parsers of request bodies by path.
    pub(super) request_handler: Option<RequestHandler>,
}

/// An entry of `plugins`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PluginEntry {
    name: Option<String>,
    /// Type of the plugin.
    pub(super) r#type: String,
    /// Parameters, whose names depend on the type.
    #[serde(default)]
    pub(super) parameters: Value,
}

/// An entry of `schedulingProfiles`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileEntry {
    /// Name that profile handlers use to reference the profile.
    pub(super) name: String,
    /// Filters, scorers and at most one picker.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub(super) plugins: Vec<PluginReference>,
}

/// A reference to a plugin by name.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PluginReference {
    /// Name of the plugin.
    pub(super) plugin_ref: String,
    /// Weight of a scorer; 1 by default.
    pub(super) weight: Option<f64>,
}

/// `requestHandler`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestHandler {
    /// Parsers of request bodies.
    pub(super) parsers: Option<Vec<PluginReference>>,
}

/// Deserializes a list; `null` is an empty list.
fn null_as_empty<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

// === impl PluginEntry ===

impl PluginEntry {
    /// Returns the name that other plugins and profiles use to reference the plugin.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.r#type)
    }
}
