//! Restart policy and restart back-off of containers.

use std::time::Duration;

use apimachinery::object;
use serde_json::{Value, json};

const INITIAL_DELAY: Duration = Duration::from_secs(10);
const MAX_DELAY: Duration = Duration::from_secs(300);

/// `restartPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    /// The default, and the only policy of Pods that a Deployment or a similar controller creates.
    Always,
    /// Restarts a container only after an exit code other than 0.
    OnFailure,
    Never,
}

/// The crash back-off of the kubelet: no delay after the first exit, then 10 s, doubling up to 5 min. A run of at least
/// 10 min resets it.
#[derive(Debug, Default)]
pub(crate) struct CrashLoopBackOff {
    /// Back-off delay after the next container exit.
    delay: Duration,
}

// === impl RestartPolicy ===

impl RestartPolicy {
    /// Returns the policy of a Pod.
    pub(crate) fn for_pod(pod: &Value) -> Self {
        match object::text(pod, "/spec/restartPolicy") {
            "Never" => Self::Never,
            "OnFailure" => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Returns the policy of one container, which may override that of the Pod.
    pub(crate) fn for_container(pod: &Value, container: &Value) -> Self {
        match object::text(container, "/restartPolicy") {
            "" => Self::for_pod(pod),
            _ => Self::for_pod(&json!({"spec": container})),
        }
    }

    /// Returns the policy of an init container, which is not restarted after it has succeeded.
    pub(crate) fn for_init_container(pod: &Value, container: &Value) -> Self {
        match Self::for_container(pod, container) {
            Self::Always => Self::OnFailure,
            policy => policy,
        }
    }

    /// Whether a container with this exit code is restarted.
    pub(crate) fn should_restart(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

// === impl CrashLoopBackOff ===

impl CrashLoopBackOff {
    /// Returns the delay before restarting a container that ran for `run_time`.
    pub(crate) fn next_delay(&mut self, run_time: Duration) -> Duration {
        if run_time >= MAX_DELAY.saturating_mul(2) {
            self.delay = Duration::ZERO;
        }
        let delay = self.delay;
        self.delay = if delay.is_zero() { INITIAL_DELAY } else { delay.saturating_mul(2).min(MAX_DELAY) };
        delay
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::policy_of_pod("Never", json!({}), RestartPolicy::Never)]
    #[case::default_policy("", json!({}), RestartPolicy::Always)]
    #[case::policy_of_container("Never", json!({"restartPolicy": "OnFailure"}), RestartPolicy::OnFailure)]
    fn reads_policy(#[case] pod: &str, #[case] container: Value, #[case] expect: RestartPolicy) {
        let pod = json!({"spec": {"restartPolicy": pod}});
        assert_eq!(RestartPolicy::for_container(&pod, &container), expect);
    }

    #[test]
    fn back_off_doubles_and_resets() {
        let mut back_off = CrashLoopBackOff::default();
        let mut next_delay = |run_time| back_off.next_delay(Duration::from_secs(run_time)).as_secs();
        let delays: Vec<u64> = (0..8).map(|_| next_delay(1)).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(next_delay(600), 0);
    }
}
