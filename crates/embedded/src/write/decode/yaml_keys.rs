//! Finds keys that a YAML document gives twice, in the words of Kubernetes' reader: `line 5: key "k" already set in map`.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use super::walk::{Each, Walk};

/// One sentence for each, in the order in which they come. None for what is no YAML.
pub(super) fn find(text: &str) -> Vec<String> {
    let found = RefCell::new(Vec::new());
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::PassThrough };
    // What is no YAML has been refused by the reader of the object itself.
    let _ = serde_saphyr::with_deserializer_from_str_with_options(text, options, |reader| {
        Each(Keys { found: &found }).deserialize(reader)
    });
    found.into_inner()
}

#[derive(Clone, Copy)]
struct Keys<'a> {
    found: &'a RefCell<Vec<String>>,
}

impl Walk for Keys<'_> {
    fn map<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if !seen.insert(key.value.clone()) {
                let line = key.referenced.line();
                self.found.borrow_mut().push(format!("line {line}: key {:?} already set in map", key.value));
            }
            map.next_value_seed(Each(self))?;
        }
        Ok(())
    }

    fn list<'de, A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Each(self))?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn doubled_keys_are_named_by_their_lines() {
        let text = "a: 1\nb:\n- c: 1\n  c: 2\n- {d: 1, d: 2}\na: x\n";
        let expected = ["line 4: key \"c\"", "line 5: key \"d\"", "line 6: key \"a\""];
        assert_eq!(find(text), expected.map(|what| format!("{what} already set in map")));
        assert!(find("a: {b: 1}\nb: 1\n").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_ends(text in ".{0,200}") {
            find(&text);
        }
    }
}
