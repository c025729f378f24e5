//! Facts that scheduling reads from a Pod object.

use std::net::IpAddr;

use api::inference::ModelServer;
use serde_json::Value;

use crate::endpoint::PromptTokenRange;

/// Annotations with the range of prompt sizes that a Pod is intended for, in tokens; both bounds are inclusive.
const PROMPT_TOKENS_MIN: &str = "ome.io/prompt-tokens-min";
const PROMPT_TOKENS_MAX: &str = "ome.io/prompt-tokens-max";

/// Labels of other endpoint pickers with the model server of a Pod, in order of precedence.
const MODEL_SERVER_LABELS: [&str; 2] = ["llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"];

/// Returns the model server that the labels of a Pod state, if it is a known one.
pub(crate) fn model_server(pod: &Value) -> Option<ModelServer> {
    let label = |name: &&str| pod["metadata"]["labels"][*name].as_str();
    match MODEL_SERVER_LABELS.iter().find_map(label)? {
        "vllm" => Some(ModelServer::Vllm),
        "sglang" => Some(ModelServer::Sglang),
        "trtllm" | "trtllm-serve" => Some(ModelServer::Trtllm),
        "triton" | "triton-tensorrt-llm" => Some(ModelServer::Triton),
        _ => None,
    }
}

/// Returns the range of prompt sizes in the annotations of a Pod. Bounds that are not numbers are ignored.
pub(crate) fn prompt_token_range(pod: &Value) -> PromptTokenRange {
    let parse_bound = |name: &str| pod["metadata"]["annotations"][name].as_str()?.parse().ok();
    PromptTokenRange { min: parse_bound(PROMPT_TOKENS_MIN), max: parse_bound(PROMPT_TOKENS_MAX) }
}

/// Returns whether a Pod is running or may start, and is not terminating.
pub(crate) fn is_active(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && !has_terminated(pod)
}

/// Returns whether all containers of a Pod have terminated and will not be restarted.
pub(crate) fn has_terminated(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Returns the IP address of a ready Pod.
pub(crate) fn ready_address(pod: &Value) -> Option<IpAddr> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let is_ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    is_ready.then(|| pod["status"]["podIP"].as_str()?.parse().ok())?
}
