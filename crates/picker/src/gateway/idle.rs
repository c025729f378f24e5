//! How long a connection has carried no request: HTTP/2 clients keep theirs open for ever unless somebody looks.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// Requests on one connection.
#[derive(Debug)]
pub(super) struct Idle {
    busy: AtomicUsize,
    since: Mutex<Instant>,
}

/// One request, until the last byte of its answer has left or its client has.
#[derive(Debug)]
pub(super) struct Busy(Arc<Idle>);

impl Idle {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { busy: AtomicUsize::new(0), since: Mutex::new(Instant::now()) })
    }

    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Relaxed);
        Busy(Arc::clone(self))
    }

    /// Returns once no request has run for `limit`.
    pub(super) async fn passed(&self, limit: Duration) {
        loop {
            let idle = if self.busy.load(Relaxed) > 0 { Duration::ZERO } else { self.since().elapsed() };
            match limit.saturating_sub(idle) {
                Duration::ZERO => return,
                left => sleep(left).await,
            }
        }
    }

    fn since(&self) -> Instant {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn idleness_begins_when_the_last_request_has_ended() {
        let (idle, begun) = (Idle::new(), Instant::now());
        let busy = (idle.begin(), idle.begin());
        let ending = async {
            sleep(Duration::from_secs(100)).await;
            drop(busy.0);
            sleep(Duration::from_secs(50)).await;
            drop(busy.1);
        };
        tokio::join!(idle.passed(LIMIT), ending);
        assert!(begun.elapsed() >= Duration::from_secs(210), "{:?}", begun.elapsed());
    }
}
