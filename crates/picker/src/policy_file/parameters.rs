//! Parameters of each type, with the defaults of other pickers.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{PolicyError, document::PluginSpec};
use crate::{
    filter::{Operator, Requirement},
    request::BYTES_PER_TOKEN,
    score::prefix::Prefix,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// How prompts are remembered, of the scorer and of the producer that states it for several scorers.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Remembering {
    /// Bytes of a block.
    #[serde(alias = "hashBlockSize")]
    block_size: Option<usize>,
    /// Tokens of a block; stated in place of bytes.
    block_size_tokens: Option<usize>,
    max_prefix_blocks_to_match: Option<usize>,
    /// Stated in place of blocks.
    max_prefix_tokens_to_match: Option<usize>,
    lru_capacity_per_server: Option<usize>,
    /// Blocks are as long as stated: engines whose blocks differ still find a common beginning.
    #[serde(rename = "autoTune")]
    _auto_tune: Option<bool>,
    /// The producer whose memory a scorer reads.
    pub prefix_match_info_producer_name: Option<String>,
}

/// Endpoints answered where a picker states no number. Not every proxy reads a list: Envoy's `ORIGINAL_DST` takes one that
/// has two addresses for none at all.
pub(super) const MOST: usize = 1;

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PickerSpec {
    pub max_num_of_endpoints: Option<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LabelSpec {
    pub label: String,
    #[serde(default)]
    pub valid_values: Vec<String>,
    #[serde(default)]
    pub allows_no_label: bool,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SelectorSpec {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct InFlightSpec {
    pub idle_threshold: usize,
    pub max_busy_score: f64,
    /// A request counts until its stream ends, however long that takes.
    #[serde(rename = "requestTimeout")]
    _request_timeout: Option<String>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct QueueSpec {
    pub threshold: f64,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TokensSpec {
    pub queue_threshold_tokens: f64,
}

/// Who counts as never given a new prompt is not bounded: one entry per endpoint.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NoHitSpec {
    #[serde(rename = "lruSize")]
    _lru_size: Option<usize>,
    #[serde(rename = "prefixPluginName")]
    _prefix_plugin_name: Option<String>,
    #[serde(rename = "prefixPluginType")]
    _prefix_plugin_type: Option<String>,
    #[serde(rename = "prefixMatchInfoProducerName")]
    _producer: Option<String>,
}

/// `prefix-based-pd-decider`.
#[derive(Debug, Clone, Copy, Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewTokens {
    pub non_cached_tokens: usize,
    pub prompt_tokens: usize,
}

/// `pd-profile-handler`, of all its years.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PairSpec {
    /// Bytes that may be new to the decoder.
    pub threshold: Option<usize>,
    pub prefill_profile: String,
    pub decode_profile: String,
    pub decider_plugin_name: Option<String>,
    pub primary_port: Option<u16>,
    /// The prefix scorer's blocks count.
    #[serde(rename = "hashBlockSize")]
    _hash_block_size: Option<usize>,
    #[serde(rename = "prefixPluginName")]
    _prefix_plugin_name: Option<String>,
    #[serde(rename = "prefixPluginType")]
    _prefix_plugin_type: Option<String>,
    #[serde(rename = "prefixMatchInfoProducerName")]
    _producer: Option<String>,
}

/// `disagg-profile-handler`.
#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StagesSpec {
    pub profiles: Stages,
    pub deciders: Stages,
    /// An older name of `deciders.prefill`.
    pub decider_plugin_name: Option<String>,
    pub prefill_profile: Option<String>,
    pub decode_profile: Option<String>,
    #[serde(rename = "prefixMatchInfoProducerName")]
    _producer: Option<String>,
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Stages {
    pub decode: Option<String>,
    pub prefill: Option<String>,
    pub encode: Option<String>,
}

/// `data-parallel-profile-handler`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RanksSpec {
    pub primary_port: u16,
}

/// The parameters of a plugin; none stated are the defaults.
///
/// # Errors
/// One that is not known, or of another type.
pub(super) fn of<T: DeserializeOwned>(at: usize, spec: &PluginSpec) -> Result<T, PolicyError> {
    let stated = if spec.parameters.is_null() { Value::Object(Map::new()) } else { spec.parameters.clone() };
    let wrong =
        |error: serde_json::Error| PolicyError::Parameters { at, kind: spec.r#type.clone(), cause: error.to_string() };
    serde_json::from_value(stated).map_err(wrong)
}

impl Remembering {
    /// What is stated, or `None` if nothing is.
    pub(super) fn stated(&self) -> Option<Prefix> {
        let blocks = [self.block_size, self.block_size_tokens, self.max_prefix_blocks_to_match];
        let sizes = [self.max_prefix_tokens_to_match, self.lru_capacity_per_server];
        blocks.iter().chain(&sizes).any(Option::is_some).then(|| self.prefix())
    }

    pub(super) fn prefix(&self) -> Prefix {
        let bytes = self.block_size_tokens.map(|tokens| tokens.saturating_mul(BYTES_PER_TOKEN));
        let block = bytes.or(self.block_size).unwrap_or(64).max(1);
        let within = |tokens: usize| (tokens.saturating_mul(BYTES_PER_TOKEN) / block).max(1);
        let most = self.max_prefix_tokens_to_match.map(within).or(self.max_prefix_blocks_to_match);
        Prefix { block, most_blocks: most.unwrap_or(256), capacity: self.lru_capacity_per_server.unwrap_or(31_250) }
    }
}

impl SelectorSpec {
    pub(super) fn requirements(self) -> Vec<Requirement> {
        let equal = |(key, value)| Requirement { key, operator: Operator::In, values: vec![value] };
        let stated = |Expression { key, operator, values }| Requirement { key, operator, values };
        self.match_labels.into_iter().map(equal).chain(self.match_expressions.into_iter().map(stated)).collect()
    }
}

impl Default for InFlightSpec {
    fn default() -> Self {
        Self { idle_threshold: 0, max_busy_score: 1.0, _request_timeout: None }
    }
}

impl Default for QueueSpec {
    fn default() -> Self {
        Self { threshold: 128.0 }
    }
}

impl Default for TokensSpec {
    fn default() -> Self {
        Self { queue_threshold_tokens: 4_194_304.0 }
    }
}

impl Default for RanksSpec {
    fn default() -> Self {
        Self { primary_port: 8000 }
    }
}

impl Default for PairSpec {
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
