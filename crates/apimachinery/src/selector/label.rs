//! Label selectors, parsed from a query string such as kubectl sends or from `matchLabels` and `matchExpressions`.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::SelectorError;

/// A label selector; all requirements must match. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// The requirements, ANDed.
    pub requirements: Vec<Requirement>,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// Operator with its values.
    pub operator: SelectorOperator,
}

/// The operator of a [`Requirement`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorOperator {
    /// The label has one of these values.
    In(Vec<String>),
    /// The label has none of these values or is absent.
    NotIn(Vec<String>),
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is an integer greater than this value.
    Gt(i64),
    /// The label is an integer less than this value.
    Lt(i64),
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    ///
    /// # Errors
    /// Fails if the text is malformed.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let requirements =
            split_outside_parentheses(text)?.into_iter().map(parse_requirement).collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    /// Reads a `LabelSelector` object. Null yields the empty selector; callers that treat null as matching nothing must check
    /// for it first.
    ///
    /// # Errors
    /// Fails if an operator is unknown or its values are missing.
    pub fn from_json(selector: &Value) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement { key: key.clone(), operator: SelectorOperator::In(vec![value]) });
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            requirements.push(Requirement::from_json(expression)?);
        }
        Ok(Self { requirements })
    }

    /// Creates a selector that requires all `labels`, like `spec.selector` of a Service.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        let requirement = |(key, value): (&String, &String)| Requirement {
            key: key.clone(),
            operator: SelectorOperator::In(vec![value.clone()]),
        };
        Self { requirements: labels.iter().map(requirement).collect() }
    }

    /// Reports whether the selector has no requirements.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Reports whether `labels` match.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(labels.get(&requirement.key).map(String::as_str)))
    }

    /// Reports whether `metadata.labels` of `object` match.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(labels.get(&requirement.key).and_then(Value::as_str)))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.requirements.iter().map(Requirement::to_string).collect();
        f.write_str(&parts.join(","))
    }
}

// === impl Requirement ===

impl Requirement {
    /// Reads `{key, operator, values}`.
    pub(super) fn from_json(expression: &Value) -> Result<Self, SelectorError> {
        let values = || -> Vec<String> {
            let values = expression["values"].as_array().into_iter().flatten();
            values.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let integer = || match values().as_slice() {
            [value] => value.parse().map_err(|_| SelectorError::NoInteger),
            _ => Err(SelectorError::NoInteger),
        };
        let operator = match expression["operator"].as_str().unwrap_or_default() {
            "In" => SelectorOperator::In(non_empty(values())?),
            "NotIn" => SelectorOperator::NotIn(non_empty(values())?),
            "Exists" => SelectorOperator::Exists,
            "DoesNotExist" => SelectorOperator::DoesNotExist,
            "Gt" => SelectorOperator::Gt(integer()?),
            "Lt" => SelectorOperator::Lt(integer()?),
            unknown => return Err(SelectorError::UnknownOperator(unknown.to_owned())),
        };
        Ok(Self { key: expression["key"].as_str().unwrap_or_default().to_owned(), operator })
    }

    /// Reports whether the requirement matches a label with this value, or an absent label (`None`).
    pub fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.operator {
            SelectorOperator::In(values) => value.is_some_and(|v| values.iter().any(|expected| expected == v)),
            SelectorOperator::NotIn(values) => value.is_none_or(|v| values.iter().all(|excluded| excluded != v)),
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
            SelectorOperator::Gt(bound) => number().is_some_and(|n| n > *bound),
            SelectorOperator::Lt(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.operator {
            SelectorOperator::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0]),
            SelectorOperator::In(values) => write!(f, "{key} in ({})", values.join(",")),
            SelectorOperator::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values[0]),
            SelectorOperator::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            SelectorOperator::Exists => f.write_str(key),
            SelectorOperator::DoesNotExist => write!(f, "!{key}"),
            SelectorOperator::Gt(bound) => write!(f, "{key}>{bound}"),
            SelectorOperator::Lt(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

fn non_empty(values: Vec<String>) -> Result<Vec<String>, SelectorError> {
    if values.is_empty() { Err(SelectorError::NoValues) } else { Ok(values) }
}

fn split_outside_parentheses(text: &str) -> Result<Vec<&str>, SelectorError> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (position, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or_else(|| syntax("found ')', expected: identifier", text))?,
            ',' if depth == 0 => {
                parts.push(text[start..position].trim());
                start = position + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(syntax("found '', expected: ')'", text));
    }
    parts.push(text[start..].trim());
    if parts == [""] {
        parts.clear();
    }
    Ok(parts)
}

fn parse_requirement(text: &str) -> Result<Requirement, SelectorError> {
    if let Some(key) = text.strip_prefix('!') {
        return requirement(key, SelectorOperator::DoesNotExist, text);
    }
    if let Some((key, values)) = text.split_once('(') {
        return parse_set(key, values, text);
    }
    let Some(position) = text.find(['=', '!', '<', '>']) else {
        let mut words = text.split_whitespace().skip(1);
        if let (Some("in" | "notin"), Some(value)) = (words.next(), words.next()) {
            return Err(SelectorError::Syntax(format!("found '{value}' expected: '('")));
        }
        return requirement(text, SelectorOperator::Exists, text);
    };
    let (key, rest) = text.split_at(position);
    let bound = |value: &str| value.trim().parse().map_err(|_| SelectorError::NoInteger);
    let operator = if let Some(value) = rest.strip_prefix("!=") {
        SelectorOperator::NotIn(vec![label_value(value, text)?])
    } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        SelectorOperator::In(vec![label_value(value, text)?])
    } else if let Some(value) = rest.strip_prefix('>') {
        SelectorOperator::Gt(bound(value)?)
    } else if let Some(value) = rest.strip_prefix('<') {
        SelectorOperator::Lt(bound(value)?)
    } else {
        return Err(syntax("found '!', expected: in, notin, =, ==, !=, gt, lt", text));
    };
    requirement(key, operator, text)
}

fn parse_set(key_and_operator: &str, values: &str, text: &str) -> Result<Requirement, SelectorError> {
    let Some((list, "")) = values.split_once(')').map(|(a, b)| (a, b.trim())) else {
        return Err(syntax("found '(', expected: ','", text));
    };
    let values = list.split(',').map(|v| label_value(v, text)).collect::<Result<Vec<_>, _>>()?;
    let mut words = key_and_operator.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(key), Some("in"), None) => requirement(key, SelectorOperator::In(values), text),
        (Some(key), Some("notin"), None) => requirement(key, SelectorOperator::NotIn(values), text),
        _ => Err(syntax("found '(', expected: in, notin, =, ==, !=, gt, lt", text)),
    }
}

fn requirement(key: &str, operator: SelectorOperator, text: &str) -> Result<Requirement, SelectorError> {
    let key = key.trim();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if key.is_empty() || !key.chars().all(allowed) {
        return Err(syntax("found '', expected: identifier", text));
    }
    Ok(Requirement { key: key.to_owned(), operator })
}

fn label_value(value: &str, text: &str) -> Result<String, SelectorError> {
    let value = value.trim();
    if let Some(operator) = ["==", "!=", "=", "!", "<", ">"].into_iter().find(|operator| value.starts_with(operator)) {
        return Err(SelectorError::Syntax(format!("found '{operator}', expected: identifier")));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !value.chars().all(allowed) {
        return Err(syntax("a label value may contain only letters, digits, '-', '_' and '.'", text));
    }
    Ok(value.to_owned())
}

fn syntax(error: &str, text: &str) -> SelectorError {
    SelectorError::Syntax(format!("{error}, in {text:?}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("", true)]
    #[case("app=web", true)]
    #[case("app==web,tier", true)]
    #[case("app!=db", true)]
    #[case("absent!=x", true)]
    #[case("!absent", true)]
    #[case("!app", false)]
    #[case("app in (db, web)", true)]
    #[case("app notin (db),absent notin (x)", true)]
    #[case("app in (db)", false)]
    #[case("absent in (x)", false)]
    #[case("n>4,n<6", true)]
    #[case("n>5", false)]
    #[case("tier=", true)]
    #[case("ex.io/k=v-1", false)]
    fn matches_labels(#[case] text: &str, #[case] expect: bool) {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "", "n": "5"}}});
        let labels = serde_json::from_value(object["metadata"]["labels"].clone()).unwrap();
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.matches_object(&object), expect);
        assert_eq!(selector.matches(&labels), expect);
        assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[rstest]
    #[case("a=b,")]
    #[case("a in b")]
    #[case("a in (b")]
    #[case("a)")]
    #[case("=b")]
    #[case("a=b=c")]
    #[case("a of (b)")]
    #[case("a>x")]
    fn rejects_malformed_selectors(#[case] text: &str) {
        assert!(LabelSelector::parse(text).is_err(), "{text}");
    }

    #[test]
    fn reads_label_selector_objects() {
        let selector = json!({
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d", "e"]}, {"key": "f", "operator": "DoesNotExist"}],
        });
        assert_eq!(LabelSelector::from_json(&selector).unwrap().to_string(), "a=b,c notin (d,e),!f");
        let without_values = json!({"matchExpressions": [{"key": "c", "operator": "In"}]});
        assert_eq!(LabelSelector::from_json(&without_values), Err(SelectorError::NoValues));
    }
}
