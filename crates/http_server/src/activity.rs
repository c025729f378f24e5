//! Requests of a connection: HTTP/2 connections stay open unless the server closes idle ones, and clients may end their half of an
//! HTTP/1 connection after a request.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http::Version;
use tokio::time::{Instant, sleep};

/// Tracks the active requests of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    has_received_request: AtomicBool,
    active_requests: AtomicUsize,
    last_active: Mutex<Instant>,
    /// A [`RequestPhase`].
    phase: AtomicU8,
    /// Whether the client of the last request accepts interim responses.
    accepts_interim_responses: AtomicBool,
    /// Number of responses, and of parts of their bodies, that the service has returned.
    output: AtomicUsize,
}

/// Phase of the request of an HTTP/1 connection, which has at most one. Requests of HTTP/2 are in the first phase only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestPhase {
    /// There is no request, or a part of it is missing.
    Receiving,
    /// The request is complete, and the service has not responded.
    Received,
    /// The response is incomplete.
    Responding,
}

/// Records that the request of a connection was received completely. From then on, the connection is checked for a client that closes
/// it.
#[derive(Clone, Debug)]
pub struct RequestProgress(Arc<ConnectionActivity>);

/// Guard that counts a request as active; dropped when its response is sent or its client disconnects.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    activity: Arc<ConnectionActivity>,
    /// Whether it is the only request of its connection.
    is_http1: bool,
}

// === impl ConnectionActivity ===

impl ConnectionActivity {
    /// Returns the activity of a new connection.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            has_received_request: AtomicBool::new(false),
            active_requests: AtomicUsize::new(0),
            last_active: Mutex::new(Instant::now()),
            phase: AtomicU8::new(RequestPhase::Receiving as u8),
            accepts_interim_responses: AtomicBool::new(false),
            output: AtomicUsize::new(0),
        })
    }

    /// Counts a request as active until the returned guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>, version: Version) -> ActiveRequest {
        self.has_received_request.store(true, Relaxed);
        self.active_requests.fetch_add(1, Relaxed);
        self.accepts_interim_responses.store(version == Version::HTTP_11, Relaxed);
        ActiveRequest { activity: Arc::clone(self), is_http1: version <= Version::HTTP_11 }
    }

    /// Returns the phase of the request.
    pub(crate) fn phase(&self) -> RequestPhase {
        match self.phase.load(Relaxed) {
            phase if phase == RequestPhase::Received as u8 => RequestPhase::Received,
            phase if phase == RequestPhase::Responding as u8 => RequestPhase::Responding,
            _ => RequestPhase::Receiving,
        }
    }

    /// Returns whether the client of the last request accepts interim responses.
    pub(crate) fn accepts_interim_responses(&self) -> bool {
        self.accepts_interim_responses.load(Relaxed)
    }

    fn set_phase(&self, phase: RequestPhase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// Returns a number that changes whenever the service returns a response or a part of one.
    pub(crate) fn output(&self) -> usize {
        self.output.load(Relaxed)
    }

    /// Returns whether a request has begun.
    pub(crate) fn has_received_request(&self) -> bool {
        self.has_received_request.load(Relaxed)
    }

    /// Waits until no request has been active for `limit`.
    pub(crate) async fn wait_until_idle(&self, limit: Duration) {
        loop {
            let idle =
                if self.active_requests.load(Relaxed) > 0 { Duration::ZERO } else { self.last_active().elapsed() };
            match limit.saturating_sub(idle) {
                Duration::ZERO => return,
                remaining => sleep(remaining).await,
            }
        }
    }

    fn last_active(&self) -> Instant {
        *self.last_active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ActiveRequest ===

impl ActiveRequest {
    /// Returns what records that the request was received completely, if that matters for its version of HTTP.
    pub(crate) fn progress(&self) -> Option<RequestProgress> {
        self.is_http1.then(|| RequestProgress(Arc::clone(&self.activity)))
    }

    /// Records that the service has responded.
    pub(crate) fn record_response(&self) {
        if self.is_http1 {
            self.activity.set_phase(RequestPhase::Responding);
        }
        self.record_output();
    }

    /// Records that the service returns a part of the response.
    pub(crate) fn record_output(&self) {
        self.activity.output.fetch_add(1, Relaxed);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        *self.activity.last_active.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.activity.set_phase(RequestPhase::Receiving);
        self.activity.active_requests.fetch_sub(1, Relaxed);
    }
}

// === impl RequestProgress ===

impl RequestProgress {
    /// Records that the request was received completely. Has no effect once the service has responded.
    pub fn record_received(&self) {
        let (receiving, received) = (RequestPhase::Receiving as u8, RequestPhase::Received as u8);
        self.0.phase.compare_exchange(receiving, received, Relaxed, Relaxed).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn idle_time_begins_at_the_end_of_the_last_request() {
        let (activity, start) = (ConnectionActivity::new(), Instant::now());
        let requests = (activity.begin_request(Version::HTTP_2), activity.begin_request(Version::HTTP_2));
        let end_requests = async {
            sleep(Duration::from_secs(100)).await;
            drop(requests.0);
            sleep(Duration::from_secs(50)).await;
            drop(requests.1);
        };
        tokio::join!(activity.wait_until_idle(LIMIT), end_requests);
        assert!(start.elapsed() >= Duration::from_secs(210), "{:?}", start.elapsed());
    }
}
