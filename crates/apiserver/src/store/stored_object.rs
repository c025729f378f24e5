//! One version of an object: its JSON text, and its parsed value while it is in use.
//!
//! A parsed JSON value needs about ten times the memory of its text, and most objects are only sent to clients. The
//! text is encoded once and then used for the response to the writer and for every list and watch. Parsed values are
//! kept only for resources that the controllers of this process read frequently.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use apimachinery::object;
use bytes::Bytes;
use serde_json::Value;

use super::json_text;

/// One version of an object.
#[derive(Debug)]
pub(crate) struct StoredObject {
    text: Bytes,
    /// Offset of the members after `apiVersion` and `kind`.
    body_offset: usize,
    value: Mutex<CachedValue>,
}

/// A new version of an object, encoded before its revision is assigned: encoding a large object takes so long that it must
/// not be done under the lock of the store.
#[derive(Debug)]
pub(super) struct UnversionedObject {
    value: Value,
    text: EncodedText,
    /// Revision that `text` contains.
    expected_revision: u64,
}

/// JSON text of an object.
#[derive(Debug)]
struct EncodedText {
    json: Vec<u8>,
    /// Offset of the members after `apiVersion` and `kind`.
    body_offset: usize,
    /// Position of the value of `metadata.resourceVersion`, with quotes.
    resource_version: Option<Range<usize>>,
}

/// The parsed value of an object.
#[derive(Debug)]
enum CachedValue {
    /// Always in memory.
    Pinned(Arc<Value>),
    /// Not kept alive by the store: if all users have dropped the value, it is parsed from the text again.
    Weak(Weak<Value>),
}

#[cfg(test)]
thread_local! {
    /// Number of times that this thread has read an object.
    pub(crate) static READ_COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

// === impl StoredObject ===

impl StoredObject {
    /// Encodes `object`. Shares the parsed value with the caller for as long as the caller keeps it alive.
    #[must_use]
    pub(crate) fn new(object: &Arc<Value>) -> Self {
        Self::with_text(object, EncodedText::new(object))
    }

    fn with_text(object: &Arc<Value>, text: EncodedText) -> Self {
        let EncodedText { json, body_offset, .. } = text;
        Self { text: Bytes::from(json), body_offset, value: Mutex::new(CachedValue::Weak(Arc::downgrade(object))) }
    }

    fn cached_value(&self) -> MutexGuard<'_, CachedValue> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the parsed object. Concurrent callers share one value.
    #[must_use]
    pub(crate) fn value(&self) -> Arc<Value> {
        #[cfg(test)]
        READ_COUNT.with(|count| count.set(count.get() + 1));
        let mut cached = self.cached_value();
        if let Some(value) = cached.get() {
            return value;
        }
        let parsed = serde_json::from_slice(&self.text).unwrap_or_else(|error| {
            tracing::error!(%error, "failed to parse a stored object");
            Value::Null
        });
        let value = Arc::new(parsed);
        *cached = CachedValue::Weak(Arc::downgrade(&value));
        value
    }

    /// Whether `value` is the parsed value of this version, compared by address.
    #[must_use]
    pub(crate) fn is_same(&self, value: &Arc<Value>) -> bool {
        self.cached_value().get().is_some_and(|own| Arc::ptr_eq(&own, value))
    }

    /// Keeps the parsed value in memory until [`Self::unpin`].
    pub(crate) fn pin(&self) {
        let value = self.value();
        let mut cached = self.cached_value();
        if let CachedValue::Weak(_) = *cached {
            *cached = CachedValue::Pinned(value);
        }
    }

    /// Stops keeping the parsed value in memory.
    pub(crate) fn unpin(&self) {
        let mut cached = self.cached_value();
        if let CachedValue::Pinned(value) = &*cached {
            *cached = CachedValue::Weak(Arc::downgrade(value));
        }
    }

    /// Returns the object as JSON.
    #[must_use]
    pub(crate) fn json(&self) -> &[u8] {
        &self.text
    }

    /// Returns the shared buffer of the JSON text.
    #[must_use]
    pub(crate) fn json_bytes(&self) -> Bytes {
        self.text.clone()
    }

    /// Returns the JSON text after `apiVersion` and `kind`: the other members and the closing brace.
    #[must_use]
    pub(crate) fn body_after_type_meta(&self) -> &[u8] {
        self.text.get(self.body_offset..).unwrap_or_default()
    }
}

// === impl CachedValue ===

impl CachedValue {
    fn get(&self) -> Option<Arc<Value>> {
        match self {
            Self::Pinned(value) => Some(Arc::clone(value)),
            Self::Weak(value) => value.upgrade(),
        }
    }
}

// === impl UnversionedObject ===

impl UnversionedObject {
    /// Encodes an object that will probably get the revision `expected_revision`.
    pub(super) fn new(mut value: Value, expected_revision: u64) -> Self {
        object::set_resource_version(&mut value, expected_revision);
        let text = EncodedText::new(&value);
        Self { value, text, expected_revision }
    }

    /// Returns the size of the JSON text in bytes.
    pub(super) fn size(&self) -> usize {
        self.text.json.len()
    }

    /// Returns the object with its revision, encoded and parsed.
    pub(super) fn into_stored(mut self, revision: u64) -> (StoredObject, Arc<Value>) {
        if revision != self.expected_revision {
            object::set_resource_version(&mut self.value, revision);
            match self.text.resource_version.clone() {
                Some(position) => drop(self.text.json.splice(position, format!("\"{revision}\"").into_bytes())),
                None => self.text = EncodedText::new(&self.value),
            }
        }
        let value = Arc::new(self.value);
        (StoredObject::with_text(&value, self.text), value)
    }
}

// === impl EncodedText ===

impl EncodedText {
    /// Encodes an object with `apiVersion` and `kind` first.
    fn new(object: &Value) -> Self {
        const TYPE_META: [&str; 2] = ["apiVersion", "kind"];
        let mut text = Self { json: Vec::new(), body_offset: 0, resource_version: None };
        let Some(members) = object.as_object() else {
            json_text::write_value(&mut text.json, object);
            return text;
        };
        text.json.reserve_exact(encoded_length(object));
        text.json.push(b'{');
        for name in TYPE_META {
            if let Some(value) = members.get(name) {
                text.write_member(name, |text| json_text::write_value(&mut text.json, value));
            }
        }
        text.body_offset = text.json.len();
        for (name, value) in members.iter().filter(|(name, _)| !TYPE_META.contains(&name.as_str())) {
            match value {
                Value::Object(metadata) if name == "metadata" => {
                    text.write_member(name, |text| text.write_metadata(metadata));
                }
                _ => text.write_member(name, |text| json_text::write_value(&mut text.json, value)),
            }
        }
        text.end_object();
        text.body_offset = text.body_offset.min(text.json.len() - 1);
        text.json.shrink_to_fit();
        text
    }

    fn write_metadata(&mut self, metadata: &serde_json::Map<String, Value>) {
        self.json.push(b'{');
        for (name, value) in metadata {
            self.write_member(name, |text| {
                let start = text.json.len();
                json_text::write_value(&mut text.json, value);
                if name == "resourceVersion" {
                    text.resource_version = Some(start..text.json.len());
                }
            });
        }
        self.end_object();
    }

    fn write_member(&mut self, name: &str, write_value: impl FnOnce(&mut Self)) {
        json_text::write_string(&mut self.json, name);
        self.json.push(b':');
        write_value(self);
        self.json.push(b',');
    }

    /// Replaces the comma after the last member.
    fn end_object(&mut self) {
        if self.json.last() == Some(&b',') {
            self.json.pop();
        }
        self.json.push(b'}');
    }
}

/// Returns about the length of the JSON text of a value: strings may have to be escaped.
fn encoded_length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 3,
        Value::Array(items) => items.iter().map(encoded_length).sum::<usize>() + 3,
        Value::Object(members) => {
            members.iter().map(|(name, value)| name.len() + 3 + encoded_length(value)).sum::<usize>() + 3
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 6,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::usual(json!({"a": 1, "apiVersion": "v1", "kind": "K", "metadata": {"name": "x"}}), r#""a":1,"metadata":{"name":"x"}}"#)]
    #[case::without_kind(json!({"metadata": {}}), r#""metadata":{}}"#)]
    #[case::only_type_meta(json!({"apiVersion": "v1", "kind": "K"}), "}")]
    #[case::empty(json!({}), "}")]
    fn encodes_object_and_body_without_type_meta(#[case] object: Value, #[case] body: &str) {
        let stored = StoredObject::new(&Arc::new(object.clone()));
        assert_eq!(serde_json::from_slice::<Value>(stored.json()).unwrap(), object);
        assert_eq!(std::str::from_utf8(stored.body_after_type_meta()).unwrap(), body);
    }

    proptest! {
        /// Numbers keep all their digits when an object is stored and parsed again, as after a restart.
        #[test]
        fn numbers_round_trip(number in proptest::num::f64::NORMAL) {
            let text = json!({"spec": {"n": number}}).to_string();
            let object: Value = serde_json::from_str(&text).unwrap();
            let stored = StoredObject::new(&Arc::new(object.clone()));
            prop_assert_eq!(&object["spec"]["n"], &json!(number));
            prop_assert_eq!(std::str::from_utf8(stored.json()).unwrap(), text);
        }
    }

    /// A concurrent write may take the expected revision.
    #[rstest]
    #[case::expected(9)]
    #[case::more_digits(10)]
    #[case::same_digits(8)]
    fn encodes_the_assigned_revision(#[case] revision: u64) {
        let members = [json!({}), json!({"data": {"resourceVersion": "1"}, "metadata": {"name": "x", "uid": "u"}})];
        for object in members {
            let (stored, value) = UnversionedObject::new(object.clone(), 9).into_stored(revision);
            let mut expected = object;
            object::set_resource_version(&mut expected, revision);
            assert_eq!((std::str::from_utf8(stored.json()).unwrap(), &*value), (&*expected.to_string(), &expected));
            assert!(stored.is_same(&value));
        }
    }

    #[test]
    fn value_is_shared_while_in_use() {
        let first = Arc::new(json!({"metadata": {"name": "x"}}));
        let stored = StoredObject::new(&first);
        assert!(stored.is_same(&first) && Arc::ptr_eq(&stored.value(), &first));
        let copy = Arc::new((*first).clone());
        drop(first);
        assert!(!stored.is_same(&copy));
        let parsed = stored.value();
        assert_eq!(parsed, copy);
        assert!(stored.is_same(&parsed) && !stored.is_same(&copy));
    }

    #[test]
    fn pinned_value_stays_in_memory() {
        let stored = StoredObject::new(&Arc::new(json!({"a": 1})));
        stored.pin();
        let address = Arc::as_ptr(&stored.value());
        assert_eq!(Arc::as_ptr(&stored.value()), address);
        let weak = Arc::downgrade(&stored.value());
        stored.unpin();
        assert!(weak.upgrade().is_none());
    }

    proptest! {
        #[test]
        fn strings_round_trip(name in ".*", value in ".*") {
            let object = json!({"kind": "K", name: value});
            let stored = StoredObject::new(&Arc::new(object.clone()));
            prop_assert_eq!(&*stored.value(), &object);
        }
    }
}
