//! Lists the members of a JSON document in document order and finds duplicates.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess};

use super::document_visitor::{DocumentVisitor, ValueVisitor};
use crate::api_types::field_path::FieldPath;

/// Member of a JSON object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// Field path, such as `data.k` or `spec.containers[0].name`.
    pub(super) path: String,
    /// Whether the same object has an earlier member with this name.
    pub(super) is_duplicate: bool,
}

/// Which members to collect.
#[derive(Clone, Copy, PartialEq)]
enum MemberFilter {
    /// Only duplicate members.
    Duplicates,
    /// All members.
    All,
}

/// Member name, borrowed unless it contains escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Collects the members below `path`.
struct MemberVisitor<'a> {
    path: &'a FieldPath<'a>,
    collected: &'a RefCell<Vec<Member>>,
    filter: MemberFilter,
}

/// Returns the paths of duplicate members in document order; empty for invalid JSON.
pub(super) fn duplicate_paths(bytes: &[u8]) -> Vec<String> {
    collect_members(bytes, MemberFilter::Duplicates).into_iter().map(|member| member.path).collect()
}

/// Returns all members in document order.
pub(super) fn members(bytes: &[u8]) -> Vec<Member> {
    collect_members(bytes, MemberFilter::All)
}

fn collect_members(bytes: &[u8], filter: MemberFilter) -> Vec<Member> {
    let collected = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    // Errors are ignored here, because decoding the object reports invalid JSON.
    let _ =
        ValueVisitor(MemberVisitor { path: &FieldPath::Root, collected: &collected, filter }).deserialize(&mut reader);
    collected.into_inner()
}

// === impl MemberVisitor ===

impl DocumentVisitor for MemberVisitor<'_> {
    fn map<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(Name(name)) = map.next_key()? {
            let path = FieldPath::Member(self.path, &name);
            let is_duplicate = seen.contains(&name);
            if is_duplicate || self.filter == MemberFilter::All {
                self.collected.borrow_mut().push(Member { path: path.to_string(), is_duplicate });
            }
            map.next_value_seed(ValueVisitor(MemberVisitor { path: &path, ..self }))?;
            seen.insert(name);
        }
        Ok(())
    }

    fn list<'de, A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            let path = FieldPath::Item(self.path, index);
            if items.next_element_seed(ValueVisitor(MemberVisitor { path: &path, ..self }))?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn duplicate_paths_name_repeated_members() {
        let text = br#"{"a": 1, "b": [{"c": 1, "c": {"d": null}}, true], "a": {"x": 1.5, "x": -2}}"#;
        assert_eq!(duplicate_paths(text), ["b[0].c", "a", "a.x"]);
        assert!(duplicate_paths(b"{\"a\": {\"b\": 1}, \"b\": 1}").is_empty());
        let all: Vec<String> = members(text).into_iter().map(|member| member.path).collect();
        assert_eq!(all, ["a", "b", "b[0].c", "b[0].c", "b[0].c.d", "a", "a.x", "a.x"]);
    }

    proptest! {
        #[test]
        fn accepts_arbitrary_bytes(bytes: Vec<u8>) {
            duplicate_paths(&bytes);
        }
    }
}
