//! Parses an `EndpointPickerConfig`, the configuration file format of endpoint pickers.
//!
//! `document` defines the file format, `plugin_types` the types of plugins of this picker and of others, and `plugins` parses
//! them; `profiles` and `profile_handler` build a [`SchedulingPolicy`] from them. As in other pickers, unknown
//! types, parameters and fields are errors. A plugin that this picker does not implement causes a [`ConfigWarning`], or an
//! error if requests would fail without it.

mod document;
mod error;
mod parameters;
mod plugin_types;
mod plugins;
mod profile_handler;
mod profiles;

use crate::policy::{Parser, SchedulingPolicy};
use document::{API_VERSIONS, EndpointPickerConfig, MAX_BYTES, MAX_NODES, MAX_PLUGINS, PluginReference};
use plugins::Plugins;

pub use error::{ConfigError, ConfigWarning};

/// A parsed configuration.
#[derive(Debug)]
pub struct ParsedConfig {
    /// The scheduling policy.
    pub policy: SchedulingPolicy,
    /// Parts of the configuration that have no effect.
    pub warnings: Vec<ConfigWarning>,
}

/// Feature gates without effect: the feature is always enabled in this picker, or not observable.
const ACCEPTED_FEATURE_GATES: [&str; 5] =
    ["dataLayer", "prepareDataPlugins", "enableLegacyMetrics", "experimentalDatalayer", "haPopulateNonLeaderDatastore"];

const FLOW_CONTROL: &str = "flowControl";

/// Parses an EndpointPickerConfig; empty text results in the default policy.
///
/// # Errors
/// Returns the first [`ConfigError`]. No field is ignored silently: a field takes effect, causes a warning, or is an
/// error.
pub fn parse_config(text: &str) -> Result<ParsedConfig, ConfigError> {
    if text.trim().is_empty() {
        return Ok(ParsedConfig { policy: SchedulingPolicy::default(), warnings: Vec::new() });
    }
    let config = parse_document(text)?;
    let mut warnings = Vec::new();
    check_feature_gates(&config, &mut warnings)?;
    check_data_layer(&config, &mut warnings)?;
    if config.plugins.len() > MAX_PLUGINS {
        return Err(ConfigError::TooManyPlugins { count: config.plugins.len() });
    }
    let mut plugins = Plugins::parse_all(&config.plugins, &mut warnings)?;
    let parser = select_parser(&config, &plugins)?;
    let profiles = profiles::build_profiles(&config, &plugins)?;
    let (profile_handler, primary_port) =
        profile_handler::build_profile_handler(&mut plugins, profiles, &mut warnings)?;
    let prefix_configs = plugins.prefix_configs;
    Ok(ParsedConfig { policy: SchedulingPolicy { profile_handler, prefix_configs, parser, primary_port }, warnings })
}

fn parse_document(text: &str) -> Result<EndpointPickerConfig, ConfigError> {
    if text.len() > MAX_BYTES {
        return Err(ConfigError::TooLarge);
    }
    let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_nodes: MAX_NODES } };
    let config: EndpointPickerConfig =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| syntax_error(&error))?;
    if !API_VERSIONS.contains(&config.api_version.as_str()) || config.kind != "EndpointPickerConfig" {
        return Err(ConfigError::WrongKind { api_version: config.api_version, kind: config.kind });
    }
    Ok(config)
}

fn syntax_error(error: &serde_saphyr::Error) -> ConfigError {
    let mut cause = error.without_snippet();
    while let serde_saphyr::Error::AliasError { error, .. } = cause {
        cause = error.without_snippet();
    }
    match cause {
        serde_saphyr::Error::Budget { .. } => ConfigError::TooLarge,
        serde_saphyr::Error::MultipleDocuments { .. } => ConfigError::Syntax("it has several documents".to_owned()),
        _ => ConfigError::Syntax(first_line(error)),
    }
}

/// Returns the message of a YAML error without its prefix and without the snippet of the file, which follows on further
/// lines. The parser renders them as one text.
fn first_line(error: &impl ToString) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn check_feature_gates(config: &EndpointPickerConfig, warnings: &mut Vec<ConfigWarning>) -> Result<(), ConfigError> {
    for gate in config.feature_gates.iter().flatten() {
        let (name, is_enabled) =
            gate.split_once('=').map_or((gate.as_str(), true), |(name, value)| (name, value != "false"));
        match name.trim() {
            FLOW_CONTROL if is_enabled => warnings.push(ConfigWarning {
                field: "featureGates".to_owned(),
                message:
                    "flowControl has no effect: the BackendPool states the limits of the queue, and use cases the \
                          priorities"
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

#[cfg(test)]
mod tests;
