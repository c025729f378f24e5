//! Health of an endpoint as requests and scrapes show it: whether requests may be sent to it now. Pure: times are passed in.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http::StatusCode;
use tokio::time::Instant;

/// Number of consecutive failures after which an endpoint is ejected. One is enough if it cannot be connected to.
const FAILURE_THRESHOLD: u32 = 3;

/// Time for which an endpoint is ejected first; it doubles with each further ejection, up to the maximum.
const MIN_EJECTION: Duration = Duration::from_secs(1);

/// Maximum time for which an endpoint is ejected.
const MAX_EJECTION: Duration = Duration::from_secs(30);

/// Interval between requests to an endpoint that was ejected, until one of them succeeds.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// Time for which it is known that an endpoint does not serve a model. It may load the model afterwards.
const NOT_SERVED_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of models per endpoint that are known not to be served.
const MAX_NOT_SERVED: usize = 256;

/// Time for which a scrape shows that an engine sleeps.
const SLEEP_TIMEOUT: Duration = Duration::from_secs(15);

/// What happened to a request that was sent to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// The engine responded with this status.
    Responded(StatusCode),
    /// No connection was established.
    NotConnected,
    /// The connection failed before the end of the response, or the engine did not respond in time.
    Failed,
}

/// A change of whether requests are sent to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthChange {
    /// Requests are sent to other endpoints for this time.
    Ejected(Duration),
    /// The endpoint has responded after an ejection.
    Recovered,
}

/// Health of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct EndpointHealth {
    /// Whether `state` differs from its default. Nearly all endpoints are healthy, and need no lock.
    is_impaired: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    consecutive_failures: u32,
    /// Number of ejections since the last response, and the end of the last one.
    ejections: u32,
    ejected_until: Option<Instant>,
    /// Whether a request was sent after the ejection, until which others wait for it.
    is_probing: bool,
    asleep_until: Option<Instant>,
    /// Hashes of models and paths that the engine does not serve, with the end of this knowledge.
    not_served: BTreeMap<u64, Instant>,
}

// === impl RequestOutcome ===

impl RequestOutcome {
    /// Returns whether the outcome of a request to a decoder may be that of its prefiller: the decoder was reached, and neither
    /// rejected the request nor lacks the model.
    pub(crate) fn concerns_prefiller(self) -> bool {
        match self {
            Self::Responded(status) => status.is_success() || status.is_server_error(),
            Self::NotConnected => false,
            Self::Failed => true,
        }
    }
}

// === impl EndpointHealth ===

impl EndpointHealth {
    /// Returns whether requests may be sent to the endpoint: it is not ejected.
    pub(crate) fn is_available(&self, now: Instant) -> bool {
        !self.is_impaired.load(Relaxed) || self.lock().ejected_until.is_none_or(|until| until <= now)
    }

    /// Returns for how long no requests are sent to the endpoint because earlier ones failed.
    pub(crate) fn ejection(&self, now: Instant) -> Option<Duration> {
        self.lock().ejected_until?.checked_duration_since(now).filter(|remaining| !remaining.is_zero())
    }

    /// Returns the number of failures since the last response.
    pub(crate) fn consecutive_failures(&self) -> u32 {
        self.lock().consecutive_failures
    }

    /// Returns whether the engine sleeps according to the last scrape. It accepts requests and does not respond.
    pub(crate) fn is_asleep(&self, now: Instant) -> bool {
        self.is_impaired.load(Relaxed) && self.lock().asleep_until.is_some_and(|until| now < until)
    }

    /// Returns whether the engine may serve `model`: a hash of model and path.
    pub(crate) fn may_serve(&self, model: u64, now: Instant) -> bool {
        !self.is_impaired.load(Relaxed) || self.lock().not_served.get(&model).is_none_or(|until| *until <= now)
    }

    /// Records that a request is sent to the endpoint. After an ejection, this request is a probe: others follow if it
    /// succeeds, or after [`PROBE_INTERVAL`].
    pub(crate) fn record_request(&self, now: Instant) {
        if !self.is_impaired.load(Relaxed) {
            return;
        }
        let mut state = self.lock();
        if state.ejected_until.is_some_and(|until| until <= now) {
            (state.ejected_until, state.is_probing) = (now.checked_add(PROBE_INTERVAL), true);
        }
    }

    /// Records what happened to a request for `model`: a hash of model and path.
    pub(crate) fn record_outcome(&self, outcome: RequestOutcome, model: u64, now: Instant) -> Option<HealthChange> {
        let is_failure = match outcome {
            RequestOutcome::Responded(status) => status.is_server_error(),
            RequestOutcome::NotConnected | RequestOutcome::Failed => true,
        };
        let is_not_served = outcome == RequestOutcome::Responded(StatusCode::NOT_FOUND);
        if !is_failure && !is_not_served && !self.is_impaired.load(Relaxed) {
            return None;
        }
        let mut state = self.lock();
        if is_not_served {
            state.record_not_served(model, now);
        } else if !is_failure {
            state.not_served.remove(&model);
        }
        let change = match is_failure {
            true => state.record_failure(outcome, now),
            false => state.record_response(),
        };
        self.is_impaired.store(state.is_impaired(), Relaxed);
        change
    }

    /// Records whether the engine sleeps.
    pub(crate) fn record_sleep(&self, is_asleep: bool, now: Instant) {
        if !is_asleep && !self.is_impaired.load(Relaxed) {
            return;
        }
        let mut state = self.lock();
        state.asleep_until = now.checked_add(SLEEP_TIMEOUT).filter(|_| is_asleep);
        self.is_impaired.store(state.is_impaired(), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn is_impaired(&self) -> bool {
        self.consecutive_failures > 0
            || self.ejected_until.is_some()
            || self.asleep_until.is_some()
            || !self.not_served.is_empty()
    }

    fn record_response(&mut self) -> Option<HealthChange> {
        (self.consecutive_failures, self.ejections, self.is_probing) = (0, 0, false);
        self.ejected_until.take().map(|_| HealthChange::Recovered)
    }

    fn record_failure(&mut self, outcome: RequestOutcome, now: Instant) -> Option<HealthChange> {
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        let is_ejected = self.is_probing
            || self.consecutive_failures >= FAILURE_THRESHOLD
            || outcome == RequestOutcome::NotConnected;
        // Requests that were sent before an ejection do not extend it.
        let is_known = !self.is_probing && self.ejected_until.is_some_and(|until| now < until);
        if !is_ejected || is_known {
            return None;
        }
        let ejection = MIN_EJECTION.saturating_mul(2_u32.saturating_pow(self.ejections)).min(MAX_EJECTION);
        self.ejections = self.ejections.saturating_add(1);
        (self.ejected_until, self.is_probing) = (now.checked_add(ejection), false);
        Some(HealthChange::Ejected(ejection))
    }

    fn record_not_served(&mut self, model: u64, now: Instant) {
        self.not_served.retain(|_, until| now < *until);
        if self.not_served.len() < MAX_NOT_SERVED {
            self.not_served.insert(model, now.checked_add(NOT_SERVED_TIMEOUT).unwrap_or(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const OK: RequestOutcome = RequestOutcome::Responded(StatusCode::OK);
    const ERROR: RequestOutcome = RequestOutcome::Responded(StatusCode::INTERNAL_SERVER_ERROR);
    const NOT_FOUND: RequestOutcome = RequestOutcome::Responded(StatusCode::NOT_FOUND);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[rstest]
    #[case::not_connected(&[RequestOutcome::NotConnected], false)]
    #[case::first_failure(&[RequestOutcome::Failed], true)]
    #[case::failures(&[RequestOutcome::Failed, ERROR, RequestOutcome::Failed], false)]
    #[case::response_between(&[ERROR, ERROR, OK, ERROR, ERROR], true)]
    #[case::client_errors(&[RequestOutcome::Responded(StatusCode::BAD_REQUEST); 9], true)]
    fn failures_eject_an_endpoint(#[case] outcomes: &[RequestOutcome], #[case] is_available: bool) {
        let (health, now) = (EndpointHealth::default(), Instant::now());
        for outcome in outcomes {
            health.record_outcome(*outcome, 0, now);
        }
        assert_eq!(health.is_available(now), is_available);
        assert!(health.is_available(now + MAX_EJECTION));
    }

    #[test]
    fn one_request_at_a_time_probes_an_ejected_endpoint() {
        let (health, mut now) = (EndpointHealth::default(), Instant::now());
        let fail = |now| health.record_outcome(RequestOutcome::NotConnected, 0, now);
        for ejection in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(fail(now), Some(HealthChange::Ejected(seconds(ejection))));
            assert_eq!(fail(now), None, "sent before the ejection");
            assert!(!health.is_available(now + seconds(ejection) - Duration::from_millis(1)));
            now += seconds(ejection);
            assert!(health.is_available(now));
            health.record_request(now);
            assert!(!health.is_available(now), "others wait for the probe");
        }
        now += PROBE_INTERVAL;
        assert!(health.is_available(now), "the probe takes long");
        health.record_request(now);
        assert_eq!(health.record_outcome(OK, 0, now), Some(HealthChange::Recovered));
        assert!(health.is_available(now) && !health.is_impaired.load(Relaxed));
        assert_eq!(fail(now), Some(HealthChange::Ejected(seconds(1))));
    }

    #[test]
    fn model_that_is_not_served_is_known_for_a_while() {
        let (health, now) = (EndpointHealth::default(), Instant::now());
        assert_eq!(health.record_outcome(NOT_FOUND, 7, now), None);
        let may_serve = |after| [7, 8].map(|model| health.may_serve(model, now + after));
        assert_eq!((may_serve(seconds(59)), may_serve(seconds(60))), ([false, true], [true, true]));
        health.record_outcome(OK, 8, now);
        assert_eq!(may_serve(seconds(0)), [false, true]);
        health.record_outcome(OK, 7, now);
        assert_eq!(may_serve(seconds(0)), [true, true], "it has loaded the model");
        for model in 0..2 * MAX_NOT_SERVED as u64 {
            health.record_outcome(NOT_FOUND, model, now);
        }
        assert_eq!(health.lock().not_served.len(), MAX_NOT_SERVED);
    }

    #[test]
    fn sleep_is_known_until_the_engine_wakes_up_or_cannot_be_scraped() {
        let (health, now) = (EndpointHealth::default(), Instant::now());
        health.record_sleep(true, now);
        assert!(health.is_asleep(now) && health.is_asleep(now + seconds(14)) && health.is_available(now));
        assert!(!health.is_asleep(now + SLEEP_TIMEOUT));
        health.record_sleep(false, now);
        assert!(!health.is_asleep(now) && !health.is_impaired.load(Relaxed));
    }
}
