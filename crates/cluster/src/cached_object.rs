//! A cached object: parsed JSON, or serialized JSON that is parsed on access.
//!
//! Parsed JSON takes about ten times the memory of its text. Kinds with thousands of objects that are accessed one by one
//! are cached as text.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::Value;

/// How the objects of a kind are cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePolicy {
    /// Representation of the objects in memory.
    pub representation: Representation,
    /// Labels with an index: objects are found by label value without scanning all objects.
    pub indexed_labels: &'static [&'static str],
    /// Which fields are cached.
    pub fields: CachedFields,
}

/// Which fields of Pods and Nodes are cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CachedFields {
    /// Those that most controllers read: without the environment and volumes of Pods, and the addresses and images of Nodes.
    #[default]
    Reduced,
    /// All but the managed fields of other managers.
    Whole,
}

/// Representation of a cached object in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Representation {
    /// Parsed JSON: for kinds with few objects, or whose objects are often listed.
    #[default]
    Parsed,
    /// JSON text: for kinds with many objects that are accessed one by one.
    Serialized,
}

/// One version of a cached object. Clones share the content.
#[derive(Clone, Debug)]
pub(crate) enum CachedObject {
    /// Parsed JSON.
    Parsed(Arc<Value>),
    /// JSON text.
    Serialized(Arc<SerializedObject>),
}

/// JSON text of an object, with its parsed form while a caller holds it.
#[derive(Debug)]
pub(crate) struct SerializedObject {
    text: Box<str>,
    /// The parsed object, available as long as a caller holds a reference to it.
    parsed: Mutex<Weak<Value>>,
}

// === impl CachedObject ===

impl CachedObject {
    pub(crate) fn new(representation: Representation, object: &Arc<Value>) -> CachedObject {
        match representation {
            Representation::Parsed => CachedObject::Parsed(Arc::clone(object)),
            Representation::Serialized => {
                let parsed = Mutex::new(Arc::downgrade(object));
                let text = object.to_string().into_boxed_str();
                CachedObject::Serialized(Arc::new(SerializedObject { text, parsed }))
            }
        }
    }

    /// Returns the parsed object. Concurrent callers share one copy of it.
    pub(crate) fn value(&self) -> Arc<Value> {
        match self {
            CachedObject::Parsed(value) => Arc::clone(value),
            CachedObject::Serialized(serialized) => serialized.value(),
        }
    }
}

/// `serde_json` sorts object keys, so equal objects have equal text.
impl PartialEq for CachedObject {
    fn eq(&self, other: &CachedObject) -> bool {
        match (self, other) {
            (CachedObject::Serialized(left), CachedObject::Serialized(right)) => left.text == right.text,
            _ => self.value() == other.value(),
        }
    }
}

// === impl SerializedObject ===

impl SerializedObject {
    fn value(&self) -> Arc<Value> {
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = parsed.upgrade() {
            return value;
        }
        let value = serde_json::from_str(&self.text).unwrap_or_else(|error| {
            tracing::error!(%error, "failed to parse a cached object");
            Value::Null
        });
        let value = Arc::new(value);
        *parsed = Arc::downgrade(&value);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn serialized_object_shares_parsed_value_while_it_is_held() {
        let object = Arc::new(json!({"b": [1, 2.5, null], "a": {"é": "\"\n"}}));
        let cached = CachedObject::new(Representation::Serialized, &object);
        assert!(Arc::ptr_eq(&cached.value(), &object));
        let weak = Arc::downgrade(&object);
        let copy = Value::clone(&object);
        drop(object);
        assert!(weak.upgrade().is_none());
        let parsed = cached.value();
        assert_eq!(*parsed, copy);
        assert!(Arc::ptr_eq(&cached.value(), &parsed));
    }

    #[test]
    fn equality_ignores_representation() {
        let [object, same] =
            [r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#].map(|text| Arc::new(serde_json::from_str(text).unwrap()));
        let other_object = Arc::new(json!({"a": 1}));
        for (left, right) in [
            (Representation::Serialized, Representation::Serialized),
            (Representation::Serialized, Representation::Parsed),
            (Representation::Parsed, Representation::Parsed),
        ] {
            assert_eq!(CachedObject::new(left, &object), CachedObject::new(right, &same));
            assert_ne!(CachedObject::new(left, &object), CachedObject::new(right, &other_object));
        }
    }
}
