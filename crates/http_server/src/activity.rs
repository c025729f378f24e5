//! Idle time of a connection: HTTP/2 connections stay open unless the server closes idle ones.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// Tracks the active requests of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    has_received_request: AtomicBool,
    active_requests: AtomicUsize,
    last_active: Mutex<Instant>,
}

/// Guard that counts a request as active; dropped when its response is sent or its client disconnects.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<ConnectionActivity>);

// === impl ConnectionActivity ===

impl ConnectionActivity {
    /// Returns the activity of a new connection.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            has_received_request: AtomicBool::new(false),
            active_requests: AtomicUsize::new(0),
            last_active: Mutex::new(Instant::now()),
        })
    }

    /// Counts a request as active until the returned guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        self.has_received_request.store(true, Relaxed);
        self.active_requests.fetch_add(1, Relaxed);
        ActiveRequest(Arc::clone(self))
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

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        *self.0.last_active.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.active_requests.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn idle_time_begins_at_the_end_of_the_last_request() {
        let (activity, start) = (ConnectionActivity::new(), Instant::now());
        let requests = (activity.begin_request(), activity.begin_request());
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
