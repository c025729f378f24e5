//! The merge semantics of a type and its fields.

use std::collections::BTreeMap;

use serde_json::Value;

/// How a value of a type merges. Objects without a schema merge by field; lists and scalars without one are atomic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergeSchema {
    /// The strategy for server-side apply.
    pub(crate) merge: MergeStrategy,
    /// The strategy for strategic merge patch.
    pub(crate) patch: PatchStrategy,
    /// Schemas of the fields of an object.
    pub(crate) fields: BTreeMap<String, MergeSchema>,
    /// Schema of the values of a map with user-defined keys.
    pub(crate) additional: Option<Box<MergeSchema>>,
    /// Schema of the elements of a list.
    pub(crate) items: Option<Box<MergeSchema>>,
    /// Whether null is a value rather than an absent field.
    pub(crate) nullable: bool,
}

/// The unit of ownership and merging in server-side apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum MergeStrategy {
    /// Objects merge by field; lists and scalars are atomic.
    #[default]
    Deduced,
    /// The value is owned and replaced as a whole.
    Atomic,
    /// A list of distinct scalars (`listType=set`).
    Set,
    /// A list of objects identified by these key fields (`listType=map`).
    Map(Vec<ListMapKey>),
}

/// A field that identifies an element of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListMapKey {
    /// Name of the field.
    pub(crate) name: String,
    /// Value used for elements that omit the field.
    pub(crate) default: Option<Value>,
}

/// How strategic merge patch merges a value (`patchStrategy`).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum PatchStrategy {
    /// Objects merge, lists are replaced.
    #[default]
    Default,
    /// A list of objects merges by this field (`patchMergeKey`).
    MergeBy(String),
    /// A list of scalars merges as a set.
    MergePrimitives,
    /// The object or list is replaced as a whole.
    Replace,
}

static DEDUCED: MergeSchema = MergeSchema {
    merge: MergeStrategy::Deduced,
    patch: PatchStrategy::Default,
    fields: BTreeMap::new(),
    additional: None,
    items: None,
    nullable: false,
};

// === impl MergeSchema ===

impl MergeSchema {
    /// Returns the schema of a field.
    pub(crate) fn field(&self, name: &str) -> &Self {
        self.fields.get(name).or(self.additional.as_deref()).unwrap_or(&DEDUCED)
    }

    /// Returns the schema of list elements.
    pub(crate) fn item(&self) -> &Self {
        self.items.as_deref().unwrap_or(&DEDUCED)
    }

    /// Reports whether `name` is a user-defined map key rather than a field of the type.
    pub(crate) fn is_map_key(&self, name: &str) -> bool {
        self.additional.is_some() && !self.fields.contains_key(name)
    }
}
