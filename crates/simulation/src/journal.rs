//! What happened in a run, in order.

use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What an entry of a journal records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A model acted.
    Injection,
    /// The API server responded to a request.
    Request,
    /// A fault changed the response to a request.
    Fault,
}

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Virtual time since the start of the run.
    pub at: Duration,
    /// What the entry records.
    pub kind: EntryKind,
    /// The model or process that acted.
    pub actor: String,
    /// What it did.
    pub text: String,
}

/// What happened in a run. Clones share their entries. The alternate format (`{:#}`) includes reads without a fault.
#[derive(Clone, Debug)]
pub struct Journal {
    start: Instant,
    entries: Arc<Mutex<Vec<Entry>>>,
}

// === impl Journal ===

impl Journal {
    /// Returns an empty journal of a run that starts now.
    pub(crate) fn start() -> Self {
        Self { start: Instant::now(), entries: Arc::default() }
    }

    /// Appends an entry.
    pub fn record(&self, kind: EntryKind, actor: &str, text: impl Into<String>) {
        let entry = Entry { at: self.start.elapsed(), kind, actor: actor.to_owned(), text: text.into() };
        self.entries().push(entry);
    }

    /// Returns the number of entries of a kind.
    #[must_use]
    pub fn count(&self, kind: EntryKind) -> usize {
        self.entries().iter().filter(|entry| entry.kind == kind).count()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Display for Journal {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let is_complete = formatter.alternate();
        for entry in self.entries().iter().filter(|entry| is_complete || entry.is_relevant()) {
            let marker = match entry.kind {
                EntryKind::Injection => '*',
                EntryKind::Request => ' ',
                EntryKind::Fault => '!',
            };
            writeln!(formatter, "{:>10.3} s {marker} {}: {}", entry.at.as_secs_f64(), entry.actor, entry.text)?;
        }
        Ok(())
    }
}

// === impl Entry ===

impl Entry {
    /// Returns whether a reader needs the entry to understand a failure: reads and renewals of the Lease are noise.
    fn is_relevant(&self) -> bool {
        self.kind != EntryKind::Request || !(self.text.starts_with("GET") || self.text.contains("/leases"))
    }
}
