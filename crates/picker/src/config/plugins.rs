//! Parses plugins.

use super::{
    document::PluginEntry,
    error::{ConfigError, ConfigWarning},
    parameters::{
        ActiveRequestParameters, DEFAULT_MAX_ENDPOINTS, DataParallelParameters, DisaggregatedParameters,
        LabelFilterParameters, LoadAwareParameters, NoHitLruParameters, NoParameters, PickerParameters,
        PrefillDeciderParameters, PrefillDecodeParameters, PrefixParameters, SelectorFilterParameters,
        TokenLoadParameters, parse_parameters,
    },
    plugin_types::{self, Support},
};
use crate::{
    filter::{Filter, Role},
    policy::{Decider, Parser},
    prefix_index::PrefixConfig,
    profile::Picker,
    score::Scorer,
};

/// A parsed plugin.
#[derive(Debug, Clone)]
pub(super) enum Plugin {
    /// Scores candidates.
    Scorer(Scorer),
    /// Removes candidates.
    Filter(Filter),
    /// Picker and maximum number of endpoints.
    Picker(Picker, usize),
    /// Selects the profiles of a request.
    ProfileHandler(ProfileHandlerConfig),
    /// Condition for using a prefill endpoint. `None` never uses a prefill endpoint.
    Decider(Option<Decider>),
    /// Prefix configuration for scorers that define none.
    PrefixProducer(PrefixConfig),
    /// Parses request bodies.
    Parser(Parser),
    /// A plugin without effect.
    NoEffect,
}

/// A profile handler with its parameters.
#[derive(Debug, Clone)]
pub(super) enum ProfileHandlerConfig {
    /// `single-profile-handler`.
    Single,
    /// `data-parallel-profile-handler`.
    DataParallel(DataParallelParameters),
    /// `pd-profile-handler`.
    PrefillDecode(PrefillDecodeParameters),
    /// `disagg-profile-handler`.
    Disaggregated(DisaggregatedParameters),
}

/// The plugins of a configuration in order, with their names.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    plugins: Vec<(String, Plugin)>,
    /// Configurations of the prefix indexes that the scorers use.
    pub(super) prefix_configs: Vec<PrefixConfig>,
}

const CACHE_EVENTS_NOT_READ: &str =
    "KV cache events of engines are not read: an endpoint is assumed to cache the prompts that were sent to it";

// === impl Plugins ===

impl Plugins {
    /// Parses `plugins` of a configuration.
    pub(super) fn parse_all(entries: &[PluginEntry], warnings: &mut Vec<ConfigWarning>) -> Result<Self, ConfigError> {
        let mut plugins = Self::default();
        let is_producer = |(_, entry): &(usize, &PluginEntry)| entry.r#type.ends_with("-prefix-cache-producer");
        // Parse producers first: scorers use their prefix configuration and may precede them in the list.
        let (producers, others): (Vec<_>, Vec<_>) = entries.iter().enumerate().partition(is_producer);
        for (index, entry) in producers.into_iter().chain(others) {
            let name = entry.name().to_owned();
            if plugins.get(&name).is_some() {
                return Err(ConfigError::DuplicateName { index, name });
            }
            let plugin = plugins.parse_plugin(index, entry, warnings)?;
            plugins.plugins.push((name, plugin));
        }
        Ok(plugins)
    }

    /// Returns the plugin named `name`.
    pub(super) fn get(&self, name: &str) -> Option<&Plugin> {
        self.plugins.iter().find(|(plugin_name, _)| plugin_name == name).map(|(_, plugin)| plugin)
    }

    /// Returns the profile handlers with their names.
    pub(super) fn profile_handlers(&self) -> impl Iterator<Item = (&str, &ProfileHandlerConfig)> {
        self.plugins.iter().filter_map(|(name, plugin)| match plugin {
            Plugin::ProfileHandler(handler) => Some((name.as_str(), handler)),
            _ => None,
        })
    }

    /// Returns the decider named `name`.
    pub(super) fn decider(&self, field: &str, name: &str) -> Result<Option<Decider>, ConfigError> {
        let (field, expected) = (field.to_owned(), "decider");
        match self.get(name) {
            Some(Plugin::Decider(decider)) => Ok(*decider),
            Some(_) => Err(ConfigError::WrongPluginType { field, name: name.to_owned(), expected }),
            None => Err(ConfigError::UnknownPlugin { field, name: name.to_owned() }),
        }
    }

    /// Returns the parser named `name`, or the parser of type `name` if no plugin has this name.
    pub(super) fn parser(&self, field: &str, name: &str) -> Result<Parser, ConfigError> {
        match self.get(name) {
            Some(Plugin::Parser(parser)) => Ok(*parser),
            Some(_) => {
                let (field, name) = (field.to_owned(), name.to_owned());
                Err(ConfigError::WrongPluginType { field, name, expected: "parser" })
            }
            None => self.require_known(field, name).map(|()| parser_for_type(name)),
        }
    }

    /// Checks that `name` is a listed plugin or a plugin type: as in other pickers, plugins may be referenced by their
    /// type.
    pub(super) fn require_known(&self, field: &str, name: &str) -> Result<(), ConfigError> {
        if self.get(name).is_some() || plugin_types::known_types().any(|plugin_type| plugin_type == name) {
            return Ok(());
        }
        Err(ConfigError::UnknownPlugin { field: format!("{field}.pluginRef"), name: name.to_owned() })
    }

    /// Returns the position of the prefix index with this configuration. Equal configurations share an index.
    pub(super) fn prefix_index_for(&mut self, config: PrefixConfig) -> usize {
        let position = self.prefix_configs.iter().position(|existing| *existing == config);
        position.unwrap_or_else(|| {
            self.prefix_configs.push(config);
            self.prefix_configs.len() - 1
        })
    }

    /// Returns the prefix configuration for plugins that do not define one.
    pub(super) fn default_prefix_config(&self) -> PrefixConfig {
        self.first_prefix_producer()
            .or(self.prefix_configs.first().copied())
            .unwrap_or_else(|| PrefixParameters::default().prefix_config())
    }

    fn first_prefix_producer(&self) -> Option<PrefixConfig> {
        self.plugins.iter().find_map(|(_, plugin)| match plugin {
            Plugin::PrefixProducer(config) => Some(*config),
            _ => None,
        })
    }

    fn parse_prefix_scorer(&mut self, index: usize, entry: &PluginEntry) -> Result<Plugin, ConfigError> {
        let parameters: PrefixParameters = parse_parameters(index, entry)?;
        let producer_name = parameters.prefix_match_info_producer_name.as_deref();
        let named_producer = producer_name.and_then(|name| match self.get(name) {
            Some(Plugin::PrefixProducer(config)) => Some(*config),
            _ => None,
        });
        let default = || self.first_prefix_producer().unwrap_or_else(|| parameters.prefix_config());
        let config = parameters.explicit_prefix_config().or(named_producer).unwrap_or_else(default);
        Ok(Plugin::Scorer(Scorer::Prefix(self.prefix_index_for(config))))
    }

    fn parse_no_hit_lru_scorer(&mut self, index: usize, entry: &PluginEntry) -> Result<Plugin, ConfigError> {
        parse_parameters::<NoHitLruParameters>(index, entry)?;
        let config = self.default_prefix_config();
        self.prefix_index_for(config);
        Ok(Plugin::Scorer(Scorer::NoHitLru))
    }

    fn parse_plugin(
        &mut self,
        index: usize,
        entry: &PluginEntry,
        warnings: &mut Vec<ConfigWarning>,
    ) -> Result<Plugin, ConfigError> {
        let mut warn = |message: &str| {
            let field = format!("plugins[{index}] ({})", entry.name());
            warnings.push(ConfigWarning { field, message: message.to_owned() });
        };
        match entry.r#type.as_str() {
            "prefix-cache-scorer" => self.parse_prefix_scorer(index, entry),
            "no-hit-lru-scorer" => self.parse_no_hit_lru_scorer(index, entry),
            "precise-prefix-cache-scorer" => {
                warn(CACHE_EVENTS_NOT_READ);
                let config = self.default_prefix_config();
                Ok(Plugin::Scorer(Scorer::Prefix(self.prefix_index_for(config))))
            }
            "precise-prefix-cache-producer" => {
                warn(CACHE_EVENTS_NOT_READ);
                Ok(Plugin::PrefixProducer(PrefixParameters::default().prefix_config()))
            }
            plugin_type => match plugin_types::support_for(plugin_type) {
                Some(Support::Unsupported(reason)) => {
                    Err(ConfigError::UnsupportedPlugin { index, plugin_type: plugin_type.to_owned(), reason })
                }
                Some(Support::Ignored(message)) => {
                    warn(message);
                    Ok(Plugin::NoEffect)
                }
                Some(Support::Implicit) => {
                    if entry.parameters["scheme"] == "https" {
                        warn(
                            "metrics are scraped over plain HTTP: endpoints that support only TLS are scored by their requests in flight",
                        );
                    }
                    Ok(Plugin::NoEffect)
                }
                None => parse_stateless_plugin(index, entry),
            },
        }
    }
}

/// Parses plugins that do not depend on other plugins.
fn parse_stateless_plugin(index: usize, entry: &PluginEntry) -> Result<Plugin, ConfigError> {
    let without_parameters = |plugin| parse_parameters::<NoParameters>(index, entry).map(|NoParameters {}| plugin);
    let invalid = |cause: &str| ConfigError::InvalidParameters {
        index,
        plugin_type: entry.r#type.clone(),
        cause: cause.to_owned(),
    };
    let picker = |picker| {
        let parameters: PickerParameters = parse_parameters(index, entry)?;
        Ok(Plugin::Picker(picker, parameters.max_num_of_endpoints.unwrap_or(DEFAULT_MAX_ENDPOINTS)))
    };
    match entry.r#type.as_str() {
        "queue-scorer" => without_parameters(Plugin::Scorer(Scorer::Queue)),
        "running-requests-size-scorer" => without_parameters(Plugin::Scorer(Scorer::RunningRequests)),
        "kv-cache-utilization-scorer" => without_parameters(Plugin::Scorer(Scorer::KvCache)),
        "lora-affinity-scorer" => without_parameters(Plugin::Scorer(Scorer::Lora)),
        "active-request-scorer" => {
            let ActiveRequestParameters { idle_threshold, max_busy_score, .. } = parse_parameters(index, entry)?;
            let is_valid = (0.0..=1.0).contains(&max_busy_score);
            is_valid.then_some(()).ok_or_else(|| invalid("maxBusyScore must be between 0 and 1"))?;
            Ok(Plugin::Scorer(Scorer::ActiveRequests { idle_threshold, max_busy_score }))
        }
        "load-aware-scorer" => {
            let LoadAwareParameters { threshold } = parse_parameters(index, entry)?;
            (threshold > 0.0).then_some(()).ok_or_else(|| invalid("threshold must be greater than 0"))?;
            Ok(Plugin::Scorer(Scorer::LoadAware { threshold }))
        }
        "token-load-scorer" => {
            let TokenLoadParameters { queue_threshold_tokens: threshold } = parse_parameters(index, entry)?;
            (threshold > 0.0).then_some(()).ok_or_else(|| invalid("queueThresholdTokens must be greater than 0"))?;
            Ok(Plugin::Scorer(Scorer::TokenLoad { threshold }))
        }
        "max-score-picker" => picker(Picker::MaxScore),
        "random-picker" => picker(Picker::Random),
        "weighted-random-picker" => picker(Picker::WeightedRandom),
        "approx-prefix-cache-producer" => parse_parameters::<PrefixParameters>(index, entry)
            .map(|parameters| Plugin::PrefixProducer(parameters.prefix_config())),
        "openai-parser" | "anthropic-parser" | "vllmhttp-parser" | "sglanghttp-parser" | "passthrough-parser" => {
            Ok(Plugin::Parser(parser_for_type(&entry.r#type)))
        }
        plugin_type if plugin_type.ends_with("-decider") => parse_decider(index, entry).map(Plugin::Decider),
        plugin_type if plugin_type.ends_with("-handler") => {
            parse_profile_handler(index, entry).map(Plugin::ProfileHandler)
        }
        _ => parse_filter(index, entry).map(Plugin::Filter),
    }
}

fn parse_decider(index: usize, entry: &PluginEntry) -> Result<Option<Decider>, ConfigError> {
    match entry.r#type.as_str() {
        "prefix-based-pd-decider" => {
            let PrefillDeciderParameters { non_cached_tokens: uncached, prompt_tokens: prompt } =
                parse_parameters(index, entry)?;
            Ok((uncached > 0).then_some(Decider::MinTokens { uncached, prompt }))
        }
        "always-disagg-pd-decider" | "always-disagg-multimodal-decider" => {
            parse_parameters::<NoParameters>(index, entry).map(|NoParameters {}| Some(Decider::Always))
        }
        plugin_type => Err(ConfigError::UnknownType { index, plugin_type: plugin_type.to_owned() }),
    }
}

fn parse_profile_handler(index: usize, entry: &PluginEntry) -> Result<ProfileHandlerConfig, ConfigError> {
    match entry.r#type.as_str() {
        "single-profile-handler" => {
            parse_parameters::<NoParameters>(index, entry).map(|NoParameters {}| ProfileHandlerConfig::Single)
        }
        "data-parallel-profile-handler" => parse_parameters(index, entry).map(ProfileHandlerConfig::DataParallel),
        "pd-profile-handler" => parse_parameters(index, entry).map(ProfileHandlerConfig::PrefillDecode),
        "disagg-profile-handler" => parse_parameters(index, entry).map(ProfileHandlerConfig::Disaggregated),
        plugin_type => Err(ConfigError::UnknownType { index, plugin_type: plugin_type.to_owned() }),
    }
}

fn parse_filter(index: usize, entry: &PluginEntry) -> Result<Filter, ConfigError> {
    let role_filter = |role| parse_parameters::<NoParameters>(index, entry).map(|NoParameters {}| Filter::Role(role));
    match entry.r#type.as_str() {
        "by-label" => parse_parameters::<LabelFilterParameters>(index, entry).map(|parameters| {
            let LabelFilterParameters { label, valid_values: values, allows_no_label: allow_missing } = parameters;
            Filter::Label { label, values, allow_missing }
        }),
        "by-label-selector" | "label-selector-filter" => parse_parameters::<SelectorFilterParameters>(index, entry)
            .map(|parameters| Filter::Selector(parameters.requirements())),
        "encode-filter" => role_filter(Role::Encode),
        "prefill-filter" => role_filter(Role::Prefill),
        "decode-filter" => role_filter(Role::Decode),
        plugin_type => Err(ConfigError::UnknownType { index, plugin_type: plugin_type.to_owned() }),
    }
}

fn parser_for_type(parser: &str) -> Parser {
    if parser == "passthrough-parser" { Parser::Passthrough } else { Parser::RequireModel }
}
