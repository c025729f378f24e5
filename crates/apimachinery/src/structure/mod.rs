//! What server-side apply and strategic merge need to know of a type: which lists merge, by which keys, and which
//! maps are one value.

mod builtin;
mod pod;
mod schema;

use std::collections::BTreeMap;

use serde_json::Value;

/// How one place of an object merges. Places that nobody described are [`Merge::Deduced`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Structure {
    /// For server-side apply.
    pub merge: Merge,
    /// For strategic merge patch.
    pub strategic: Strategic,
    /// Described fields of an object.
    pub fields: BTreeMap<String, Structure>,
    /// All other fields, where the object is a map with user-chosen keys.
    pub rest: Option<Box<Structure>>,
    /// Elements of a list.
    pub items: Option<Box<Structure>>,
    /// Null is a value here, not an absence.
    pub nullable: bool,
}

/// What server-side apply owns and merges at a place.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Merge {
    /// An object by field; a list or scalar as one value.
    #[default]
    Deduced,
    /// One value, whatever it is.
    Atomic,
    /// A list of distinct scalars.
    Set,
    /// A list of objects that are told apart by these fields.
    Map(Vec<Key>),
}

/// A field that identifies an element of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub name: String,
    /// The value where an element omits the field.
    pub default: Option<Value>,
}

/// What a strategic merge patch does at a place.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Strategic {
    /// An object merges, a list is replaced.
    #[default]
    Plain,
    /// A list of objects merges by this field.
    MergeBy(String),
    /// A list of scalars merges as a set.
    MergeValues,
    /// An object or list is replaced as a whole.
    Replace,
}

static DEDUCED: Structure = Structure {
    merge: Merge::Deduced,
    strategic: Strategic::Plain,
    fields: BTreeMap::new(),
    rest: None,
    items: None,
    nullable: false,
};

// === impl Structure ===

impl Structure {
    /// From an `openAPIV3Schema`; what the schema does not describe is deduced.
    pub fn from_schema(schema: &Value) -> Self {
        schema::root(schema)
    }

    /// Of a kind that every cluster has; `group` is empty for core. An unknown kind has only its metadata described.
    pub fn builtin(group: &str, kind: &str) -> Self {
        builtin::of(group, kind)
    }

    pub(crate) fn field(&self, name: &str) -> &Self {
        self.fields.get(name).or(self.rest.as_deref()).unwrap_or(&DEDUCED)
    }

    pub(crate) fn item(&self) -> &Self {
        self.items.as_deref().unwrap_or(&DEDUCED)
    }

    /// Whether `name` is a key that the user chose, not a field of the type.
    pub(crate) fn is_map_key(&self, name: &str) -> bool {
        self.rest.is_some() && !self.fields.contains_key(name)
    }
}
