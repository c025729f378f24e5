//! Reads an `EndpointPickerConfig`: the configuration file that endpoint pickers share.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    policy::{Handler, Policy},
    profile::{LabelFilter, Order, Profile},
    score::{Scorer, prefix::Prefix},
};

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("not an EndpointPickerConfig: {0}")]
    NotRead(String),
    #[error("apiVersion {found:?}, kind {kind:?}: expected kind EndpointPickerConfig of {}", API_VERSIONS.join(" or "))]
    WrongKind { found: String, kind: String },
    #[error("featureGates: {0:?} is not known here; known are none")]
    FeatureGate(String),
    #[error("plugins[{at}]: type {kind:?} is not known; known types are {known}")]
    UnknownType { at: usize, kind: String, known: String },
    #[error("plugins[{at}].parameters of {kind}: {cause}")]
    Parameters { at: usize, kind: String, cause: String },
    #[error("plugins[{at}]: the name {name:?} is given twice")]
    SameName { at: usize, name: String },
    #[error("schedulingProfiles[{profile}].plugins: {name:?} is not among the plugins")]
    UnknownPlugin { profile: String, name: String },
    #[error("schedulingProfiles[{profile}].plugins: the weight of {name:?} must be a positive number")]
    Weight { profile: String, name: String },
    #[error("schedulingProfiles: {handler} needs {needed}")]
    Profiles { handler: &'static str, needed: String },
}

const API_VERSIONS: [&str; 2] = ["llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1"];

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

/// Endpoints answered where a picker states no number. Not every proxy reads a list: Envoy's `ORIGINAL_DST` takes one that
/// has two addresses for none at all.
const MOST: usize = 1;

/// An engine's tokens are taken for four bytes each.
const BYTES_PER_TOKEN: usize = 4;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    feature_gates: Vec<String>,
    #[serde(default)]
    plugins: Vec<PluginSpec>,
    #[serde(default)]
    scheduling_profiles: Vec<ProfileSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginSpec {
    name: Option<String>,
    r#type: String,
    #[serde(default)]
    parameters: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileSpec {
    name: String,
    #[serde(default)]
    plugins: Vec<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Reference {
    plugin_ref: String,
    weight: Option<f64>,
}

/// A plugin understood.
#[derive(Debug, Clone)]
enum Plugin {
    Scorer(Scorer),
    Filter(LabelFilter),
    Picker(Order, usize),
    Single,
    Pair(Pair),
    /// The header that names the prefiller is set whenever one is chosen.
    PrefillHeader,
}

const TYPES: [&str; 14] = [
    "queue-scorer",
    "kv-cache-utilization-scorer",
    "prefix-cache-scorer",
    "lora-affinity-scorer",
    "active-request-scorer",
    "max-score-picker",
    "random-picker",
    "weighted-random-picker",
    "single-profile-handler",
    "pd-profile-handler",
    "prefill-header-handler",
    "by-label",
    "prefill-filter",
    "decode-filter",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct PrefixSpec {
    /// Bytes of a block.
    #[serde(alias = "hashBlockSize")]
    block_size: Option<usize>,
    /// Tokens of a block; stated in place of bytes.
    block_size_tokens: Option<usize>,
    max_prefix_blocks_to_match: Option<usize>,
    lru_capacity_per_server: Option<usize>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct PickerSpec {
    max_num_of_endpoints: Option<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LabelSpec {
    label: String,
    valid_values: Vec<String>,
    #[serde(default)]
    allows_no_label: bool,
}

/// Parameters of `pd-profile-handler`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Pair {
    threshold: usize,
    prefill_profile: String,
    decode_profile: String,
    /// The prefix scorer's blocks count.
    #[serde(rename = "hashBlockSize")]
    _hash_block_size: Option<usize>,
    /// Each port of a Pod is an endpoint of its own here.
    #[serde(rename = "primaryPort")]
    _primary_port: Option<u16>,
}

/// Reads `text`; empty text is the default configuration.
///
/// # Errors
/// [`PolicyError`], one line: nothing that is stated is passed over.
pub fn read(text: &str) -> Result<Policy, PolicyError> {
    let text = if text.trim().is_empty() { DEFAULT } else { text };
    let file: File = serde_saphyr::from_str(text).map_err(|error| PolicyError::NotRead(first_line(&error)))?;
    if !API_VERSIONS.contains(&file.api_version.as_str()) || file.kind != "EndpointPickerConfig" {
        return Err(PolicyError::WrongKind { found: file.api_version, kind: file.kind });
    }
    if let Some(gate) = file.feature_gates.into_iter().next() {
        return Err(PolicyError::FeatureGate(gate));
    }
    let mut prefixes = Vec::new();
    let plugins = plugins(&file.plugins, &mut prefixes)?;
    let profiles = profiles(&file.scheduling_profiles, &file.plugins, &plugins)?;
    Ok(Policy { handler: handler(&plugins, profiles)?, prefixes })
}

fn plugins(specs: &[PluginSpec], prefixes: &mut Vec<Prefix>) -> Result<BTreeMap<String, Plugin>, PolicyError> {
    let mut found = BTreeMap::new();
    for (at, spec) in specs.iter().enumerate() {
        let name = spec.name.clone().unwrap_or_else(|| spec.r#type.clone());
        let plugin = plugin(at, spec, prefixes)?;
        if found.insert(name.clone(), plugin).is_some() {
            return Err(PolicyError::SameName { at, name });
        }
    }
    Ok(found)
}

fn plugin(at: usize, spec: &PluginSpec, prefixes: &mut Vec<Prefix>) -> Result<Plugin, PolicyError> {
    let bare = |plugin| parameters::<Nothing>(at, spec).map(|Nothing {}| plugin);
    let picker = |order| {
        let stated: PickerSpec = parameters(at, spec)?;
        Ok(Plugin::Picker(order, stated.max_num_of_endpoints.unwrap_or(MOST)))
    };
    match spec.r#type.as_str() {
        "queue-scorer" => bare(Plugin::Scorer(Scorer::Queue)),
        "kv-cache-utilization-scorer" => bare(Plugin::Scorer(Scorer::KvCache)),
        "lora-affinity-scorer" => bare(Plugin::Scorer(Scorer::Lora)),
        "active-request-scorer" => bare(Plugin::Scorer(Scorer::InFlight)),
        "prefix-cache-scorer" => {
            prefixes.push(parameters::<PrefixSpec>(at, spec)?.prefix());
            Ok(Plugin::Scorer(Scorer::Prefix(prefixes.len() - 1)))
        }
        "max-score-picker" => picker(Order::Best),
        "random-picker" => picker(Order::Random),
        "weighted-random-picker" => picker(Order::Drawn),
        "single-profile-handler" => bare(Plugin::Single),
        "pd-profile-handler" => parameters(at, spec).map(Plugin::Pair),
        "prefill-header-handler" => bare(Plugin::PrefillHeader),
        "by-label" => parameters::<LabelSpec>(at, spec).map(|stated| {
            let LabelSpec { label, valid_values: values, allows_no_label: without } = stated;
            Plugin::Filter(LabelFilter { label, values, without })
        }),
        "prefill-filter" => bare(Plugin::Filter(role(&["prefill"], false))),
        "decode-filter" => bare(Plugin::Filter(role(&["decode", "both"], true))),
        _ => Err(PolicyError::UnknownType { at, kind: spec.r#type.clone(), known: TYPES.join(", ") }),
    }
}

fn parameters<T: DeserializeOwned>(at: usize, spec: &PluginSpec) -> Result<T, PolicyError> {
    let stated =
        if spec.parameters.is_null() { Value::Object(serde_json::Map::new()) } else { spec.parameters.clone() };
    let wrong =
        |error: serde_json::Error| PolicyError::Parameters { at, kind: spec.r#type.clone(), cause: error.to_string() };
    serde_json::from_value(stated).map_err(wrong)
}

fn role(values: &[&str], without: bool) -> LabelFilter {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    LabelFilter { label: "llm-d.ai/role".to_owned(), values, without }
}

/// The profiles by name. Without any, one profile of all that is listed.
fn profiles(
    stated: &[ProfileSpec],
    listed: &[PluginSpec],
    plugins: &BTreeMap<String, Plugin>,
) -> Result<BTreeMap<String, Profile>, PolicyError> {
    if !stated.is_empty() {
        return stated.iter().map(|spec| Ok((spec.name.clone(), profile(spec, plugins)?))).collect();
    }
    let all = listed.iter().map(|spec| spec.name.clone().unwrap_or_else(|| spec.r#type.clone()));
    let all = all.map(|plugin_ref| Reference { plugin_ref, weight: None }).collect();
    let all = ProfileSpec { name: "default".to_owned(), plugins: all };
    Ok([(all.name.clone(), profile(&all, plugins)?)].into())
}

fn profile(spec: &ProfileSpec, plugins: &BTreeMap<String, Plugin>) -> Result<Profile, PolicyError> {
    let mut profile = Profile { filters: Vec::new(), scorers: Vec::new(), order: Order::Best, most: MOST };
    for reference in &spec.plugins {
        let name = &reference.plugin_ref;
        let unknown = || PolicyError::UnknownPlugin { profile: spec.name.clone(), name: name.clone() };
        match plugins.get(name).ok_or_else(unknown)? {
            Plugin::Scorer(scorer) => {
                let weight = reference.weight.unwrap_or(1.0);
                if !(weight.is_finite() && weight > 0.0) {
                    return Err(PolicyError::Weight { profile: spec.name.clone(), name: name.clone() });
                }
                profile.scorers.push((*scorer, weight));
            }
            Plugin::Filter(filter) => profile.filters.push(filter.clone()),
            Plugin::Picker(order, most) => (profile.order, profile.most) = (*order, *most),
            Plugin::Single | Plugin::Pair(_) | Plugin::PrefillHeader => {}
        }
    }
    Ok(profile)
}

fn handler(
    plugins: &BTreeMap<String, Plugin>,
    mut profiles: BTreeMap<String, Profile>,
) -> Result<Handler, PolicyError> {
    let pair = plugins.values().find_map(|plugin| if let Plugin::Pair(pair) = plugin { Some(pair) } else { None });
    let Some(pair) = pair else {
        let needed = || format!("one profile, {} are stated", profiles.len());
        if profiles.len() != 1 {
            return Err(PolicyError::Profiles { handler: "single-profile-handler", needed: needed() });
        }
        let only = profiles.pop_first().map(|(_, profile)| profile);
        return only
            .map(Handler::Single)
            .ok_or(PolicyError::Profiles { handler: "single-profile-handler", needed: "one profile".to_owned() });
    };
    let mut take = |name: &str| {
        let needed = format!("a profile named {name:?}");
        profiles.remove(name).ok_or(PolicyError::Profiles { handler: "pd-profile-handler", needed })
    };
    let (prefill, decode) = (take(&pair.prefill_profile)?, take(&pair.decode_profile)?);
    Ok(Handler::PrefillDecode { prefill, decode, threshold: pair.threshold })
}

fn first_line(error: &impl ToString) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

impl PrefixSpec {
    fn prefix(&self) -> Prefix {
        let tokens = self.block_size_tokens.map(|tokens| tokens.saturating_mul(BYTES_PER_TOKEN));
        Prefix {
            block: tokens.or(self.block_size).unwrap_or(64).max(1),
            most_blocks: self.max_prefix_blocks_to_match.unwrap_or(256),
            capacity: self.lru_capacity_per_server.unwrap_or(31_250),
        }
    }
}

impl Default for Pair {
    fn default() -> Self {
        let (prefill_profile, decode_profile) = ("prefill".to_owned(), "decode".to_owned());
        Self { threshold: 0, prefill_profile, decode_profile, _hash_block_size: None, _primary_port: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn config(rest: &str) -> String {
        format!("apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n{rest}")
    }

    fn single(policy: Policy) -> Profile {
        match policy.handler {
            Handler::Single(profile) => profile,
            Handler::PrefillDecode { .. } => panic!("a pair"),
        }
    }

    #[test]
    fn nothing_configured_is_queue_cache_and_prefix() {
        let policy = read("").unwrap();
        assert_eq!(policy.prefixes, [Prefix { block: 64, most_blocks: 256, capacity: 31_250 }]);
        let profile = single(policy);
        assert_eq!(profile.scorers, [(Scorer::Queue, 2.0), (Scorer::KvCache, 2.0), (Scorer::Prefix(0), 3.0)]);
        assert_eq!((profile.order, profile.most), (Order::Best, 1));
    }

    #[rstest]
    #[case::queue("queue-scorer", Scorer::Queue)]
    #[case::kv_cache("kv-cache-utilization-scorer", Scorer::KvCache)]
    #[case::lora("lora-affinity-scorer", Scorer::Lora)]
    #[case::prefix("prefix-cache-scorer", Scorer::Prefix(0))]
    fn one_scorer_with_a_weight(#[case] kind: &str, #[case] scorer: Scorer) {
        let text = config(&format!(
            "plugins:\n- type: {kind}\n- type: max-score-picker\n  parameters: {{maxNumOfEndpoints: 2}}\n\
             schedulingProfiles:\n- name: default\n  plugins:\n  - pluginRef: max-score-picker\n  - pluginRef: {kind}\n    weight: 100\n"
        ));
        let profile = single(read(&text).unwrap());
        assert_eq!((profile.scorers, profile.most), (vec![(scorer, 100.0)], 2));
    }

    #[test]
    fn without_profiles_all_plugins_make_one() {
        let profile = single(read(&config("plugins: [{type: queue-scorer, name: q}, {type: random-picker}]")).unwrap());
        assert_eq!((profile.scorers, profile.order), (vec![(Scorer::Queue, 1.0)], Order::Random));
    }

    #[test]
    fn prefill_and_decode() {
        let text = config(
            "plugins:
- type: pd-profile-handler
  parameters: {threshold: 10, hashBlockSize: 5, primaryPort: 8000}
- type: prefill-header-handler
- {type: by-label, name: p, parameters: {label: role, validValues: [prefiller]}}
- {type: by-label, name: d, parameters: {label: role, validValues: [decoder], allowsNoLabel: true}}
- {type: prefix-cache-scorer, parameters: {hashBlockSize: 5, maxPrefixBlocksToMatch: 256, lruCapacityPerServer: 31250}}
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: p}, {pluginRef: prefix-cache-scorer, weight: 50}]}
- {name: decode, plugins: [{pluginRef: d}, {pluginRef: prefix-cache-scorer, weight: 50}]}
",
        );
        let policy = read(&text).unwrap();
        assert_eq!(policy.prefixes[0].block, 5);
        let Handler::PrefillDecode { prefill, decode, threshold } = policy.handler else { panic!("single") };
        assert_eq!(
            (threshold, prefill.filters[0].values[0].as_str(), decode.filters[0].without),
            (10, "prefiller", true)
        );
    }

    #[rstest]
    #[case::type_(
        "plugins: [{type: session-affinity-scorer}]",
        "plugins[0]: type \"session-affinity-scorer\" is not known; known types are queue-scorer, "
    )]
    #[case::parameter(
        "plugins: [{type: prefix-cache-scorer, parameters: {blocksize: 5}}]",
        "plugins[0].parameters of prefix-cache-scorer: unknown field `blocksize`"
    )]
    #[case::parameter_type(
        "plugins: [{type: prefix-cache-scorer, parameters: {blockSize: many}}]",
        "plugins[0].parameters of prefix-cache-scorer: invalid type"
    )]
    #[case::twice(
        "plugins: [{type: queue-scorer}, {type: queue-scorer}]",
        "plugins[1]: the name \"queue-scorer\" is given twice"
    )]
    #[case::reference(
        "schedulingProfiles: [{name: d, plugins: [{pluginRef: x}]}]",
        "schedulingProfiles[d].plugins: \"x\" is not among the plugins"
    )]
    #[case::weight(
        "{plugins: [{type: queue-scorer}], schedulingProfiles: [{name: d, plugins: [{pluginRef: queue-scorer, weight: -1}]}]}",
        "not an EndpointPickerConfig"
    )]
    #[case::profiles(
        "schedulingProfiles: [{name: a}, {name: b}]",
        "schedulingProfiles: single-profile-handler needs one profile, 2 are stated"
    )]
    #[case::pair(
        "plugins: [{type: pd-profile-handler}]",
        "schedulingProfiles: pd-profile-handler needs a profile named \"prefill\""
    )]
    #[case::gate("featureGates: [flowControl]", "featureGates: \"flowControl\" is not known here")]
    #[case::section("flowControl: {}", "not an EndpointPickerConfig: ")]
    fn what_is_not_understood_is_said(#[case] rest: &str, #[case] expect: &str) {
        let told = read(&config(rest)).unwrap_err().to_string();
        assert!(told.starts_with(expect), "{told}");
        assert!(!told.contains('\n'), "{told}");
    }

    #[test]
    fn another_kind_is_refused() {
        let told = read("apiVersion: v1\nkind: ConfigMap\n").unwrap_err().to_string();
        assert!(
            told.starts_with("apiVersion \"v1\", kind \"ConfigMap\": expected kind EndpointPickerConfig of llm-d.ai")
        );
    }
}
