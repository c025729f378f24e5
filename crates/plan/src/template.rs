//! Template variables in container specifications (seed 001, note on templates): metadata of the service, without escaping.
//! Whatever else stands in double braces — Jinja chat templates — is left byte for byte.

use serde_json::Value;

use crate::topology::Owner;

/// Substitutes in every string below `value`, keys excepted. Names of metadata keys that are missing are added to `missing`.
pub fn substitute(value: &mut Value, owner: &Owner, missing: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains("{{") => *text = expand(text, owner, missing),
        Value::Array(items) => items.iter_mut().for_each(|item| substitute(item, owner, missing)),
        Value::Object(map) => map.values_mut().for_each(|item| substitute(item, owner, missing)),
        _ => {}
    }
}

fn expand(text: &str, owner: &Owner, missing: &mut Vec<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        // No form of ours holds a brace, so the next one ends it: a megabyte of open braces is read once.
        let end = rest[2..].find(['{', '}']).map(|at| at + 2).filter(|at| rest[*at..].starts_with("}}"));
        let found = end.and_then(|end| Some((end, lookup(rest[2..end].trim(), owner)?)));
        let Some((end, value)) = found else {
            // Not ours: step over the braces only, so that a variable inside foreign braces is still seen.
            out.push_str("{{");
            rest = &rest[2..];
            continue;
        };
        match value {
            Lookup::Found(value) => out.push_str(&value),
            Lookup::Missing(name) => missing.push(name),
        }
        rest = &rest[end + 2..];
    }
    out.push_str(rest);
    out
}

enum Lookup {
    Found(String),
    Missing(String),
}

/// None if `expression` is not one of our forms.
fn lookup(expression: &str, owner: &Owner) -> Option<Lookup> {
    match expression {
        ".Name" => return Some(Lookup::Found(owner.name.clone())),
        ".Namespace" => return Some(Lookup::Found(owner.namespace.clone())),
        _ => {}
    }
    let (map, key) = member(expression).or_else(|| index(expression))?;
    let values = match map {
        "Labels" => &owner.labels,
        "Annotations" => &owner.annotations,
        _ => return None,
    };
    Some(match values.get(key) {
        Some(value) => Lookup::Found(value.clone()),
        None => Lookup::Missing(format!("{map}[{key}]")),
    })
}

/// `.Labels.x`
fn member(expression: &str) -> Option<(&str, &str)> {
    let (map, key) = expression.strip_prefix('.')?.split_once('.')?;
    let identifier = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    identifier.then_some((map, key))
}

/// `index .Labels "a/b"`
fn index(expression: &str) -> Option<(&str, &str)> {
    let rest = expression.strip_prefix("index")?;
    let rest = rest.strip_prefix(char::is_whitespace)?.trim_start().strip_prefix('.')?;
    let (map, key) = rest.split_once(char::is_whitespace)?;
    let key = key.trim_start().strip_prefix('"')?.strip_suffix('"')?;
    (!key.contains('"')).then_some((map, key))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::labels;

    fn owner() -> Owner {
        Owner {
            name: "chat".to_owned(),
            namespace: "team-a".to_owned(),
            labels: labels::of([("tier", "a<b&\"c\""), ("a/b", "slash")]),
            annotations: labels::of([("note", "hi")]),
            ..Owner::default()
        }
    }

    // spec: RT-40
    #[rstest]
    #[case::name("--served-model-name={{.Name}}", "--served-model-name=chat")]
    #[case::blanks("{{ .Namespace }}/{{.Name}}", "team-a/chat")]
    // spec: RT-41
    #[case::label("{{.Labels.tier}}", "a<b&\"c\"")]
    #[case::slash("{{index .Labels \"a/b\"}}", "slash")]
    #[case::annotation("{{ .Annotations.note }}", "hi")]
    #[case::missing("[{{.Labels.none}}]", "[]")]
    // spec: RT-43
    #[case::jinja(
        "{% for m in messages %}{{ m['content'] }}{{ bos_token }}{% endfor %}",
        "{% for m in messages %}{{ m['content'] }}{{ bos_token }}{% endfor %}"
    )]
    #[case::field_of_jinja("{{ message.Name }}", "{{ message.Name }}")]
    #[case::open("{{.Name", "{{.Name")]
    #[case::json("{\"a\":{\"b\":{{.Name}}}}", "{\"a\":{\"b\":chat}}")]
    #[case::inside_foreign("{{ x {{.Name}} }}", "{{ x chat }}")]
    #[case::one_brace_between("{{ } {{.Name}}", "{{ } chat")]
    #[case::only_braces(&"{".repeat(1 << 20), &"{".repeat(1 << 20))]
    fn forms(#[case] text: &str, #[case] expect: &str) {
        assert_eq!(expand(text, &owner(), &mut Vec::new()), expect);
    }

    #[test]
    fn a_missing_key_is_named() {
        let mut missing = Vec::new();
        expand("{{.Labels.none}}", &owner(), &mut missing);
        assert_eq!(missing, ["Labels[none]"]);
    }
}
