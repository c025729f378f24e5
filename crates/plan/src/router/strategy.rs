//! How a picker picks: one configuration file for each strategy, in the form that endpoint pickers share.

use api::fusioninfer::{ComponentType, RoutingStrategy};

use crate::labels::COMPONENT_TYPE;

const HEAD: &str = "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n";

/// Blocks of 64 bytes, of which the first 16 KiB of a prompt count: shorter ones (upstream has 5 bytes) see little of it at
/// great cost.
const PREFIX: &str = "- type: prefix-cache-scorer
  parameters:
    blockSize: 64
    maxPrefixBlocksToMatch: 256
    lruCapacityPerServer: 31250
";

/// The file for `strategy`.
pub(super) fn config(strategy: RoutingStrategy) -> String {
    match strategy {
        RoutingStrategy::PrefixCache => by(PREFIX, "prefix-cache-scorer"),
        RoutingStrategy::KvCacheUtilization => by_load("kv-cache-utilization-scorer"),
        RoutingStrategy::QueueSize => by_load("queue-scorer"),
        RoutingStrategy::LoraAffinity => by_load("lora-affinity-scorer"),
        RoutingStrategy::PdDisaggregation => pair(),
    }
}

fn by_load(scorer: &str) -> String {
    by(&format!("- type: {scorer}\n"), scorer)
}

/// The best by one scorer.
fn by(declared: &str, scorer: &str) -> String {
    format!(
        "{HEAD}plugins:
{declared}- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: {scorer}
    weight: 100
  - pluginRef: max-score-picker
"
    )
}

/// A decoder answers, and a prefiller computes what the decoder has not seen.
fn pair() -> String {
    let half = |name: &str, kind: ComponentType| {
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
    let profile = |name: &str, pods: &str| {
        format!(
            "- name: {name}
  plugins:
  - pluginRef: {pods}
  - pluginRef: prefix-cache-scorer
    weight: 50
  - pluginRef: max-score-picker
"
        )
    };
    format!(
        "{HEAD}plugins:
- type: pd-profile-handler
  parameters:
    threshold: 0
- type: prefill-header-handler
{}{}{PREFIX}- type: max-score-picker
schedulingProfiles:
{}{}",
        half("prefill-pods", ComponentType::Prefiller),
        half("decode-pods", ComponentType::Decoder),
        profile("prefill", "prefill-pods"),
        profile("decode", "decode-pods"),
    )
}
