//! Parameters of the plugin types, with the same defaults as other pickers.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{document::PluginEntry, error::ConfigError};
use crate::{
    filter::{Operator, Requirement},
    prefix_index::PrefixConfig,
    request::BYTES_PER_TOKEN,
};

/// Default maximum number of endpoints. Not all proxies support several endpoints: Envoy's `ORIGINAL_DST` cluster ignores a
/// header with two addresses.
pub(super) const DEFAULT_MAX_ENDPOINTS: usize = 1;

/// Maximum number of blocks of a prompt that are hashed, and of indexed blocks per endpoint; higher values have the same effect. A
/// block needs about 60 bytes.
const MAX_PREFIX_BLOCKS: usize = 16_384;
const MAX_LRU_CAPACITY: usize = 250_000;

/// Parameters of plugin types that accept no parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

/// Parameters of prefix scorers and of prefix producers. Several scorers may share a producer.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PrefixParameters {
    /// Bytes per block.
    #[serde(alias = "hashBlockSize")]
    block_size: Option<usize>,
    /// Tokens per block; takes precedence over `block_size`.
    block_size_tokens: Option<usize>,
    max_prefix_blocks_to_match: Option<usize>,
    /// Takes precedence over `max_prefix_blocks_to_match`.
    max_prefix_tokens_to_match: Option<usize>,
    lru_capacity_per_server: Option<usize>,
    /// Ignored: the block size need not match that of the engines.
    #[serde(rename = "autoTune")]
    _auto_tune: Option<bool>,
    /// Name of the producer whose index the scorer uses.
    pub(super) prefix_match_info_producer_name: Option<String>,
}

/// Parameters of pickers.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PickerParameters {
    /// Maximum number of returned endpoints.
    pub(super) max_num_of_endpoints: Option<usize>,
}

/// Parameters of `by-label`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LabelFilterParameters {
    /// Name of the label.
    pub(super) label: String,
    /// Accepted values.
    #[serde(default)]
    pub(super) valid_values: Vec<String>,
    /// Whether Pods without the label match.
    #[serde(default)]
    pub(super) allows_no_label: bool,
}

/// Parameters of `by-label-selector` and `label-selector-filter`.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SelectorFilterParameters {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<MatchExpression>,
}

/// An entry of `matchExpressions`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MatchExpression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

/// Parameters of `active-request-scorer`.
#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ActiveRequestParameters {
    /// Maximum number of requests of an idle endpoint.
    pub(super) idle_threshold: usize,
    /// Maximum score of a busy endpoint.
    pub(super) max_busy_score: f64,
    /// Ignored: a request is in flight until its stream ends.
    #[serde(rename = "requestTimeout")]
    _request_timeout: Option<String>,
}

/// Parameters of `load-aware-scorer`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LoadAwareParameters {
    /// Number of queued requests with the score 0.
    pub(super) threshold: f64,
}

/// Parameters of `token-load-scorer`.
#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TokenLoadParameters {
    /// Number of tokens in flight with the score 0.
    pub(super) queue_threshold_tokens: f64,
}

/// Parameters of `no-hit-lru-scorer`. `lruSize` is ignored: there is one entry per endpoint.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NoHitLruParameters {
    #[serde(rename = "lruSize")]
    _lru_size: Option<usize>,
    #[serde(rename = "prefixPluginName")]
    _prefix_plugin_name: Option<String>,
    #[serde(rename = "prefixPluginType")]
    _prefix_plugin_type: Option<String>,
    #[serde(rename = "prefixMatchInfoProducerName")]
    _producer: Option<String>,
}

/// Parameters of `prefix-based-pd-decider`.
#[derive(Debug, Clone, Copy, Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PrefillDeciderParameters {
    /// Minimum number of uncached tokens; 0 never uses a prefill endpoint.
    pub(super) non_cached_tokens: usize,
    /// Minimum number of tokens of the prompt.
    pub(super) prompt_tokens: usize,
}

/// Parameters of all versions of `pd-profile-handler`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PrefillDecodeParameters {
    /// Maximum number of uncached bytes that the decode endpoint prefills itself.
    pub(super) threshold: Option<usize>,
    /// Name of the profile that selects the prefill endpoint.
    pub(super) prefill_profile: String,
    /// Name of the profile that selects the decode endpoint.
    pub(super) decode_profile: String,
    /// Name of the decider; takes precedence over `threshold`.
    pub(super) decider_plugin_name: Option<String>,
    /// Port that forwards to all engines of a Pod; 0 means none.
    pub(super) primary_port: Option<u16>,
    /// Ignored: the block size of the prefix scorer is used.
    #[serde(rename = "hashBlockSize")]
    _hash_block_size: Option<usize>,
    #[serde(rename = "prefixPluginName")]
    _prefix_plugin_name: Option<String>,
    #[serde(rename = "prefixPluginType")]
    _prefix_plugin_type: Option<String>,
    #[serde(rename = "prefixMatchInfoProducerName")]
    _producer: Option<String>,
}

/// Parameters of `disagg-profile-handler`.
#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DisaggregatedParameters {
    /// Names of the profiles.
    pub(super) profiles: DisaggregatedNames,
    /// Names of the deciders.
    pub(super) deciders: DisaggregatedNames,
    /// Previous name of `deciders.prefill`.
    pub(super) decider_plugin_name: Option<String>,
    /// Previous name of `profiles.prefill`.
    pub(super) prefill_profile: Option<String>,
    /// Previous name of `profiles.decode`.
    pub(super) decode_profile: Option<String>,
    #[serde(rename = "prefixMatchInfoProducerName")]
    _producer: Option<String>,
}

/// Names of plugins or profiles by stage.
#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DisaggregatedNames {
    /// Generation of tokens.
    pub(super) decode: Option<String>,
    /// Computation of the prompt.
    pub(super) prefill: Option<String>,
    /// Encoding of images.
    pub(super) encode: Option<String>,
}

/// Parameters of `data-parallel-profile-handler`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DataParallelParameters {
    /// Port that forwards to all engines of a Pod.
    pub(super) primary_port: u16,
}

/// Parses the parameters of a plugin; missing parameters have default values.
///
/// # Errors
/// A parameter is unknown or has the wrong type.
pub(super) fn parse_parameters<T: DeserializeOwned>(index: usize, entry: &PluginEntry) -> Result<T, ConfigError> {
    let parameters = if entry.parameters.is_null() { Value::Object(Map::new()) } else { entry.parameters.clone() };
    serde_json::from_value(parameters).map_err(|error| ConfigError::InvalidParameters {
        index,
        plugin_type: entry.r#type.clone(),
        cause: error.to_string(),
    })
}

// === impl PrefixParameters ===

impl PrefixParameters {
    /// Returns the prefix configuration, or `None` if no parameter is set.
    pub(super) fn explicit_prefix_config(&self) -> Option<PrefixConfig> {
        let parameters = [
            self.block_size,
            self.block_size_tokens,
            self.max_prefix_blocks_to_match,
            self.max_prefix_tokens_to_match,
            self.lru_capacity_per_server,
        ];
        parameters.iter().any(Option::is_some).then(|| self.prefix_config())
    }

    /// Returns the prefix configuration, with defaults for parameters that are not set.
    pub(super) fn prefix_config(&self) -> PrefixConfig {
        let bytes = self.block_size_tokens.map(|tokens| tokens.saturating_mul(BYTES_PER_TOKEN));
        let block_size = bytes.or(self.block_size).unwrap_or(64).max(1);
        let blocks_of = |tokens: usize| (tokens.saturating_mul(BYTES_PER_TOKEN) / block_size).max(1);
        let max_blocks = self.max_prefix_tokens_to_match.map(blocks_of).or(self.max_prefix_blocks_to_match);
        PrefixConfig {
            block_size,
            max_blocks: max_blocks.unwrap_or(256).min(MAX_PREFIX_BLOCKS),
            lru_capacity: self.lru_capacity_per_server.unwrap_or(31_250).min(MAX_LRU_CAPACITY),
        }
    }
}

// === impl SelectorFilterParameters ===

impl SelectorFilterParameters {
    /// Returns the requirements of the label selector.
    pub(super) fn requirements(self) -> Vec<Requirement> {
        let equal = |(key, value)| Requirement { key, operator: Operator::In, values: vec![value] };
        let expression = |MatchExpression { key, operator, values }| Requirement { key, operator, values };
        self.match_labels.into_iter().map(equal).chain(self.match_expressions.into_iter().map(expression)).collect()
    }
}

// === impl ActiveRequestParameters ===

impl Default for ActiveRequestParameters {
    fn default() -> Self {
        Self { idle_threshold: 0, max_busy_score: 1.0, _request_timeout: None }
    }
}

// === impl LoadAwareParameters ===

impl Default for LoadAwareParameters {
    fn default() -> Self {
        Self { threshold: 128.0 }
    }
}

// === impl TokenLoadParameters ===

impl Default for TokenLoadParameters {
    fn default() -> Self {
        Self { queue_threshold_tokens: 4_194_304.0 }
    }
}

// === impl DataParallelParameters ===

impl Default for DataParallelParameters {
    fn default() -> Self {
        Self { primary_port: 8000 }
    }
}

// === impl PrefillDecodeParameters ===

impl Default for PrefillDecodeParameters {
    fn default() -> Self {
        Self {
            threshold: None,
            prefill_profile: "prefill".to_owned(),
            decode_profile: "decode".to_owned(),
            decider_plugin_name: None,
            primary_port: None,
            _hash_block_size: None,
            _prefix_plugin_name: None,
            _prefix_plugin_type: None,
            _producer: None,
        }
    }
}
