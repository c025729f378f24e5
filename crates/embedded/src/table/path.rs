//! The part of kubectl's JSONPath that printer columns use: members, indices, wildcards and `[?(@.a=="b")]`.

use serde_json::Value;

/// The first value at the path, like the printer of kube-apiserver.
pub(super) fn find(object: &Value, path: &str) -> Option<Value> {
    let mut found = vec![object];
    let mut rest = path.trim();
    while !rest.is_empty() {
        let (step, tail) = step(rest)?;
        found = found.into_iter().flat_map(|value| step.of(value)).collect();
        rest = tail;
    }
    found.first().map(|value| (*value).clone())
}

enum Step<'a> {
    Member(String),
    Index(i64),
    All,
    Where { path: &'a str, equals: String },
}

/// The first step of a path and what follows it; `None` when it does not parse.
fn step(path: &str) -> Option<(Step<'_>, &str)> {
    if let Some(rest) = path.strip_prefix("[?(") {
        let (condition, tail) = rest.split_once(")]")?;
        let (left, right) = condition.split_once("==")?;
        let path = left.trim().strip_prefix('@')?;
        return Some((Step::Where { path, equals: right.trim().trim_matches(['"', '\'']).to_owned() }, tail));
    }
    if let Some(rest) = path.strip_prefix('[') {
        let (inside, tail) = rest.split_once(']')?;
        let step = match inside {
            "*" => Step::All,
            text => match text.parse() {
                Ok(index) => Step::Index(index),
                Err(_) => Step::Member(text.trim_matches(['"', '\'']).to_owned()),
            },
        };
        return Some((step, tail));
    }
    let rest = path.strip_prefix('.')?;
    let mut name = String::new();
    let mut characters = rest.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return Some((Step::member(name), &rest[at..])),
            _ => name.push(character),
        }
    }
    Some((Step::member(name), ""))
}

// === impl Step ===

impl Step<'_> {
    fn member(name: String) -> Self {
        if name == "*" { Self::All } else { Self::Member(name) }
    }

    fn of<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Member(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let at = if *index < 0 { index + i64::try_from(items.len()).unwrap_or_default() } else { *index };
                usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
            }
            Self::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(members) => members.values().collect(),
                _ => Vec::new(),
            },
            Self::Where { path, equals } => {
                let items = value.as_array().into_iter().flatten();
                items.filter(|item| find(item, path).is_some_and(|found| text(&found) == *equals)).collect()
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
    fn paths(#[case] path: &str, #[case] expected: Value) {
        let object = json!({
            "metadata": {"labels": {"app.kubernetes.io/name": "web"}},
            "spec": {"replicas": 3, "ports": [{"port": 80}, {"port": 81}]},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        assert_eq!(find(&object, path), Some(expected));
    }
}
