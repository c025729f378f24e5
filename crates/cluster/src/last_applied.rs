//! Stores the last applied configuration of objects to which the API server added fields.
//!
//! `managedFields` tracks an atomic value as a whole. If the live object has a field inside such a value that the
//! applied configuration lacks, the field is either a server default or left over from an earlier apply. After an apply
//! of the same configuration it must be a server default.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::object::metadata_field;

/// Maximum number of stored objects. When it is reached, all entries are dropped; each object then costs one no-op apply.
const MAX_ENTRIES: usize = 100_000;

/// Digests of the last applied configurations by UID, for objects that have more fields than were applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastApplied(Arc<Mutex<BTreeMap<String, u64>>>);

// === impl LastApplied ===

impl LastApplied {
    /// Records that applying `desired` resulted in `live`.
    pub(crate) fn record(&self, live: &Value, desired: &Value) {
        let mut digests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if digests.len() >= MAX_ENTRIES {
            digests.clear();
        }
        digests.insert(metadata_field(live, "uid").to_owned(), digest(desired));
    }

    /// Returns whether `desired` is the configuration last applied to `live`.
    pub(crate) fn contains(&self, live: &Value, desired: &Value) -> bool {
        let digests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        digests.get(metadata_field(live, "uid")) == Some(&digest(desired))
    }
}

/// Hashes everything except metadata, which contains no atomic values.
fn digest(desired: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (name, value) in desired.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata") {
        (name, value.to_string()).hash(&mut hasher);
    }
    hasher.finish()
}
