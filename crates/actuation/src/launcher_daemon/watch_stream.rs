//! The stream of changes of `GET /v2/vllm/instances/watch`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::watch;

use super::error::LauncherError;
use super::state::LauncherState;

/// Position of one client.
struct Watcher {
    state: Arc<LauncherState>,
    changes: watch::Receiver<u64>,
    /// Revision up to which events were read.
    revision: u64,
    /// Events that were read but not sent.
    pending: VecDeque<Bytes>,
}

/// Returns the events after the revision `since`, one JSON object per line; without it, first one event for each instance. The stream
/// ends if the client is so slow that events were dropped: it then lists the instances, and watches from the revision of the list.
///
/// # Errors
/// Events after `since` were dropped, or the revision is that of another launcher.
pub(super) fn watch_stream(
    state: Arc<LauncherState>,
    since: Option<u64>,
) -> Result<impl Stream<Item = Result<Bytes, Infallible>>, LauncherError> {
    let changes = state.watch_revision();
    let (revision, pending) = state.read(|table| {
        let pending = since.map_or_else(|| Ok(table.initial_events()), |since| table.events_after(since))?;
        Ok((table.revision(), VecDeque::from(pending)))
    })?;
    let watcher = Watcher { state, changes, revision, pending };
    Ok(futures::stream::unfold(watcher, |mut watcher| async {
        let event = watcher.next().await?;
        Some((Ok(event), watcher))
    }))
}

// === impl Watcher ===

impl Watcher {
    /// Waits for the next event; `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            self.changes.wait_for(|newest| *newest > self.revision).await.ok()?;
            let (revision, events) =
                self.state.read(|table| Some((table.revision(), table.events_after(self.revision).ok()?)))?;
            self.revision = revision;
            self.pending = VecDeque::from(events);
        }
    }
}
