//! Whether and when a container runs again.

use std::time::Duration;

use serde_json::{Value, json};

use crate::object;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// `restartPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Always,
    OnFailure,
    Never,
}

/// The kubelet's crash back-off: at once, then 10 s doubling to 5 min; forgotten after 10 min of running.
#[derive(Debug, Default)]
pub(crate) struct BackOff {
    next: Duration,
}

impl Policy {
    /// The policy of a Pod's containers.
    pub(crate) fn of(pod: &Value) -> Self {
        match object::text(pod, "/spec/restartPolicy") {
            "Never" => Self::Never,
            "OnFailure" => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// The policy of one main container, which may have its own.
    pub(crate) fn of_container(pod: &Value, container: &Value) -> Self {
        match object::text(container, "/restartPolicy") {
            "" => Self::of(pod),
            _ => Self::of(&json!({"spec": container})),
        }
    }

    /// An init container that succeeded is done, whatever its policy.
    pub(crate) fn of_init(pod: &Value, container: &Value) -> Self {
        match Self::of_container(pod, container) {
            Self::Always => Self::OnFailure,
            other => other,
        }
    }

    pub(crate) fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

impl BackOff {
    /// How long to wait after a run of this length.
    pub(crate) fn after(&mut self, ran: Duration) -> Duration {
        if ran >= LONGEST * 2 {
            self.next = Duration::ZERO;
        }
        let wait = self.next;
        self.next = if wait.is_zero() { FIRST } else { (wait * 2).min(LONGEST) };
        wait
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_the_pod("Never", json!({}), Policy::Never)]
    #[case::the_default("", json!({}), Policy::Always)]
    #[case::its_own("Never", json!({"restartPolicy": "OnFailure"}), Policy::OnFailure)]
    fn policies(#[case] pod: &str, #[case] container: Value, #[case] expect: Policy) {
        let pod = json!({"spec": {"restartPolicy": pod}});
        assert_eq!(Policy::of_container(&pod, &container), expect);
    }

    #[test]
    fn back_off_doubles_and_forgets() {
        let mut back_off = BackOff::default();
        let mut waits = |ran| back_off.after(Duration::from_secs(ran)).as_secs();
        let seen: Vec<u64> = (0..8).map(|_| waits(1)).collect();
        assert_eq!(seen, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(waits(600), 0);
    }
}
