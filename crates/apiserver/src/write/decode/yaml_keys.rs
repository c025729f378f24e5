//! Finds duplicate keys in YAML documents and reports them with the message of Kubernetes: `line 5: key "k" already set
//! in map`.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use super::document_visitor::{DocumentVisitor, ValueVisitor};

/// Returns a message for each duplicate key, in document order. For invalid YAML, the list is empty.
pub(super) fn duplicate_keys(text: &str) -> Vec<String> {
    let messages = RefCell::new(Vec::new());
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::PassThrough };
    // Errors are ignored here, because decoding the object reports invalid YAML.
    let _ = serde_saphyr::with_deserializer_from_str_with_options(text, options, |reader| {
        ValueVisitor(KeyVisitor { messages: &messages }).deserialize(reader)
    });
    messages.into_inner()
}

#[derive(Clone, Copy)]
struct KeyVisitor<'a> {
    messages: &'a RefCell<Vec<String>>,
}

impl DocumentVisitor for KeyVisitor<'_> {
    fn map<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if !seen.insert(key.value.clone()) {
                let line = key.referenced.line();
                self.messages.borrow_mut().push(format!("line {line}: key {:?} already set in map", key.value));
            }
            map.next_value_seed(ValueVisitor(self))?;
        }
        Ok(())
    }

    fn list<'de, A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(ValueVisitor(self))?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn duplicate_keys_name_lines() {
        let text = "a: 1\nb:\n- c: 1\n  c: 2\n- {d: 1, d: 2}\na: x\n";
        let expected = ["line 4: key \"c\"", "line 5: key \"d\"", "line 6: key \"a\""];
        assert_eq!(duplicate_keys(text), expected.map(|prefix| format!("{prefix} already set in map")));
        assert!(duplicate_keys("a: {b: 1}\nb: 1\n").is_empty());
    }

    proptest! {
        #[test]
        fn accepts_arbitrary_text(text in ".{0,200}") {
            duplicate_keys(&text);
        }
    }
}
