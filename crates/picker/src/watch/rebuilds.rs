//! When the pools are built again from all objects.

use tokio::time::Instant;

/// Plans rebuilds so that they take at most half of the time. A list of thousands of pools arrives as thousands of changes, and with as
/// many Pods a rebuild takes longer than the next changes need to arrive.
#[derive(Debug)]
pub(super) struct Rebuilds {
    is_requested: bool,
    /// Earliest time of the next rebuild.
    not_before: Instant,
}

// === impl Rebuilds ===

impl Rebuilds {
    pub(super) fn new(is_requested: bool) -> Self {
        Self { is_requested, not_before: Instant::now() }
    }

    pub(super) fn request(&mut self) {
        self.is_requested = true;
    }

    /// Returns when the pools are to be built again; `None` if nothing requires it.
    pub(super) fn due(&self) -> Option<Instant> {
        self.is_requested.then_some(self.not_before)
    }

    /// Records that the rebuild that began at `start` is complete.
    pub(super) fn complete(&mut self, start: Instant) {
        let now = Instant::now();
        *self = Self { is_requested: false, not_before: now + now.duration_since(start) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn next_rebuild_waits_as_long_as_the_last_one_took() {
        let mut rebuilds = Rebuilds::new(false);
        assert_eq!(rebuilds.due(), None);
        rebuilds.request();
        let start = Instant::now();
        assert_eq!(rebuilds.due(), Some(start));
        tokio::time::advance(Duration::from_secs(2)).await;
        rebuilds.complete(start);
        assert_eq!(rebuilds.due(), None);
        rebuilds.request();
        assert_eq!(rebuilds.due(), Some(start + Duration::from_secs(4)));
    }
}
