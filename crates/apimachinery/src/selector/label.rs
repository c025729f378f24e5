//! Label selectors, from a query string as kubectl writes it or from `matchLabels`/`matchExpressions`.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::SelectorError;

/// All requirements must hold. The empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    pub requirements: Vec<Requirement>,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
}

/// What is asked of a label's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    In(Vec<String>),
    /// Also holds where the label is absent.
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    /// The label is an integer greater than this.
    Gt(i64),
    Lt(i64),
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    ///
    /// # Errors
    /// The text is not of that form.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let requirements =
            split_outside_parentheses(text)?.into_iter().map(parse_requirement).collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    /// Reads a `LabelSelector` object. Null selects everything: callers for whom it selects nothing check first.
    ///
    /// # Errors
    /// An operator is unknown, or its values are missing.
    pub fn from_json(selector: &Value) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement { key: key.clone(), operator: Operator::In(vec![value]) });
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            requirements.push(Requirement::from_json(expression)?);
        }
        Ok(Self { requirements })
    }

    /// Every label must have exactly this value, as `spec.selector` of a Service means it.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        let one = |(key, value): (&String, &String)| Requirement {
            key: key.clone(),
            operator: Operator::In(vec![value.clone()]),
        };
        Self { requirements: labels.iter().map(one).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|r| r.matches(labels.get(&r.key).map(String::as_str)))
    }

    /// Looks at `metadata.labels` of `object`.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.requirements.iter().all(|r| r.matches(labels.get(&r.key).and_then(Value::as_str)))
    }
}

impl Requirement {
    /// Reads `{key, operator, values}`.
    pub(super) fn from_json(expression: &Value) -> Result<Self, SelectorError> {
        let values = || -> Vec<String> {
            let values = expression["values"].as_array().into_iter().flatten();
            values.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let integer = || match values().as_slice() {
            [one] => one.parse().map_err(|_| SelectorError::NoInteger),
            _ => Err(SelectorError::NoInteger),
        };
        let operator = match expression["operator"].as_str().unwrap_or_default() {
            "In" => Operator::In(some(values())?),
            "NotIn" => Operator::NotIn(some(values())?),
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt(integer()?),
            "Lt" => Operator::Lt(integer()?),
            other => return Err(SelectorError::UnknownOperator(other.to_owned())),
        };
        Ok(Self { key: expression["key"].as_str().unwrap_or_default().to_owned(), operator })
    }

    /// `value` is the label's value, if the label is there.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Operator::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt(bound) => number().is_some_and(|n| n > *bound),
            Operator::Lt(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.requirements.iter().map(Requirement::to_string).collect();
        f.write_str(&parts.join(","))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.operator {
            Operator::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0]),
            Operator::In(values) => write!(f, "{key} in ({})", values.join(",")),
            Operator::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values[0]),
            Operator::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::Gt(bound) => write!(f, "{key}>{bound}"),
            Operator::Lt(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

fn some(values: Vec<String>) -> Result<Vec<String>, SelectorError> {
    if values.is_empty() { Err(SelectorError::NoValues) } else { Ok(values) }
}

// === query syntax ===

fn split_outside_parentheses(text: &str) -> Result<Vec<&str>, SelectorError> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or_else(|| syntax("found ')', expected: identifier", text))?,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
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
        return requirement(key, Operator::DoesNotExist, text);
    }
    if let Some((key, values)) = text.split_once('(') {
        return parse_set(key, values, text);
    }
    let Some(at) = text.find(['=', '!', '<', '>']) else {
        let mut words = text.split_whitespace().skip(1);
        if let (Some("in" | "notin"), Some(value)) = (words.next(), words.next()) {
            return Err(SelectorError::Syntax(format!("found '{value}' expected: '('")));
        }
        return requirement(text, Operator::Exists, text);
    };
    let (key, rest) = text.split_at(at);
    let bound = |value: &str| value.trim().parse().map_err(|_| SelectorError::NoInteger);
    let operator = if let Some(value) = rest.strip_prefix("!=") {
        Operator::NotIn(vec![label_value(value, text)?])
    } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        Operator::In(vec![label_value(value, text)?])
    } else if let Some(value) = rest.strip_prefix('>') {
        Operator::Gt(bound(value)?)
    } else if let Some(value) = rest.strip_prefix('<') {
        Operator::Lt(bound(value)?)
    } else {
        return Err(syntax("found '!', expected: in, notin, =, ==, !=, gt, lt", text));
    };
    requirement(key, operator, text)
}

fn parse_set(head: &str, values: &str, text: &str) -> Result<Requirement, SelectorError> {
    let Some((inside, "")) = values.split_once(')').map(|(a, b)| (a, b.trim())) else {
        return Err(syntax("found '(', expected: ','", text));
    };
    let values = inside.split(',').map(|v| label_value(v, text)).collect::<Result<Vec<_>, _>>()?;
    let mut words = head.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(key), Some("in"), None) => requirement(key, Operator::In(values), text),
        (Some(key), Some("notin"), None) => requirement(key, Operator::NotIn(values), text),
        _ => Err(syntax("found '(', expected: in, notin, =, ==, !=, gt, lt", text)),
    }
}

fn requirement(key: &str, operator: Operator, text: &str) -> Result<Requirement, SelectorError> {
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
        return Err(syntax("a value holds letters, digits, '-', '_' and '.'", text));
    }
    Ok(value.to_owned())
}

fn syntax(what: &str, text: &str) -> SelectorError {
    SelectorError::Syntax(format!("{what}, in {text:?}"))
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
    fn selects(#[case] text: &str, #[case] expect: bool) {
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
    fn refuses(#[case] text: &str) {
        assert!(LabelSelector::parse(text).is_err(), "{text}");
    }

    #[test]
    fn object_form() {
        let selector = json!({
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d", "e"]}, {"key": "f", "operator": "DoesNotExist"}],
        });
        assert_eq!(LabelSelector::from_json(&selector).unwrap().to_string(), "a=b,c notin (d,e),!f");
        let bad = json!({"matchExpressions": [{"key": "c", "operator": "In"}]});
        assert_eq!(LabelSelector::from_json(&bad), Err(SelectorError::NoValues));
    }
}
