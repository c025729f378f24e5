//! A value together with where it stands in its object, so that what is wrong with it can be told.

use apimachinery::quantity::Quantity;
use apimachinery::status::Cause;
use serde_json::{Value, json};

use super::NOT_NEGATIVE;

static NULL: Value = Value::Null;

/// One field of an object; what is not there is null.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) value: &'a Value,
    /// As causes name it: `spec.containers[0].image`.
    pub(super) path: String,
}

// === impl Field ===

impl<'a> Field<'a> {
    /// A whole object.
    pub(super) fn of(object: &'a Value) -> Self {
        Self { value: object, path: String::new() }
    }

    pub(super) fn at(value: &'a Value, path: impl Into<String>) -> Self {
        Self { value, path: path.into() }
    }

    /// A member; dots lead further down.
    pub(super) fn get(&self, names: &str) -> Self {
        let value = names.split('.').fold(self.value, |value, name| value.get(name).unwrap_or(&NULL));
        let path = if self.path.is_empty() { names.to_owned() } else { format!("{}.{names}", self.path) };
        Self { value, path }
    }

    /// The elements of a list; none of what is no list.
    pub(super) fn each(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let path = self.path.clone();
        let items = self.value.as_array().into_iter().flatten().enumerate();
        items.map(move |(index, value)| Field { value, path: format!("{path}[{index}]") })
    }

    /// The entries of a map.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> + use<'a> {
        let path = self.path.clone();
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(move |(key, value)| (key.as_str(), Field { value, path: format!("{path}[{key}]") }))
    }

    /// "" for what is no text.
    pub(super) fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    pub(super) fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    pub(super) fn quantity(&self) -> Option<Quantity> {
        match self.value {
            Value::String(text) => text.parse().ok(),
            Value::Number(number) => number.to_string().parse().ok(),
            _ => None,
        }
    }

    pub(super) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether nothing is in it: null, no text, no element.
    pub(super) fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        }
    }

    pub(super) fn required(&self) -> Cause {
        self.required_because("")
    }

    pub(super) fn required_because(&self, hint: &str) -> Cause {
        Cause::required(&self.path, hint)
    }

    pub(super) fn invalid(&self, hint: &str) -> Cause {
        Cause::invalid(&self.path, self.value, hint)
    }

    pub(super) fn forbidden(&self, hint: &str) -> Cause {
        Cause::forbidden(&self.path, hint)
    }

    pub(super) fn duplicate(&self) -> Cause {
        Cause::duplicate(&self.path, self.value)
    }

    pub(super) fn not_supported(&self, known: &[&str]) -> Cause {
        let known: Vec<Value> = known.iter().map(|known| json!(known)).collect();
        let given = if self.is_set() { self.value.clone() } else { json!("") };
        Cause::not_supported(&self.path, &given, &known)
    }

    /// Refuses a text that is none of these; one that is not there is left alone.
    pub(super) fn one_of(&self, known: &[&str]) -> Option<Cause> {
        (self.is_set() && !known.contains(&self.text())).then(|| self.not_supported(known))
    }

    /// Refuses a text by what its rule says of it; none is an empty one.
    pub(super) fn ruled(&self, rule: fn(&str) -> Vec<String>) -> Vec<Cause> {
        let shown = Value::from(self.text());
        rule(self.text()).iter().map(|hint| Cause::invalid(&self.path, &shown, hint)).collect()
    }

    /// The same, where nothing is no error.
    pub(super) fn ruled_if_given(&self, rule: fn(&str) -> Vec<String>) -> Vec<Cause> {
        if self.text().is_empty() { Vec::new() } else { self.ruled(rule) }
    }

    pub(super) fn not_negative(&self) -> Option<Cause> {
        self.number().filter(|number| *number < 0).map(|_| self.invalid(NOT_NEGATIVE))
    }

    pub(super) fn positive(&self) -> Option<Cause> {
        self.number().filter(|number| *number <= 0).map(|_| self.invalid("must be greater than 0"))
    }

    /// Refuses what differs from what it was.
    pub(super) fn unchanged_from(&self, before: &Field<'_>) -> Option<Cause> {
        let none = Value::Array(Vec::new());
        // A list that is gone is an empty one.
        let shown = if self.value.is_null() && before.value.is_array() { &none } else { self.value };
        (self.value != before.value).then(|| Cause::invalid(&self.path, shown, "field is immutable"))
    }
}
