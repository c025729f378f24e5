//! Endpoint picker configuration for each routing strategy.

use api::fusioninfer::{ComponentType, RoutingStrategy};

use crate::labels::COMPONENT_TYPE;

const HEADER: &str = "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n";

/// Prefix cache scorer with 64-byte blocks that covers the first 16 KiB of a prompt. Smaller blocks (5 bytes upstream)
/// would cover less of the prompt at a higher cost.
const PREFIX_CACHE_SCORER: &str = "- type: prefix-cache-scorer
  parameters:
    blockSize: 64
    maxPrefixBlocksToMatch: 256
    lruCapacityPerServer: 31250
";

/// Returns the configuration file for `strategy`.
pub(super) fn config(strategy: RoutingStrategy) -> String {
    match strategy {
        RoutingStrategy::PrefixCache => single_scorer(PREFIX_CACHE_SCORER, "prefix-cache-scorer"),
        RoutingStrategy::KvCacheUtilization => load_scorer("kv-cache-utilization-scorer"),
        RoutingStrategy::QueueSize => load_scorer("queue-scorer"),
        RoutingStrategy::LoraAffinity => load_scorer("lora-affinity-scorer"),
        RoutingStrategy::PdDisaggregation => disaggregated(),
    }
}

/// Returns the configuration for a scorer without parameters.
fn load_scorer(scorer: &str) -> String {
    single_scorer(&format!("- type: {scorer}\n"), scorer)
}

/// Returns a configuration that picks the endpoint with the highest score of one scorer.
fn single_scorer(declaration: &str, scorer: &str) -> String {
    format!(
        "{HEADER}plugins:
{declaration}- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: {scorer}
    weight: 100
  - pluginRef: max-score-picker
"
    )
}

/// Returns the configuration for disaggregated serving: a prefiller computes the prompt for a decoder.
fn disaggregated() -> String {
    let label_filter = |name: &str, kind: ComponentType| {
        format!(
            "- type: by-label
  name: {name}
  parameters:
    label: {COMPONENT_TYPE}
    validValues: [{}]
",
            kind.as_str()
        )
    };
    let profile = |name: &str, filter: &str| {
        format!(
            "- name: {name}
  plugins:
  - pluginRef: {filter}
  - pluginRef: prefix-cache-scorer
    weight: 50
  - pluginRef: max-score-picker
"
        )
    };
    format!(
        "{HEADER}plugins:
- type: pd-profile-handler
  parameters:
    threshold: 0
- type: prefill-header-handler
{}{}{PREFIX_CACHE_SCORER}- type: max-score-picker
schedulingProfiles:
{}{}",
        label_filter("prefill-pods", ComponentType::Prefiller),
        label_filter("decode-pods", ComponentType::Decoder),
        profile("prefill", "prefill-pods"),
        profile("decode", "decode-pods"),
    )
}
