//! One version of an object as it is kept: as text, and as a tree while somebody uses it.
//!
//! A tree of JSON takes ten times the room of its text, and most objects are only ever sent. The text is made once, for
//! the answer to the writer, every list and every watch. Trees stay for the resources that controllers of this process
//! read all the time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use serde_json::Value;

/// One version of an object.
#[derive(Debug)]
pub struct Kept {
    text: Bytes,
    /// Where the members behind `apiVersion` and `kind` begin.
    rest: usize,
    tree: Mutex<Tree>,
}

#[derive(Debug)]
enum Tree {
    Held(Arc<Value>),
    /// While somebody else holds it; otherwise it is read from the text.
    Lent(Weak<Value>),
}

// === impl Kept ===

impl Kept {
    /// The text of `object`. Its tree is known as long as somebody holds it.
    #[must_use]
    pub fn new(object: &Arc<Value>) -> Self {
        let (text, rest) = encode(object);
        Self { text, rest, tree: Mutex::new(Tree::Lent(Arc::downgrade(object))) }
    }

    fn slot(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object as a tree, the same one for everybody who holds it at the same time.
    #[must_use]
    pub fn tree(&self) -> Arc<Value> {
        let mut slot = self.slot();
        if let Some(tree) = slot.known() {
            return tree;
        }
        let read = serde_json::from_slice(&self.text).unwrap_or_else(|error| {
            tracing::error!(%error, "a stored object does not read back");
            Value::Null
        });
        let tree = Arc::new(read);
        *slot = Tree::Lent(Arc::downgrade(&tree));
        tree
    }

    /// Whether `tree` is this very version.
    #[must_use]
    pub fn is(&self, tree: &Arc<Value>) -> bool {
        self.slot().known().is_some_and(|known| Arc::ptr_eq(&known, tree))
    }

    /// Keeps the tree until it is released.
    pub fn hold(&self) {
        let tree = self.tree();
        let mut slot = self.slot();
        if let Tree::Lent(_) = *slot {
            *slot = Tree::Held(tree);
        }
    }

    /// Keeps only the text.
    pub fn release(&self) {
        let mut slot = self.slot();
        if let Tree::Held(tree) = &*slot {
            *slot = Tree::Lent(Arc::downgrade(tree));
        }
    }

    /// The whole object as JSON.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The same, shared.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.text.clone()
    }

    /// The object's members but `apiVersion` and `kind`, and the closing brace.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        self.text.get(self.rest..).unwrap_or_default()
    }
}

// === impl Tree ===

impl Tree {
    fn known(&self) -> Option<Arc<Value>> {
        match self {
            Self::Held(tree) => Some(Arc::clone(tree)),
            Self::Lent(tree) => tree.upgrade(),
        }
    }
}

/// The JSON with `apiVersion` and `kind` first, and where the rest begins.
fn encode(object: &Value) -> (Bytes, usize) {
    const FIRST: [&str; 2] = ["apiVersion", "kind"];
    let mut text = Vec::with_capacity(1024);
    let Some(members) = object.as_object() else { return (Bytes::from(object.to_string()), 0) };
    text.push(b'{');
    for name in FIRST {
        if let Some(value) = members.get(name) {
            member(&mut text, name, value);
        }
    }
    let rest = text.len();
    for (name, value) in members.iter().filter(|(name, _)| !FIRST.contains(&name.as_str())) {
        member(&mut text, name, value);
    }
    if text.last() == Some(&b',') {
        text.pop();
    }
    text.push(b'}');
    // A box has no room to spare.
    let rest = rest.min(text.len() - 1);
    (Bytes::from(text.into_boxed_slice()), rest)
}

fn member(text: &mut Vec<u8>, name: &str, value: &Value) {
    // Writing JSON values to memory does not fail.
    let _ = serde_json::to_writer(&mut *text, name);
    text.push(b':');
    let _ = serde_json::to_writer(&mut *text, value);
    text.push(b',');
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
    #[case::nothing_else(json!({"apiVersion": "v1", "kind": "K"}), "}")]
    #[case::empty(json!({}), "}")]
    fn the_text_is_the_object_and_its_end_lacks_the_kind(#[case] object: Value, #[case] rest: &str) {
        let kept = Kept::new(&Arc::new(object.clone()));
        assert_eq!(serde_json::from_slice::<Value>(kept.text()).unwrap(), object);
        assert_eq!(std::str::from_utf8(kept.rest()).unwrap(), rest);
    }

    proptest! {
        /// A number that was answered is the same after a restart, all of its digits.
        #[test]
        fn numbers_survive(number in proptest::num::f64::NORMAL) {
            let text = json!({"spec": {"n": number}}).to_string();
            let object: Value = serde_json::from_str(&text).unwrap();
            let kept = Kept::new(&Arc::new(object.clone()));
            prop_assert_eq!(&object["spec"]["n"], &json!(number));
            prop_assert_eq!(std::str::from_utf8(kept.text()).unwrap(), text);
        }
    }

    #[test]
    fn a_tree_is_the_same_while_somebody_holds_it() {
        let first = Arc::new(json!({"metadata": {"name": "x"}}));
        let kept = Kept::new(&first);
        assert!(kept.is(&first) && Arc::ptr_eq(&kept.tree(), &first));
        let other = Arc::new((*first).clone());
        drop(first);
        assert!(!kept.is(&other));
        let again = kept.tree();
        assert_eq!(again, other);
        assert!(kept.is(&again) && !kept.is(&other));
    }

    #[test]
    fn a_held_tree_stays_until_it_is_released() {
        let kept = Kept::new(&Arc::new(json!({"a": 1})));
        kept.hold();
        let address = Arc::as_ptr(&kept.tree());
        assert_eq!(Arc::as_ptr(&kept.tree()), address);
        let weak = Arc::downgrade(&kept.tree());
        kept.release();
        assert!(weak.upgrade().is_none());
    }

    proptest! {
        #[test]
        fn strings_survive(name in ".*", value in ".*") {
            let object = json!({"kind": "K", name: value});
            let kept = Kept::new(&Arc::new(object.clone()));
            prop_assert_eq!(&*kept.tree(), &object);
        }
    }
}
