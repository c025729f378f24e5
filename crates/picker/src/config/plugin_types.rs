//! Plugin types: those that this picker implements, and those of other endpoint pickers.

/// How this picker handles a plugin of another picker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Support {
    /// The function of the plugin is built in, or the plugin depends on another plugin or feature gate that causes a
    /// warning.
    Implicit,
    /// The plugin is ignored. Contains the warning.
    Ignored(&'static str),
    /// Requests would fail without the plugin. Contains the reason.
    Unsupported(&'static str),
}

use Support::{Ignored, Implicit, Unsupported};

/// Plugin types that this picker implements.
pub(super) const SUPPORTED_TYPES: [&str; 33] = [
    "queue-scorer",
    "running-requests-size-scorer",
    "kv-cache-utilization-scorer",
    "prefix-cache-scorer",
    "precise-prefix-cache-scorer",
    "lora-affinity-scorer",
    "active-request-scorer",
    "load-aware-scorer",
    "token-load-scorer",
    "no-hit-lru-scorer",
    "max-score-picker",
    "random-picker",
    "weighted-random-picker",
    "single-profile-handler",
    "pd-profile-handler",
    "disagg-profile-handler",
    "data-parallel-profile-handler",
    "prefix-based-pd-decider",
    "always-disagg-pd-decider",
    "always-disagg-multimodal-decider",
    "by-label",
    "by-label-selector",
    "label-selector-filter",
    "encode-filter",
    "prefill-filter",
    "decode-filter",
    "approx-prefix-cache-producer",
    "precise-prefix-cache-producer",
    "openai-parser",
    "anthropic-parser",
    "vllmhttp-parser",
    "sglanghttp-parser",
    "passthrough-parser",
];

const LATENCY_NOT_PREDICTED: &str =
    "latency is not predicted: the plugin does not affect scores, and latency objectives are ignored";
const SESSIONS_NOT_TRACKED: &str =
    "session tokens are not tracked: cached prefixes keep a conversation on its endpoint";
const NO_LOAD_SHEDDING: &str = "the limit of each engine is learned: requests beyond it wait in the queue of the pool";
const PROMPTS_NOT_TOKENIZED: &str = "prompts are not tokenized: a token is estimated as four bytes";

/// Plugin types and how they are handled.
pub(super) const PLUGINS_OF_OTHER_PICKERS: &[(&str, Support)] = &[
    // Metrics are always scraped; Pods and pools are always watched.
    ("metrics-data-source", Implicit),
    ("core-metrics-extractor", Implicit),
    ("model-server-protocol-metrics", Implicit),
    ("models-data-source", Implicit),
    ("models-data-extractor", Implicit),
    ("k8s-notification-source", Implicit),
    ("endpoint-notification-source", Implicit),
    ("inflight-load-producer", Implicit),
    ("prefill-header-handler", Implicit),
    ("disagg-headers-handler", Implicit),
    ("destination-endpoint-served-verifier", Implicit),
    // Plugins for flow control: its feature gate causes a warning.
    ("global-strict-fairness-policy", Implicit),
    ("round-robin-fairness-policy", Implicit),
    ("fcfs-ordering-policy", Implicit),
    ("edf-ordering-policy", Implicit),
    ("slo-deadline-ordering-policy", Implicit),
    ("static-usage-limit-policy", Implicit),
    ("utilization-detector", Ignored(NO_LOAD_SHEDDING)),
    ("concurrency-detector", Ignored(NO_LOAD_SHEDDING)),
    ("probabilistic-admitter", Ignored(NO_LOAD_SHEDDING)),
    ("latency-slo-admitter", Ignored(LATENCY_NOT_PREDICTED)),
    ("latency-scorer", Ignored(LATENCY_NOT_PREDICTED)),
    ("predicted-latency-producer", Ignored(LATENCY_NOT_PREDICTED)),
    ("slo-headroom-tier-filter", Ignored(LATENCY_NOT_PREDICTED)),
    (
        "prefix-cache-affinity-filter",
        Ignored(
            "endpoints are not filtered by cached prefixes: prefix-cache-scorer prefers endpoints that cache the prompt",
        ),
    ),
    ("session-affinity-scorer", Ignored(SESSIONS_NOT_TRACKED)),
    ("session-affinity-filter", Ignored(SESSIONS_NOT_TRACKED)),
    ("session-id-producer", Ignored(SESSIONS_NOT_TRACKED)),
    (
        "context-length-aware",
        Ignored(
            "prompt sizes are matched with the Pod annotations ome.io/prompt-tokens-min and ome.io/prompt-tokens-max, which only the native gateway reads",
        ),
    ),
    ("token-producer", Ignored(PROMPTS_NOT_TOKENIZED)),
    ("tokenizer", Ignored(PROMPTS_NOT_TOKENIZED)),
    ("request-attribute-reporter", Ignored("request attributes are not reported, only the selected endpoint is")),
    ("models-responder", Ignored("GET /v1/models is answered by one engine")),
    ("header-based-testing-filter", Ignored("headers do not select endpoints; the subset hint of the proxy does")),
    (
        "vertexai-parser",
        Ignored("Vertex AI bodies are parsed as OpenAI bodies, and rejected if they do not name a model"),
    ),
    ("vllmgrpc-parser", Unsupported("requests of vLLM's gRPC API cannot be parsed, so all of them would be rejected")),
    ("file-discovery", Unsupported("the endpoints are those of the InferencePool")),
];

/// Returns how a plugin type of another picker is handled, or `None` for other types.
pub(super) fn support_for(plugin_type: &str) -> Option<Support> {
    PLUGINS_OF_OTHER_PICKERS.iter().find(|(name, _)| *name == plugin_type).map(|(_, support)| *support)
}

/// Returns all accepted plugin types.
pub(super) fn known_types() -> impl Iterator<Item = &'static str> {
    SUPPORTED_TYPES.into_iter().chain(PLUGINS_OF_OTHER_PICKERS.iter().map(|(plugin_type, _)| *plugin_type))
}
