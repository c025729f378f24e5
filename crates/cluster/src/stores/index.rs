//! Finds objects by a word that they carry: the UID of their controller, or a label with its value.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::object::controller_uid;
use crate::stores::Key;

/// Keys by word.
#[derive(Debug, Default)]
pub(super) struct Index(BTreeSet<(String, Key)>);

// === impl Index ===

impl Index {
    /// Keys under `word`, in order, from those of `namespace` on.
    pub(super) fn find<'a>(&'a self, word: &'a str, namespace: &str) -> impl Iterator<Item = &'a Key> {
        let from = (word.to_owned(), Key::new(namespace, ""));
        self.0.range(from..).take_while(move |(found, _)| found == word).map(|(_, key)| key)
    }

    pub(super) fn add(&mut self, key: &Key, words: Vec<String>) {
        self.0.extend(words.into_iter().map(|word| (word, key.clone())));
    }

    /// `key` stands under `now` only, no longer under `before`.
    pub(super) fn exchange(&mut self, key: &Key, before: Vec<String>, now: Vec<String>) {
        if before == now {
            return;
        }
        for word in before {
            self.0.remove(&(word, key.clone()));
        }
        self.add(key, now);
    }
}

/// Under which words `object` is found.
pub(super) fn words(object: &Value, labels: &[&str]) -> Vec<String> {
    let label = |name: &&str| Some(labelled(name, object["metadata"]["labels"][name].as_str()?));
    let owner = controller_uid(object).map(owned);
    owner.into_iter().chain(labels.iter().filter_map(label)).collect()
}

/// The word of what this UID controls; no label begins with the sign.
pub(super) fn owned(controller: &str) -> String {
    format!("@{controller}")
}

pub(super) fn labelled(label: &str, value: &str) -> String {
    format!("{label}={value}")
}
