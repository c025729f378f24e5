//! One object as a store keeps it: as a tree of JSON, or as text of which a tree is made while somebody looks at it.
//!
//! A tree takes ten times the room of its text; what a cluster has thousands of, and what is looked at one by one, is kept
//! as text.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::Value;

/// How the objects of a kind are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeping {
    /// As what.
    pub form: Form,
    /// Labels by whose values objects are found without looking at all of them.
    pub labels: &'static [&'static str],
}

/// As what an object is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// For few objects, or such as are often looked at all together.
    #[default]
    Tree,
    /// For many objects that are looked at one by one.
    Text,
}

/// One version of an object; a cheap handle.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Tree(Arc<Value>),
    Text(Arc<Text>),
}

#[derive(Debug)]
pub(crate) struct Text {
    text: Box<str>,
    /// While somebody holds it.
    tree: Mutex<Weak<Value>>,
}

// === impl Kept ===

impl Kept {
    pub(crate) fn new(form: Form, object: &Arc<Value>) -> Kept {
        match form {
            Form::Tree => Kept::Tree(Arc::clone(object)),
            Form::Text => {
                let tree = Mutex::new(Arc::downgrade(object));
                Kept::Text(Arc::new(Text { text: object.to_string().into_boxed_str(), tree }))
            }
        }
    }

    /// The object, the same tree for everybody who holds it at the same time.
    pub(crate) fn tree(&self) -> Arc<Value> {
        match self {
            Kept::Tree(tree) => Arc::clone(tree),
            Kept::Text(text) => text.tree(),
        }
    }
}

/// Members are in order of their names, so equal objects have equal text.
impl PartialEq for Kept {
    fn eq(&self, other: &Kept) -> bool {
        match (self, other) {
            (Kept::Text(one), Kept::Text(other)) => one.text == other.text,
            _ => self.tree() == other.tree(),
        }
    }
}

// === impl Text ===

impl Text {
    fn tree(&self) -> Arc<Value> {
        let mut slot = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = slot.upgrade() {
            return tree;
        }
        let read = serde_json::from_str(&self.text).unwrap_or_else(|error| {
            tracing::error!(%error, "a kept object does not read back");
            Value::Null
        });
        let tree = Arc::new(read);
        *slot = Arc::downgrade(&tree);
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_a_tree_while_somebody_holds_it() {
        let object = Arc::new(json!({"b": [1, 2.5, null], "a": {"é": "\"\n"}}));
        let kept = Kept::new(Form::Text, &object);
        assert!(Arc::ptr_eq(&kept.tree(), &object));
        let weak = Arc::downgrade(&object);
        let copy = Value::clone(&object);
        drop(object);
        assert!(weak.upgrade().is_none());
        let again = kept.tree();
        assert_eq!(*again, copy);
        assert!(Arc::ptr_eq(&kept.tree(), &again));
    }

    #[test]
    fn equal_objects_are_equal_in_any_form() {
        let [one, same] =
            [r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#].map(|text| Arc::new(serde_json::from_str(text).unwrap()));
        let other = Arc::new(json!({"a": 1}));
        for (form, form_of_other) in [(Form::Text, Form::Text), (Form::Text, Form::Tree), (Form::Tree, Form::Tree)] {
            assert_eq!(Kept::new(form, &one), Kept::new(form_of_other, &same));
            assert_ne!(Kept::new(form, &one), Kept::new(form_of_other, &other));
        }
    }
}
