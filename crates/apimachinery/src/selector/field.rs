//! Field selectors: equality on single fields, `metadata.name=x,spec.nodeName!=y`.

use serde_json::Value;

use super::SelectorError;

/// All terms must hold. Which fields a resource supports is the server's to check, by [`FieldSelector::fields`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

// === impl FieldSelector ===

impl FieldSelector {
    /// Reads `a.b=c,d!=e`; a backslash escapes `,`, `=` and itself.
    ///
    /// # Errors
    /// A term has no operator.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let terms = split_terms(text).into_iter().filter(|t| !t.is_empty()).map(Term::parse);
        Ok(Self { terms: terms.collect::<Result<_, _>>()? })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The fields asked for, in the order of the text.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|t| t.field.as_str())
    }

    /// The one value `field` must have, if the selector pins it: a list by `metadata.name` is a get.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.equal && t.field == field).map(|t| t.value.as_str())
    }

    /// A missing field counts as the empty string.
    pub fn matches(&self, object: &Value) -> bool {
        self.matches_with(|field| text_at(object, field))
    }

    /// As [`Self::matches`], for fields that are spelled otherwise in the object.
    pub fn matches_with(&self, value_of: impl Fn(&str) -> String) -> bool {
        self.terms.iter().all(|t| (value_of(&t.field) == t.value) == t.equal)
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, SelectorError> {
        let at = unescaped(text, '=').next().ok_or_else(|| SelectorError::Field(text.to_owned()))?;
        let (field, value) = (&text[..at], &text[at + 1..]);
        let (field, equal) = field.strip_suffix('!').map_or((field, true), |f| (f, false));
        let value = value.strip_prefix('=').filter(|_| equal).unwrap_or(value);
        Ok(Self { field: field.trim().to_owned(), value: unescape(value), equal })
    }
}

/// The text of a scalar at a dotted path, empty if there is none.
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
    for at in unescaped(text, ',') {
        terms.push(&text[start..at]);
        start = at + 1;
    }
    terms.push(&text[start..]);
    terms
}

/// Where `wanted` stands without a backslash before it.
fn unescaped(text: &str, wanted: char) -> impl Iterator<Item = usize> {
    let mut escaped = false;
    text.char_indices().filter_map(move |(at, c)| {
        let hit = c == wanted && !escaped;
        escaped = c == '\\' && !escaped;
        hit.then_some(at)
    })
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    out
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
    fn selects(#[case] text: &str, #[case] expect: bool) {
        let object = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "flag": true, "odd": "a,b=c"}});
        assert_eq!(FieldSelector::parse(text).unwrap().matches(&object), expect);
    }

    #[test]
    fn tells_its_fields() {
        let selector = FieldSelector::parse("metadata.name=p,a!=b").unwrap();
        assert_eq!(selector.fields().collect::<Vec<_>>(), ["metadata.name", "a"]);
        assert_eq!((selector.exact("metadata.name"), selector.exact("a")), (Some("p"), None));
        assert!(FieldSelector::parse("metadata.name").is_err());
    }
}
