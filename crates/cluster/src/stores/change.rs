//! What a watch event changed, told in key order.

use std::sync::Arc;

use serde_json::Value;

use super::Key;
use crate::Kind;
use crate::kept::Kept;

/// What happened to a store.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The first list of this kind is complete.
    Synced(Kind),
    /// An object came, changed or went; at least one of `old` and `new` is there.
    Object {
        /// Its kind.
        kind: Kind,
        /// Its key.
        key: Key,
        /// Content before.
        old: Option<Arc<Value>>,
        /// Content now.
        new: Option<Arc<Value>>,
    },
}

/// What one event changed, in key order. A change of an object becomes trees when it is asked for: those of a long list are
/// not all there at once.
#[derive(Debug)]
pub struct Changes(std::vec::IntoIter<Noted>);

/// A change as it is kept until it is told.
#[derive(Debug)]
pub(super) enum Noted {
    Synced(Kind),
    Object {
        kind: Kind,
        key: Key,
        old: Option<Kept>,
        new: Option<Kept>,
        /// Trees that are there anyway.
        held: Vec<Arc<Value>>,
    },
}

// === impl Changes ===

impl From<Vec<Noted>> for Changes {
    fn from(noted: Vec<Noted>) -> Self {
        Changes(noted.into_iter())
    }
}

impl Iterator for Changes {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        let told = match self.0.next()? {
            Noted::Synced(kind) => Change::Synced(kind),
            Noted::Object { kind, key, old, new, held: _held } => {
                let tree = |kept: Option<Kept>| kept.map(|kept| kept.tree());
                Change::Object { kind, key, old: tree(old), new: tree(new) }
            }
        };
        Some(told)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Changes {}

// === impl Noted ===

impl Noted {
    pub(super) fn without_trees(mut self) -> Noted {
        if let Noted::Object { held, .. } = &mut self {
            held.clear();
        }
        self
    }
}
