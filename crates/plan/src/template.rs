//! Template variables in container specifications (seed 001, note on templates). They refer to metadata of the service and are
//! not escaped. Other text in double braces, such as Jinja chat templates, is left unchanged.

use serde_json::Value;

use crate::owner::Owner;

/// Expands the variables in all strings of `value` except keys. Adds the names of missing metadata keys to `missing`.
pub(crate) fn substitute(value: &mut Value, owner: &Owner, missing: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains("{{") => *text = expand(text, owner, missing),
        Value::Array(items) => items.iter_mut().for_each(|item| substitute(item, owner, missing)),
        Value::Object(map) => map.values_mut().for_each(|item| substitute(item, owner, missing)),
        _ => {}
    }
}

fn expand(text: &str, owner: &Owner, missing: &mut Vec<String>) -> String {
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        output.push_str(&rest[..start]);
        rest = &rest[start..];
        // Expressions contain no braces, so the next brace ends the expression. This keeps the scan linear.
        let end = rest[2..].find(['{', '}']).map(|index| index + 2).filter(|index| rest[*index..].starts_with("}}"));
        let expression = end.and_then(|end| Some((end, lookup(rest[2..end].trim(), owner)?)));
        let Some((end, value)) = expression else {
            // Not a variable: skip only the braces, because a variable may follow inside.
            output.push_str("{{");
            rest = &rest[2..];
            continue;
        };
        match value {
            Lookup::Found(value) => output.push_str(&value),
            Lookup::Missing(name) => missing.push(name),
        }
        rest = &rest[end + 2..];
    }
    output.push_str(rest);
    output
}

/// Result of looking up an expression.
enum Lookup {
    /// The value.
    Found(String),
    /// `Labels[x]` or `Annotations[x]`, which the service does not have.
    Missing(String),
}

/// Looks up an expression; `None` if it is not a supported form.
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

/// Parses `.Labels.x`.
fn member(expression: &str) -> Option<(&str, &str)> {
    let (map, key) = expression.strip_prefix('.')?.split_once('.')?;
    let is_identifier = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_identifier.then_some((map, key))
}

/// Parses `index .Labels "a/b"`.
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
            labels: labels::from_pairs([("tier", "a<b&\"c\""), ("a/b", "slash")]),
            annotations: labels::from_pairs([("note", "hi")]),
            ..Owner::default()
        }
    }

    // spec: RT-40
    #[rstest]
    #[case::name("--served-model-name={{.Name}}", "--served-model-name=chat")]
    #[case::spaces("{{ .Namespace }}/{{.Name}}", "team-a/chat")]
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
    #[case::unclosed_variable("{{.Name", "{{.Name")]
    #[case::json("{\"a\":{\"b\":{{.Name}}}}", "{\"a\":{\"b\":chat}}")]
    #[case::inside_other_template("{{ x {{.Name}} }}", "{{ x chat }}")]
    #[case::single_brace("{{ } {{.Name}}", "{{ } chat")]
    #[case::only_braces(&"{".repeat(1 << 20), &"{".repeat(1 << 20))]
    fn expands_variables(#[case] text: &str, #[case] expect: &str) {
        assert_eq!(expand(text, &owner(), &mut Vec::new()), expect);
    }

    #[test]
    fn reports_missing_keys() {
        let mut missing = Vec::new();
        expand("{{.Labels.none}}", &owner(), &mut missing);
        assert_eq!(missing, ["Labels[none]"]);
    }
}
