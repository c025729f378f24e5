//! Endpoints: ports of Pods.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use crate::endpoint_state::EndpointState;

/// One port of a Pod.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// IP address and port.
    pub address: SocketAddr,
    /// Name of the Pod.
    pub pod: String,
    /// UID of the Pod: another Pod may reuse the address.
    pub uid: String,
    /// Labels of the Pod.
    pub labels: BTreeMap<String, String>,
    /// Prompt sizes that the Pod is intended for.
    pub prompt_tokens: PromptTokenRange,
    /// State of the endpoint, shared by all pools that select the Pod.
    pub state: Arc<EndpointState>,
}

/// Range of prompt sizes in tokens; both bounds are inclusive and optional.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptTokenRange {
    /// Lower bound.
    pub min: Option<u64>,
    /// Upper bound.
    pub max: Option<u64>,
}

// === impl PromptTokenRange ===

impl PromptTokenRange {
    /// Returns whether the range contains a prompt of `tokens`.
    pub fn contains(self, tokens: u64) -> bool {
        self.min.is_none_or(|min| min <= tokens) && self.max.is_none_or(|max| tokens <= max)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the endpoint `10.0.0.N:8000` of `pod-N`.
    pub(crate) fn endpoint(number: u8) -> Endpoint {
        Endpoint {
            address: ([10, 0, 0, number], 8000).into(),
            pod: format!("pod-{number}"),
            uid: format!("uid-{number}"),
            labels: BTreeMap::new(),
            prompt_tokens: PromptTokenRange::default(),
            state: Arc::default(),
        }
    }
}
