//! The most recent changes of instances, for clients that watch.

use std::collections::VecDeque;

use bytes::Bytes;

/// Maximum number of events, that of the deployed launcher.
const MAX_EVENTS: usize = 1000;
/// Maximum size of the events in bytes.
const MAX_BYTES: usize = 2 << 20;

/// Recent events, one for each revision.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Revision of the last event; 0 before the first.
    revision: u64,
    /// Serialized events, the last one with `revision`.
    events: VecDeque<Bytes>,
    bytes: usize,
}

// === impl History ===

impl History {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the first revision from which a client can watch: the events after it are present.
    pub(super) fn oldest(&self) -> u64 {
        self.revision - u64::try_from(self.events.len()).unwrap_or(self.revision)
    }

    /// Appends the event of the next revision, and drops the oldest ones beyond the limits.
    pub(super) fn push(&mut self, event: Bytes) {
        self.revision += 1;
        self.bytes += event.len();
        self.events.push_back(event);
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            match self.events.pop_front() {
                Some(oldest) => self.bytes -= oldest.len(),
                None => break,
            }
        }
    }

    /// Returns the events after `revision`, or `None` if some of them were dropped, or the revision is not one of this history.
    pub(super) fn after(&self, revision: u64) -> Option<impl Iterator<Item = &Bytes>> {
        if revision > self.revision {
            return None;
        }
        let skipped = usize::try_from(revision.checked_sub(self.oldest())?).ok()?;
        Some(self.events.iter().skip(skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(history: &History, revision: u64) -> Option<Vec<&[u8]>> {
        history.after(revision).map(|events| events.map(Bytes::as_ref).collect())
    }

    #[test]
    fn events_after_a_revision() {
        let mut history = History::default();
        assert_eq!(after(&history, 0), Some(vec![]));
        for event in ["a", "b", "c"] {
            history.push(Bytes::from(event));
        }
        assert_eq!(after(&history, 0), Some(vec![&b"a"[..], b"b", b"c"]));
        assert_eq!(after(&history, 2), Some(vec![&b"c"[..]]));
        assert_eq!(after(&history, 3), Some(vec![]));
        assert_eq!(after(&history, 4), None, "the revision of a launcher that ran before");
    }

    #[test]
    fn number_and_size_are_limited() {
        let mut history = History::default();
        (0..=MAX_EVENTS).for_each(|_| history.push(Bytes::from("a")));
        assert_eq!((history.oldest(), after(&history, 0)), (1, None));
        let half = Bytes::from(vec![b'x'; MAX_BYTES / 2]);
        (0..3).for_each(|_| history.push(half.clone()));
        assert_eq!(history.revision() - history.oldest(), 2);
    }
}
