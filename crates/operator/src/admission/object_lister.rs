//! Access of the validation rules to existing objects.

use std::sync::Arc;

use cluster::{Kind, Stores};
use serde_json::Value;

/// Lists existing objects.
pub trait ObjectLister {
    /// Returns all objects of a kind.
    fn list(&self, kind: Kind) -> Vec<Arc<Value>>;
}

impl ObjectLister for Stores {
    fn list(&self, kind: Kind) -> Vec<Arc<Value>> {
        Stores::list(self, kind)
    }
}
