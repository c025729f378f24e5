//! Limits of the queue of a pool.

use std::time::Duration;

use api::inference::QueueLimits as ApiQueueLimits;

use crate::request_queue::QueueSize;

/// How many requests of a pool wait for an engine, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Size of the queue.
    pub(crate) size: QueueSize,
    /// Longest time in the queue.
    pub(crate) timeout: Duration,
}

// === impl QueueLimits ===

impl Default for QueueLimits {
    fn default() -> Self {
        let (max_requests, max_bytes) = (ApiQueueLimits::DEFAULT_MAX_REQUESTS, ApiQueueLimits::DEFAULT_MAX_BYTES);
        Self { size: QueueSize { max_requests, max_bytes }, timeout: ApiQueueLimits::DEFAULT_TIMEOUT.0 }
    }
}

impl From<ApiQueueLimits> for QueueLimits {
    fn from(limits: ApiQueueLimits) -> Self {
        let ApiQueueLimits { max_requests, max_bytes, timeout } = limits;
        let default = Self::default();
        let max_requests = max_requests.map(|requests| usize::try_from(requests).unwrap_or(0));
        let max_bytes = max_bytes.map(|bytes| u64::try_from(bytes.value()).unwrap_or(0));
        let size = QueueSize {
            max_requests: max_requests.unwrap_or(default.size.max_requests),
            max_bytes: max_bytes.unwrap_or(default.size.max_bytes),
        };
        Self { size, timeout: timeout.map_or(default.timeout, |timeout| timeout.0) }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    // spec: GW-78
    #[rstest]
    #[case::defaults(json!({}), (1_000, 256 << 20, 30_000))]
    #[case::stated(json!({"maxRequests": 0, "maxBytes": "1Gi", "timeout": "1500ms"}), (0, 1 << 30, 1_500))]
    #[case::negative(json!({"maxRequests": -1, "maxBytes": "-1"}), (0, 0, 30_000))]
    fn limits_have_defaults(#[case] limits: Value, #[case] expect: (usize, u64, u128)) {
        let limits = QueueLimits::from(serde_json::from_value::<ApiQueueLimits>(limits).unwrap());
        assert_eq!((limits.size.max_requests, limits.size.max_bytes, limits.timeout.as_millis()), expect);
    }
}
