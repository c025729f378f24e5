//! Errors and warnings of a configuration.

use super::{
    document,
    document::{MAX_BYTES, MAX_NODES, MAX_PLUGINS},
    plugin_types,
};

/// A part of the configuration that has no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ConfigWarning {
    /// Path of the field.
    pub field: String,
    /// Unsupported feature, and the behavior instead.
    pub message: String,
}

/// An error in a configuration. The message is a single line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is not valid YAML, or a field is unknown or has the wrong type. Contains the cause.
    #[error("invalid EndpointPickerConfig: {0}")]
    Syntax(String),
    /// Parsing the text would take too long.
    #[error(
        "the EndpointPickerConfig is too large: at most {} KiB and, with expanded aliases, {MAX_NODES} values are supported",
        MAX_BYTES / 1024
    )]
    TooLarge,
    /// A request would be processed by too many plugins.
    #[error("plugins: {count} plugins are listed, but at most {MAX_PLUGINS} are supported")]
    TooManyPlugins {
        /// Number of plugins.
        count: usize,
    },
    /// The document is of another kind, or of an unsupported version.
    #[error("apiVersion {api_version:?}, kind {kind:?}: expected kind EndpointPickerConfig of {}", document::API_VERSIONS.join(" or "))]
    WrongKind {
        /// `apiVersion` of the document.
        api_version: String,
        /// `kind` of the document.
        kind: String,
    },
    /// No feature has this name.
    #[error("featureGates: unknown feature gate {0:?}")]
    UnknownFeatureGate(String),
    /// No picker has a plugin of this type.
    #[error("plugins[{index}].type: unknown plugin type {plugin_type:?}")]
    UnknownType {
        /// Position in `plugins`.
        index: usize,
        /// `type` of the plugin.
        plugin_type: String,
    },
    /// Requests would fail without this plugin of another picker.
    #[error("plugins[{index}].type: {plugin_type} is not supported: {reason}")]
    UnsupportedPlugin {
        /// Position in `plugins`.
        index: usize,
        /// `type` of the plugin.
        plugin_type: String,
        /// Missing feature.
        reason: &'static str,
    },
    /// The endpoints are configured instead of discovered.
    #[error("dataLayer.discovery is not supported: the endpoints are those of the InferencePool")]
    UnsupportedDiscovery,
    /// A parameter of a plugin is unknown or has an invalid value.
    #[error("plugins[{index}].parameters: invalid parameters of {plugin_type}: {cause}")]
    InvalidParameters {
        /// Position in `plugins`.
        index: usize,
        /// `type` of the plugin.
        plugin_type: String,
        /// The invalid parameter.
        cause: String,
    },
    /// Two plugins have the same name.
    #[error("plugins[{index}].name: duplicate name {name:?}")]
    DuplicateName {
        /// Position of the second one in `plugins`.
        index: usize,
        /// The name.
        name: String,
    },
    /// A reference to a plugin that is not listed.
    #[error("{field}: no plugin is named {name:?}")]
    UnknownPlugin {
        /// Path of the reference.
        field: String,
        /// Referenced name.
        name: String,
    },
    /// A reference to a plugin that has another function.
    #[error("{field}: plugin {name:?} is not a {expected}")]
    WrongPluginType {
        /// Path of the reference.
        field: String,
        /// Referenced name.
        name: String,
        /// Expected function of the plugin.
        expected: &'static str,
    },
    /// The weight of a scorer is negative or not a number.
    #[error(
        "schedulingProfiles[{profile}].plugins: the weight of {name:?} must be a number greater than or equal to 0"
    )]
    InvalidWeight {
        /// Name of the profile.
        profile: String,
        /// Name of the scorer.
        name: String,
    },
    /// A profile references two pickers.
    #[error("schedulingProfiles[{profile}].plugins: {name:?} is a second picker, but a profile has one picker")]
    MultiplePickers {
        /// Name of the profile.
        profile: String,
        /// Name of the second picker.
        name: String,
    },
    /// Two profiles have the same name.
    #[error("schedulingProfiles: duplicate name {name:?}")]
    DuplicateProfile {
        /// The name.
        name: String,
    },
    /// Two plugins select the profiles of a request.
    #[error("plugins: {first:?} and {second:?} are both profile handlers")]
    MultipleProfileHandlers {
        /// Name of the first plugin.
        first: String,
        /// Name of the second plugin.
        second: String,
    },
    /// The profile handler needs other profiles.
    #[error("schedulingProfiles: {handler} requires {required}")]
    InvalidProfiles {
        /// Name of the profile handler.
        handler: String,
        /// Profiles that it needs.
        required: String,
    },
}

// === impl ConfigError ===

impl ConfigError {
    /// Returns a hint for how to fix the error.
    pub fn hint(&self) -> String {
        match self {
            ConfigError::UnknownType { plugin_type, .. } => {
                match api::nearest_name(plugin_type, plugin_types::known_types()) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => format!("supported types are {}", plugin_types::SUPPORTED_TYPES.join(", ")),
                }
            }
            ConfigError::UnknownFeatureGate(_) => "remove the feature gate".to_owned(),
            ConfigError::UnsupportedPlugin { .. } => "remove the plugin, or use a picker that supports it".to_owned(),
            ConfigError::UnsupportedDiscovery => "remove it, and select the pool with --pool-name".to_owned(),
            ConfigError::UnknownPlugin { .. } => "add it to plugins, or correct the pluginRef".to_owned(),
            ConfigError::MultipleProfileHandlers { .. } => "remove one of them".to_owned(),
            _ => "correct the configuration, or omit --config-file".to_owned(),
        }
    }
}
