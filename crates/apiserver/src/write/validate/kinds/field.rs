//! A JSON value with its field path, which validation errors contain.

use std::ops::RangeInclusive;

use apimachinery::{Quantity, StatusCause};
use serde_json::{Value, json};

/// Error message for negative numbers.
pub(crate) const NEGATIVE_MESSAGE: &str = "must be greater than or equal to 0";

static NULL_VALUE: Value = Value::Null;

/// Field of an object. The value of an absent field is null.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) value: &'a Value,
    /// Field path, such as `spec.containers[0].image`.
    pub(super) path: String,
}

// === impl Field ===

impl<'a> Field<'a> {
    /// Returns the object itself as a field with an empty path.
    pub(super) fn root(object: &'a Value) -> Self {
        Self { value: object, path: String::new() }
    }

    /// Returns `value` as a field at `path`.
    pub(super) fn at(value: &'a Value, path: impl Into<String>) -> Self {
        Self { value, path: path.into() }
    }

    /// Returns a nested field. Dots in `names` separate the levels.
    pub(super) fn get(&self, names: &str) -> Self {
        let value = names.split('.').fold(self.value, |value, name| value.get(name).unwrap_or(&NULL_VALUE));
        let path = if self.path.is_empty() { names.to_owned() } else { format!("{}.{names}", self.path) };
        Self { value, path }
    }

    /// Returns the items of a list, or none if the value is not a list.
    pub(super) fn items(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let path = self.path.clone();
        let items = self.value.as_array().into_iter().flatten().enumerate();
        items.map(move |(index, value)| Field { value, path: format!("{path}[{index}]") })
    }

    /// Returns the keys and values of a map.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> + use<'a> {
        let path = self.path.clone();
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(move |(key, value)| (key.as_str(), Field { value, path: format!("{path}[{key}]") }))
    }

    /// Returns the string, or `""` if the value is not a string.
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

    /// Reports whether the value is null or an empty string, list or map.
    pub(super) fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        }
    }

    pub(super) fn required(&self) -> StatusCause {
        self.required_with_hint("")
    }

    pub(super) fn required_with_hint(&self, hint: &str) -> StatusCause {
        StatusCause::required(&self.path, hint)
    }

    pub(super) fn invalid(&self, hint: &str) -> StatusCause {
        StatusCause::invalid(&self.path, self.value, hint)
    }

    pub(super) fn forbidden(&self, hint: &str) -> StatusCause {
        StatusCause::forbidden(&self.path, hint)
    }

    pub(super) fn duplicate(&self) -> StatusCause {
        StatusCause::duplicate(&self.path, self.value)
    }

    pub(super) fn not_supported(&self, supported: &[&str]) -> StatusCause {
        let supported: Vec<Value> = supported.iter().map(|known| json!(known)).collect();
        let value = if self.is_set() { self.value.clone() } else { json!("") };
        StatusCause::not_supported(&self.path, &value, &supported)
    }

    /// Rejects a value that is not in `supported`. An absent value is valid.
    pub(super) fn check_one_of(&self, supported: &[&str]) -> Option<StatusCause> {
        (self.is_set() && !supported.contains(&self.text())).then(|| self.not_supported(supported))
    }

    /// Validates the string with `rule`. An absent value counts as an empty string.
    pub(super) fn check(&self, rule: fn(&str) -> Vec<String>) -> Vec<StatusCause> {
        let reported = Value::from(self.text());
        rule(self.text()).iter().map(|hint| StatusCause::invalid(&self.path, &reported, hint)).collect()
    }

    /// Validates the string with `rule` unless it is absent or empty.
    pub(super) fn check_if_set(&self, rule: fn(&str) -> Vec<String>) -> Vec<StatusCause> {
        if self.text().is_empty() { Vec::new() } else { self.check(rule) }
    }

    pub(super) fn check_not_negative(&self) -> Option<StatusCause> {
        self.number().filter(|number| *number < 0).map(|_| self.invalid(NEGATIVE_MESSAGE))
    }

    pub(super) fn check_positive(&self) -> Option<StatusCause> {
        self.number().filter(|number| *number <= 0).map(|_| self.invalid("must be greater than 0"))
    }

    /// Rejects a number outside `range`. An absent value is valid.
    pub(super) fn check_in_range(&self, range: RangeInclusive<i64>) -> Option<StatusCause> {
        let (first, last) = (range.start(), range.end());
        let hint = || format!("must be between {first} and {last}, inclusive");
        self.number().filter(|number| !range.contains(number)).map(|_| self.invalid(&hint()))
    }

    /// Rejects a value that differs from `current`.
    pub(super) fn check_unchanged(&self, current: &Field<'_>) -> Option<StatusCause> {
        let empty_list = Value::Array(Vec::new());
        // kube-apiserver reports a removed list as an empty list.
        let reported = if self.value.is_null() && current.value.is_array() { &empty_list } else { self.value };
        (self.value != current.value).then(|| StatusCause::invalid(&self.path, reported, "field is immutable"))
    }
}
