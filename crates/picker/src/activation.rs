//! When the workload of a pool is scaled from and to zero. Pure: times are passed in.

use std::time::Duration;

/// What is known about the requests to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Number of requests that wait for an endpoint.
    pub(crate) waiting: usize,
    /// Number of endpoints, ready or not.
    pub(crate) endpoints: usize,
    /// Whether an endpoint serves requests.
    pub(crate) is_serving: bool,
    /// Whether requests are in flight, also those of other clients of the engines.
    pub(crate) is_busy: bool,
    /// Time since the last request to any gateway, at most the time since an endpoint serves requests.
    pub(crate) idle: Duration,
}

/// A change of the number of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScaleChange {
    /// From zero replicas to one.
    FromZero,
    /// To zero replicas.
    ToZero,
}

// === impl Activity ===

impl Activity {
    /// Returns how the workload is to be scaled now. An engine that is still loading its model is left alone.
    pub(crate) fn required_change(&self, idle_timeout: Duration) -> Option<ScaleChange> {
        if self.endpoints == 0 && self.waiting > 0 {
            return Some(ScaleChange::FromZero);
        }
        let is_idle = self.waiting == 0 && !self.is_busy && self.idle >= idle_timeout;
        (self.is_serving && is_idle).then_some(ScaleChange::ToZero)
    }
}

// === impl ScaleChange ===

impl ScaleChange {
    /// Returns the number of replicas after the change, `None` if `replicas` needs none.
    pub(crate) fn apply(self, replicas: i32) -> Option<i32> {
        match self {
            Self::FromZero => (replicas == 0).then_some(1),
            Self::ToZero => (replicas > 0).then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    const IDLE: Activity = Activity { waiting: 0, endpoints: 1, is_serving: true, is_busy: false, idle: TIMEOUT };

    // spec: RT-25
    // spec: GW-25
    #[rstest]
    #[case::idle(IDLE, Some(ScaleChange::ToZero))]
    #[case::not_yet_idle(Activity { idle: TIMEOUT - Duration::from_millis(1), ..IDLE }, None)]
    #[case::busy(Activity { is_busy: true, ..IDLE }, None)]
    #[case::waits_for_a_busy_engine(Activity { waiting: 1, ..IDLE }, None)]
    #[case::loading(Activity { is_serving: false, ..IDLE }, None)]
    #[case::loading_with_requests(Activity { is_serving: false, waiting: 1, ..IDLE }, None)]
    #[case::no_replica(Activity { endpoints: 0, is_serving: false, ..IDLE }, None)]
    #[case::request_without_a_replica(Activity { endpoints: 0, is_serving: false, waiting: 1, ..IDLE }, Some(ScaleChange::FromZero))]
    fn workload_follows_the_requests(#[case] activity: Activity, #[case] expect: Option<ScaleChange>) {
        assert_eq!(activity.required_change(TIMEOUT), expect);
    }

    #[rstest]
    #[case(ScaleChange::FromZero, 0, Some(1))]
    #[case(ScaleChange::FromZero, 1, None)]
    #[case(ScaleChange::ToZero, 3, Some(0))]
    #[case(ScaleChange::ToZero, 0, None)]
    fn only_the_step_from_or_to_zero_is_taken(
        #[case] change: ScaleChange,
        #[case] replicas: i32,
        #[case] expect: Option<i32>,
    ) {
        assert_eq!(change.apply(replicas), expect);
    }
}
