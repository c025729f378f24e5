//! When the workload of a pool is scaled from and to zero. Pure: times are passed in.

use std::{collections::BTreeMap, time::Duration};

use cluster::Scale;

/// What is known about the requests to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Number of requests that wait in the queue.
    pub(crate) waiting: usize,
    /// Whether an endpoint serves requests.
    pub(crate) is_serving: bool,
    /// Whether an endpoint is not ready.
    pub(crate) has_unready_endpoint: bool,
    /// Whether requests are in progress, also those of other clients of the engines.
    pub(crate) is_busy: bool,
    /// Time since the last request to any gateway was in progress, at most the time since an endpoint serves requests.
    pub(crate) idle: Duration,
}

/// After which times without requests a workload is scaled to zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdleTimeouts {
    /// If its endpoints are ready.
    pub(crate) serving: Duration,
    /// If none is ready, although a request has started it.
    pub(crate) starting: Duration,
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
    /// Returns how the workload is to be scaled now. While some endpoints are ready and others are not, it is being updated, and the
    /// new ones may fail.
    pub(crate) fn required_change(&self, timeouts: IdleTimeouts) -> Option<ScaleChange> {
        if self.waiting > 0 {
            return (!self.is_serving).then_some(ScaleChange::FromZero);
        }
        let (is_settled, timeout) = match self.is_serving {
            true => (!self.has_unready_endpoint, timeouts.serving),
            false => (true, timeouts.starting.max(timeouts.serving)),
        };
        (is_settled && !self.is_busy && self.idle >= timeout).then_some(ScaleChange::ToZero)
    }
}

// === impl ScaleChange ===

impl ScaleChange {
    /// Returns the number of replicas after the change, `None` if `scale` needs none. A workload that is being updated has replicas beyond
    /// the desired number, which may fail.
    pub(crate) fn apply(self, scale: &Scale) -> Option<i32> {
        match self {
            Self::FromZero => (scale.replicas == 0).then_some(1),
            Self::ToZero => (scale.replicas > 0 && scale.existing <= scale.replicas).then_some(0),
        }
    }
}

/// Returns whether a label selector such as `app=llama,role=engine` selects these labels. Selectors with sets select nothing here.
pub(crate) fn selects(selector: &str, labels: &BTreeMap<String, String>) -> bool {
    let is_met = |requirement: &str| {
        let Some((key, value)) = requirement.split_once('=') else { return false };
        labels.get(key.trim()).is_some_and(|label| label == value.trim_start_matches('=').trim())
    };
    !selector.is_empty() && selector.split(',').all(is_met)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    const TIMEOUTS: IdleTimeouts = IdleTimeouts { serving: TIMEOUT, starting: Duration::from_secs(600) };

    const IDLE: Activity =
        Activity { waiting: 0, is_serving: true, has_unready_endpoint: false, is_busy: false, idle: TIMEOUT };

    const NOT_SERVING: Activity = Activity { is_serving: false, ..IDLE };

    // spec: RT-25
    // spec: GW-25
    #[rstest]
    #[case::idle(IDLE, Some(ScaleChange::ToZero))]
    #[case::not_yet_idle(Activity { idle: TIMEOUT - Duration::from_millis(1), ..IDLE }, None)]
    #[case::busy(Activity { is_busy: true, ..IDLE }, None)]
    #[case::waits_for_a_busy_engine(Activity { waiting: 1, ..IDLE }, None)]
    #[case::update(Activity { has_unready_endpoint: true, ..IDLE }, None)]
    #[case::loading(Activity { has_unready_endpoint: true, ..NOT_SERVING }, None)]
    #[case::loading_with_requests(Activity { has_unready_endpoint: true, waiting: 1, ..NOT_SERVING }, Some(ScaleChange::FromZero))]
    #[case::no_replica(NOT_SERVING, None)]
    #[case::request_without_a_replica(Activity { waiting: 1, ..NOT_SERVING }, Some(ScaleChange::FromZero))]
    #[case::never_ready(Activity { idle: TIMEOUTS.starting, has_unready_endpoint: true, ..NOT_SERVING }, Some(ScaleChange::ToZero))]
    fn workload_follows_the_requests(#[case] activity: Activity, #[case] expect: Option<ScaleChange>) {
        assert_eq!(activity.required_change(TIMEOUTS), expect);
    }

    /// Columns: desired and existing replicas.
    #[rstest]
    #[case(ScaleChange::FromZero, 0, 0, Some(1))]
    #[case(ScaleChange::FromZero, 1, 0, None)]
    #[case(ScaleChange::ToZero, 3, 3, Some(0))]
    #[case(ScaleChange::ToZero, 0, 0, None)]
    #[case::update(ScaleChange::ToZero, 1, 2, None)]
    fn only_the_step_from_or_to_zero_is_taken(
        #[case] change: ScaleChange,
        #[case] replicas: i32,
        #[case] existing: i32,
        #[case] expect: Option<i32>,
    ) {
        assert_eq!(change.apply(&Scale { replicas, existing, selector: String::new() }), expect);
    }

    #[rstest]
    #[case("app=llama", true)]
    #[case("app=llama,role==engine", true)]
    #[case("app=other", false)]
    #[case("app=llama,tier=gold", false)]
    #[case("app in (llama)", false)]
    #[case("", false)]
    fn selector_selects_labels(#[case] selector: &str, #[case] expect: bool) {
        let labels = [("app", "llama"), ("role", "engine")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(selects(selector, &labels.into()), expect);
    }
}
