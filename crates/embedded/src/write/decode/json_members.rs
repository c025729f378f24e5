//! The members of a JSON document in its order, and those that it gives twice; the last one counts.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess};

use super::walk::{Each, Walk};
use crate::types::place::Place;

/// A member, as `data.k` or `spec.containers[0].name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) path: String,
    /// Whether it was there before.
    pub(super) again: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Which {
    Doubled,
    All,
}

/// The paths of doubled members, in the order in which they come. None for what is no JSON.
pub(super) fn find(bytes: &[u8]) -> Vec<String> {
    read(bytes, Which::Doubled).into_iter().map(|member| member.path).collect()
}

/// Every member, in the order in which they come.
pub(super) fn members(bytes: &[u8]) -> Vec<Member> {
    read(bytes, Which::All)
}

fn read(bytes: &[u8], which: Which) -> Vec<Member> {
    let found = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    // What is no JSON has been refused by the reader of the object itself.
    let _ = Each(Inside { place: &Place::Top, found: &found, which }).deserialize(&mut reader);
    found.into_inner()
}

/// A name that is not copied where it stands in the text as it is.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

struct Inside<'a> {
    place: &'a Place<'a>,
    found: &'a RefCell<Vec<Member>>,
    which: Which,
}

impl Walk for Inside<'_> {
    fn map<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(Name(name)) = map.next_key()? {
            let place = Place::Member(self.place, &name);
            let again = seen.contains(&name);
            if again || self.which == Which::All {
                self.found.borrow_mut().push(Member { path: place.to_string(), again });
            }
            map.next_value_seed(Each(Inside { place: &place, ..self }))?;
            seen.insert(name);
        }
        Ok(())
    }

    fn list<'de, A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            let place = Place::Item(self.place, index);
            if items.next_element_seed(Each(Inside { place: &place, ..self }))?.is_none() {
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
    fn doubled_members_are_named_by_their_paths() {
        let text = br#"{"a": 1, "b": [{"c": 1, "c": {"d": null}}, true], "a": {"x": 1.5, "x": -2}}"#;
        assert_eq!(find(text), ["b[0].c", "a", "a.x"]);
        assert!(find(b"{\"a\": {\"b\": 1}, \"b\": 1}").is_empty());
        let all: Vec<String> = members(text).into_iter().map(|member| member.path).collect();
        assert_eq!(all, ["a", "b", "b[0].c", "b[0].c", "b[0].c.d", "a", "a.x", "a.x"]);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            find(&bytes);
        }
    }
}
