//! Wishes that the API server fills in where only it can know what with.
//!
//! A field that a live object has and a wish lacks, inside a value owned as a whole, is a default or a remainder. Having
//! sent the wish once we know: what is still there afterwards is the server's.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::object::meta;

/// Objects remembered at most; beyond it all are forgotten, and each costs one request that changes nothing.
const MOST: usize = 100_000;

/// The last wish for each object that came back with more than was wished, by UID.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answered(Arc<Mutex<BTreeMap<String, u64>>>);

// === impl Answered ===

impl Answered {
    /// Keeps that `live` is what the server makes of `wish`.
    pub(crate) fn remember(&self, live: &Value, wish: &Value) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(meta(live, "uid").to_owned(), digest(wish));
    }

    /// Whether `wish` is the one that was last sent for `live`.
    pub(crate) fn knows(&self, live: &Value, wish: &Value) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(meta(live, "uid")) == Some(&digest(wish))
    }
}

/// Metadata holds no value that is owned as a whole.
fn digest(wish: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (name, value) in wish.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata") {
        (name, value.to_string()).hash(&mut hasher);
    }
    hasher.finish()
}
