//! Field selectors: equality of single fields, such as `metadata.name=x,spec.nodeName!=y`.

use serde_json::Value;

use super::SelectorError;

/// A field selector; all terms must match. The caller checks with [`FieldSelector::fields`] that a resource supports the
/// fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    is_equality: bool,
}

// === impl FieldSelector ===

impl FieldSelector {
    /// Parses `a.b=c,d!=e`; a backslash escapes `,`, `=` and itself.
    ///
    /// # Errors
    /// Fails if a term has no operator.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let terms = split_terms(text).into_iter().filter(|term| !term.is_empty()).map(Term::parse);
        Ok(Self { terms: terms.collect::<Result<_, _>>()? })
    }

    /// Reports whether the selector has no terms.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the fields of the selector, in order.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|term| term.field.as_str())
    }

    /// Reports whether `object` matches. A missing field counts as the empty string.
    pub fn matches(&self, object: &Value) -> bool {
        self.matches_with(|field| text_at(object, field))
    }

    /// Reports whether an object with the field values that `value_of` returns matches.
    pub fn matches_with(&self, value_of: impl Fn(&str) -> String) -> bool {
        self.terms.iter().all(|term| (value_of(&term.field) == term.value) == term.is_equality)
    }
}

// === impl Term ===

impl Term {
    fn parse(text: &str) -> Result<Self, SelectorError> {
        let position = unescaped_positions(text, '=').next().ok_or_else(|| SelectorError::Field(text.to_owned()))?;
        let (field, value) = (&text[..position], &text[position + 1..]);
        let (field, is_equality) = field.strip_suffix('!').map_or((field, true), |field| (field, false));
        let value = value.strip_prefix('=').filter(|_| is_equality).unwrap_or(value);
        Ok(Self { field: field.trim().to_owned(), value: unescape(value), is_equality })
    }
}

/// Returns the text of the scalar at a dotted path; empty if there is none.
fn text_at(object: &Value, field: &str) -> String {
    match field.split('.').try_fold(object, |value, key| value.get(key)) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut start = 0;
    let mut terms = Vec::new();
    for position in unescaped_positions(text, ',') {
        terms.push(&text[start..position]);
        start = position + 1;
    }
    terms.push(&text[start..]);
    terms
}

/// Returns the positions of `separator` that are not escaped by a backslash.
fn unescaped_positions(text: &str, separator: char) -> impl Iterator<Item = usize> {
    let mut escaped = false;
    text.char_indices().filter_map(move |(position, c)| {
        let is_match = c == separator && !escaped;
        escaped = c == '\\' && !escaped;
        is_match.then_some(position)
    })
}

fn unescape(text: &str) -> String {
    let mut unescaped = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        unescaped.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    unescaped
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("metadata.name=p", true)]
    #[case("metadata.name==p,spec.nodeName=n", true)]
    #[case("spec.nodeName!=n", false)]
    #[case("spec.absent=", true)]
    #[case("spec.flag=true", true)]
    #[case("spec.odd=a\\,b\\=c", true)]
    #[case("", true)]
    fn matches_objects(#[case] text: &str, #[case] expect: bool) {
        let object = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "flag": true, "odd": "a,b=c"}});
        assert_eq!(FieldSelector::parse(text).unwrap().matches(&object), expect);
    }

    #[test]
    fn returns_its_fields() {
        let selector = FieldSelector::parse("metadata.name=p,a!=b").unwrap();
        assert_eq!(selector.fields().collect::<Vec<_>>(), ["metadata.name", "a"]);
        assert!(FieldSelector::parse("metadata.name").is_err());
    }
}
