//! Plugins that other pickers have.

/// What becomes of a plugin that is not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// What it is for is done here without it, or shows only together with another that is told of.
    Done,
    /// It is passed over; what happens instead.
    PassedOver(&'static str),
    /// Requests would go wrong without it; why.
    Needed(&'static str),
}

use Elsewhere::{Done, Needed, PassedOver};

const NO_LATENCY: &str = "latency is not predicted here: it scores nothing, and no latency objective is looked at";
const NO_SESSION: &str = "sessions are not followed by token here: a conversation stays by its prompt's beginning";
const NOT_SHED: &str = "no request is shed here: an engine queues what exceeds it";
const NO_TOKENIZER: &str = "prompts are not tokenized here: a token is taken for four bytes";

/// By type.
pub(super) const TYPES: &[(&str, Elsewhere)] = &[
    // Engines' metrics pages are always read; Pods and pools are always watched.
    ("metrics-data-source", Done),
    ("core-metrics-extractor", Done),
    ("model-server-protocol-metrics", Done),
    ("models-data-source", Done),
    ("models-data-extractor", Done),
    ("k8s-notification-source", Done),
    ("endpoint-notification-source", Done),
    ("inflight-load-producer", Done),
    ("prefill-header-handler", Done),
    ("disagg-headers-handler", Done),
    ("destination-endpoint-served-verifier", Done),
    // Of flow control, whose gate is told of.
    ("global-strict-fairness-policy", Done),
    ("round-robin-fairness-policy", Done),
    ("fcfs-ordering-policy", Done),
    ("edf-ordering-policy", Done),
    ("slo-deadline-ordering-policy", Done),
    ("static-usage-limit-policy", Done),
    ("utilization-detector", PassedOver(NOT_SHED)),
    ("concurrency-detector", PassedOver(NOT_SHED)),
    ("probabilistic-admitter", PassedOver(NOT_SHED)),
    ("latency-slo-admitter", PassedOver(NO_LATENCY)),
    ("latency-scorer", PassedOver(NO_LATENCY)),
    ("predicted-latency-producer", PassedOver(NO_LATENCY)),
    ("slo-headroom-tier-filter", PassedOver(NO_LATENCY)),
    (
        "prefix-cache-affinity-filter",
        PassedOver("no endpoint is left out for its cache: prefix-cache-scorer prefers those that have the prompt"),
    ),
    ("session-affinity-scorer", PassedOver(NO_SESSION)),
    ("session-affinity-filter", PassedOver(NO_SESSION)),
    ("session-id-producer", PassedOver(NO_SESSION)),
    (
        "context-length-aware",
        PassedOver(
            "Pods are for prompts of some sizes by the annotations ome.io/prompt-tokens-min and -max, which the native gateway reads",
        ),
    ),
    ("token-producer", PassedOver(NO_TOKENIZER)),
    ("tokenizer", PassedOver(NO_TOKENIZER)),
    ("request-attribute-reporter", PassedOver("nothing is reported of a request but where it goes")),
    ("models-responder", PassedOver("GET /v1/models is answered by one engine")),
    ("header-based-testing-filter", PassedOver("a header does not choose the endpoint; the proxy's subset hint does")),
    ("vertexai-parser", PassedOver("bodies of Vertex AI are read as OpenAI's, and refused where they name no model")),
    (
        "vllmgrpc-parser",
        Needed("requests of vLLM's gRPC interface cannot be read, so every one of them would be refused"),
    ),
    ("file-discovery", Needed("endpoints are those of the InferencePool")),
];

pub(super) fn of(kind: &str) -> Option<Elsewhere> {
    TYPES.iter().find(|(known, _)| *known == kind).map(|(_, elsewhere)| *elsewhere)
}
