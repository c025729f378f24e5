//! Parses an `EndpointPickerConfig`, the configuration file format of endpoint pickers.
//!
//! `document` defines the file format, `plugins` the plugins that this picker implements, and `plugin_support` the plugins
//! of other pickers; `profiles` and `profile_handler` build a [`SchedulingPolicy`] from them. As in other pickers, unknown
//! types, parameters and fields are errors. A plugin that this picker does not implement causes a [`ConfigWarning`], or an
//! error if requests would fail without it.

mod document;
mod parameters;
mod plugin_support;
mod plugins;
mod profile_handler;
mod profiles;

use crate::policy::{Parser, SchedulingPolicy};
use document::{EndpointPickerConfig, PluginReference};
use plugins::Plugins;

/// A parsed configuration.
#[derive(Debug)]
pub struct ParsedConfig {
    /// The scheduling policy.
    pub policy: SchedulingPolicy,
    /// Parts of the configuration that have no effect.
    pub warnings: Vec<ConfigWarning>,
}

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
#[allow(missing_docs)] // the messages describe the variants
pub enum ConfigError {
    #[error("invalid EndpointPickerConfig: {0}")]
    Syntax(String),
    #[error("apiVersion {api_version:?}, kind {kind:?}: expected kind EndpointPickerConfig of {}", document::API_VERSIONS.join(" or "))]
    WrongKind { api_version: String, kind: String },
    #[error("featureGates: unknown feature gate {0:?}")]
    UnknownFeatureGate(String),
    #[error("plugins[{index}].type: unknown plugin type {plugin_type:?}")]
    UnknownType { index: usize, plugin_type: String },
    #[error("plugins[{index}].type: {plugin_type} is not supported: {reason}")]
    UnsupportedPlugin { index: usize, plugin_type: String, reason: &'static str },
    #[error("dataLayer.discovery is not supported: the endpoints are those of the InferencePool")]
    UnsupportedDiscovery,
    #[error("plugins[{index}].parameters: invalid parameters of {plugin_type}: {cause}")]
    InvalidParameters { index: usize, plugin_type: String, cause: String },
    #[error("plugins[{index}].name: duplicate name {name:?}")]
    DuplicateName { index: usize, name: String },
    #[error("{field}: no plugin is named {name:?}")]
    UnknownPlugin { field: String, name: String },
    #[error("{field}: plugin {name:?} is not a {expected}")]
    WrongPluginType { field: String, name: String, expected: &'static str },
    #[error(
        "schedulingProfiles[{profile}].plugins: the weight of {name:?} must be a number greater than or equal to 0"
    )]
    InvalidWeight { profile: String, name: String },
    #[error("schedulingProfiles[{profile}].plugins: {name:?} is a second picker, but a profile has one picker")]
    MultiplePickers { profile: String, name: String },
    #[error("schedulingProfiles: duplicate name {name:?}")]
    DuplicateProfile { name: String },
    #[error("plugins: {first:?} and {second:?} are both profile handlers")]
    MultipleProfileHandlers { first: String, second: String },
    #[error("schedulingProfiles: {handler} requires {required}")]
    InvalidProfiles { handler: String, required: String },
}

/// Feature gates without effect: the feature is always enabled in this picker, or not observable.
const ACCEPTED_FEATURE_GATES: [&str; 5] =
    ["dataLayer", "prepareDataPlugins", "enableLegacyMetrics", "experimentalDatalayer", "haPopulateNonLeaderDatastore"];

const FLOW_CONTROL: &str = "flowControl";

/// Parses an EndpointPickerConfig; empty text results in the default configuration.
///
/// # Errors
/// Returns the first [`ConfigError`]. No field is ignored silently: a field takes effect, causes a warning, or is an
/// error.
pub fn parse_config(text: &str) -> Result<ParsedConfig, ConfigError> {
    let config = document::parse_document(text)?;
    let mut warnings = Vec::new();
    check_feature_gates(&config, &mut warnings)?;
    check_data_layer(&config, &mut warnings)?;
    let mut plugins = Plugins::parse_all(&config.plugins, &mut warnings)?;
    let parser = select_parser(&config, &plugins)?;
    let profiles = profiles::build_profiles(&config, &plugins)?;
    let (profile_handler, primary_port) =
        profile_handler::build_profile_handler(&mut plugins, profiles, &mut warnings)?;
    let prefix_configs = plugins.prefix_configs;
    Ok(ParsedConfig { policy: SchedulingPolicy { profile_handler, prefix_configs, parser, primary_port }, warnings })
}

fn check_feature_gates(config: &EndpointPickerConfig, warnings: &mut Vec<ConfigWarning>) -> Result<(), ConfigError> {
    for gate in config.feature_gates.iter().flatten() {
        let (name, is_enabled) =
            gate.split_once('=').map_or((gate.as_str(), true), |(name, value)| (name, value != "false"));
        match name.trim() {
            FLOW_CONTROL if is_enabled => warnings.push(ConfigWarning {
                field: "featureGates".to_owned(),
                message: "flowControl is not supported: requests of all priorities are neither queued nor shed"
                    .to_owned(),
            }),
            FLOW_CONTROL => {}
            accepted if ACCEPTED_FEATURE_GATES.contains(&accepted) => {}
            // Disabling an unknown feature has no effect.
            _ if !is_enabled => {}
            unknown => return Err(ConfigError::UnknownFeatureGate(unknown.to_owned())),
        }
    }
    Ok(())
}

fn check_data_layer(config: &EndpointPickerConfig, warnings: &mut Vec<ConfigWarning>) -> Result<(), ConfigError> {
    let data_layer = &config.data_layer;
    if !data_layer["discovery"].is_null() {
        return Err(ConfigError::UnsupportedDiscovery);
    }
    for field in ["peerDiscovery", "crossReplicaSyncerPluginRef"] {
        if !data_layer[field].is_null() {
            let message = "replicas of this picker do not share state".to_owned();
            warnings.push(ConfigWarning { field: format!("dataLayer.{field}"), message });
        }
    }
    Ok(())
}

/// Returns the referenced parser. Several parsers apply to different paths; if any of them accepts all bodies, all bodies
/// are accepted on every path.
fn select_parser(config: &EndpointPickerConfig, plugins: &Plugins) -> Result<Parser, ConfigError> {
    let parser_reference = config.parser.iter().map(|reference| ("parser", reference));
    let handler_parsers = config.request_handler.iter().flat_map(|handler| handler.parsers.iter().flatten());
    let handler_parsers = handler_parsers.map(|reference| ("requestHandler.parsers", reference));
    let mut parser = Parser::RequireModel;
    for (field, PluginReference { plugin_ref, .. }) in parser_reference.chain(handler_parsers) {
        if plugins.parser(field, plugin_ref)? == Parser::Passthrough {
            parser = Parser::Passthrough;
        }
    }
    if let Some(PluginReference { plugin_ref, .. }) = &config.saturation_detector {
        plugins.require_known("saturationDetector", plugin_ref)?;
    }
    Ok(parser)
}

impl ConfigError {
    /// Returns a hint for how to fix the error.
    pub fn hint(&self) -> String {
        match self {
            ConfigError::UnknownType { plugin_type, .. } => {
                match api::nearest_name(plugin_type, plugins::known_types()) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => format!("supported types are {}", plugins::SUPPORTED_TYPES.join(", ")),
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

#[cfg(test)]
mod tests;
