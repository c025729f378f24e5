//! The subset of kubectl's JSONPath used by printer columns: members, indices, wildcards and `[?(@.a=="b")]`.

use serde_json::Value;

/// Returns the first value at the path, like the table printer of kube-apiserver.
pub(super) fn find(object: &Value, path: &str) -> Option<Value> {
    let mut matches = vec![object];
    let mut rest = path.trim();
    while !rest.is_empty() {
        let (segment, tail) = parse_segment(rest)?;
        matches = matches.into_iter().flat_map(|value| segment.select(value)).collect();
        rest = tail;
    }
    matches.first().map(|value| (*value).clone())
}

/// Segment of a path.
enum Segment<'a> {
    /// Member of an object.
    Member(String),
    /// Item of a list; negative from the end.
    Index(i64),
    /// All members or items.
    Wildcard,
    /// Items whose member equals a string.
    Filter { path: &'a str, expected: String },
}

/// Splits off the first segment of a path; `None` if it is invalid.
fn parse_segment(path: &str) -> Option<(Segment<'_>, &str)> {
    if let Some(rest) = path.strip_prefix("[?(") {
        let (condition, tail) = rest.split_once(")]")?;
        let (left, right) = condition.split_once("==")?;
        let path = left.trim().strip_prefix('@')?;
        return Some((Segment::Filter { path, expected: right.trim().trim_matches(['"', '\'']).to_owned() }, tail));
    }
    if let Some(rest) = path.strip_prefix('[') {
        let (content, tail) = rest.split_once(']')?;
        let segment = match content {
            "*" => Segment::Wildcard,
            text => match text.parse() {
                Ok(index) => Segment::Index(index),
                Err(_) => Segment::Member(text.trim_matches(['"', '\'']).to_owned()),
            },
        };
        return Some((segment, tail));
    }
    let rest = path.strip_prefix('.')?;
    let mut name = String::new();
    let mut characters = rest.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return Some((Segment::member(name), &rest[position..])),
            _ => name.push(character),
        }
    }
    Some((Segment::member(name), ""))
}

// === impl Segment ===

impl Segment<'_> {
    fn member(name: String) -> Self {
        if name == "*" { Self::Wildcard } else { Self::Member(name) }
    }

    fn select<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Member(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let position = if *index < 0 {
                    index.saturating_add(i64::try_from(items.len()).unwrap_or_default())
                } else {
                    *index
                };
                usize::try_from(position).ok().and_then(|position| items.get(position)).into_iter().collect()
            }
            Self::Wildcard => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(members) => members.values().collect(),
                _ => Vec::new(),
            },
            Self::Filter { path, expected } => {
                let items = value.as_array().into_iter().flatten();
                items.filter(|item| find(item, path).is_some_and(|member| text(&member) == *expected)).collect()
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(".spec.replicas", json!(3))]
    #[case(".status.conditions[?(@.type==\"Ready\")].status", json!("True"))]
    #[case(".metadata.labels.app\\.kubernetes\\.io/name", json!("web"))]
    #[case(".spec.ports[0].port", json!(80))]
    #[case(".spec.ports[-1].port", json!(81))]
    #[case(".spec.ports[*].port", json!(80))]
    #[case(".spec['replicas']", json!(3))]
    fn evaluates_paths(#[case] path: &str, #[case] expected: Value) {
        let object = json!({
            "metadata": {"labels": {"app.kubernetes.io/name": "web"}},
            "spec": {"replicas": 3, "ports": [{"port": 80}, {"port": 81}]},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        assert_eq!(find(&object, path), Some(expected));
    }
}
