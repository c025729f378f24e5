//! Parses container commands and quotes them for a POSIX shell.

use std::collections::BTreeSet;

use serde_json::Value;

/// Command and arguments of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommandLine {
    /// The image's entry point with these arguments.
    EntryPoint(Vec<String>),
    /// A program and its arguments.
    Words(Vec<String>),
    /// `sh -c SCRIPT`: the words before the script, the script, and its parameters.
    Script { shell: Vec<String>, script: String, parameters: Vec<String> },
}

impl CommandLine {
    /// Parses `command` and `args`.
    pub(crate) fn parse(container: &Value) -> Self {
        let command = strings(&container["command"]);
        let uses_entry_point = command.is_empty();
        let words = [command, strings(&container["args"])].concat();
        match decide::shell_script_index(&words).and_then(|index| Some((index, words.get(index)?))) {
            Some((index, script)) => Self::Script {
                shell: words[..index].to_vec(),
                script: script.clone(),
                parameters: words[index + 1..].to_vec(),
            },
            None if uses_entry_point => Self::EntryPoint(words),
            None => Self::Words(words),
        }
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Quotes `words` as one shell command. The shell, not the kubelet, expands `shell_variables`, because their values may
/// contain quotes.
pub(crate) fn quote_words(words: &[String], shell_variables: &BTreeSet<String>) -> String {
    words.iter().map(|word| quote_with_variables(word, shell_variables)).collect::<Vec<_>>().join(" ")
}

/// Returns the variables of `container` whose values may contain a single quote. The kubelet expands variables before the shell
/// parses the script, so a quote would end the word. Values from Secrets and ConfigMaps are unknown, so their variables
/// are included.
pub(crate) fn variables_with_quotes(container: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in container["env"].as_array().into_iter().flatten() {
        let source = &entry["valueFrom"];
        let is_unknown = ["secretKeyRef", "configMapKeyRef"].iter().any(|kind| source[*kind].is_object());
        let value = entry["value"].as_str().unwrap_or_default();
        let has_quote = value.contains('\'') || names.iter().any(|name| value.contains(&format!("$({name})")));
        match entry["name"].as_str().filter(|name| is_identifier(name)) {
            Some(name) if is_unknown || has_quote => names.insert(name.to_owned()),
            _ => false,
        };
    }
    names
}

/// Returns whether `name` is a valid variable name in a shell.
fn is_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Quotes `word` as [`quote`] does, except references to `shell_variables`, which are put in double quotes.
fn quote_with_variables(word: &str, shell_variables: &BTreeSet<String>) -> String {
    let (mut quoted, mut rest) = (String::new(), word);
    while let Some((index, name)) = first_reference(rest, shell_variables) {
        if index > 0 {
            quoted.push_str(&quote(&rest[..index]));
        }
        quoted.push_str(&format!("\"${name}\""));
        rest = &rest[index + name.len() + 3..];
    }
    if quoted.is_empty() || !rest.is_empty() {
        quoted.push_str(&quote(rest));
    }
    quoted
}

/// Returns the first reference `$(NAME)` to one of `names` in `text`. `$$(NAME)` is an escaped reference.
fn first_reference<'a>(text: &str, names: &'a BTreeSet<String>) -> Option<(usize, &'a str)> {
    let references = names.iter().filter_map(|name| {
        let reference = format!("$({name})");
        let mut indices = text.match_indices(&reference).map(|(index, _)| index);
        Some((indices.find(|index| !text[..*index].ends_with('$'))?, name.as_str()))
    });
    references.min()
}

/// Trims white space and line continuations at the end of `script`, so that words can be appended.
pub(crate) fn trim_continuation(script: &str) -> &str {
    let mut script = script.trim_end();
    while let Some(rest) = script.strip_suffix('\\').filter(|rest| !rest.ends_with('\\')) {
        script = rest.trim_end();
    }
    script
}

/// Quotes one word for a shell. Words with special characters are put in single quotes, in which the kubelet expands `$(VAR)` but
/// the shell expands nothing.
pub(crate) fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns whether `script` is a single command, so that arguments can be appended.
pub(crate) fn is_single_command(script: &str) -> bool {
    let joined = script.replace("\\\n", " ");
    let mut quoted = None;
    let mut escaped = false;
    let mut substitutions = 0_usize;
    let mut previous = ' ';
    for character in trim_continuation(joined.trim_start()).chars() {
        match (quoted, character) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (Some(open), _) if character == open => quoted = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quoted = Some(character),
            (None, '(') if previous == '$' => substitutions += 1,
            (None, ')') if substitutions > 0 => substitutions -= 1,
            (None, ';' | '&' | '|' | '\n' | '#' | '<' | '>' | '`' | '(' | ')') => return false,
            (None, _) => {}
        }
        previous = character;
    }
    quoted.is_none()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::plain("--tensor-parallel-size=8", "--tensor-parallel-size=8")]
    #[case::json(r#"{"kv_role":"kv_producer"}"#, r#"'{"kv_role":"kv_producer"}'"#)]
    #[case::kubelet("--port=$(PORT)", "'--port=$(PORT)'")]
    #[case::quote("it's", r"'it'\''s'")]
    #[case::empty("", "''")]
    fn quotes_words(#[case] word: &str, #[case] expect: &str) {
        assert_eq!(quote(word), expect);
    }

    #[rstest]
    #[case::no_variables(&[], "--key=$(KEY)", "'--key=$(KEY)'")]
    #[case::alone(&["KEY"], "$(KEY)", r#""$KEY""#)]
    #[case::inside(&["KEY"], "a b $(KEY)/$(PORT)", r#"'a b '"$KEY"'/$(PORT)'"#)]
    #[case::escaped(&["KEY"], "$$(KEY)", "'$$(KEY)'")]
    #[case::twice(&["A", "KEY"], "$(KEY)$(A)", r#""$KEY""$A""#)]
    fn shell_expands_variables_with_quotes(#[case] names: &[&str], #[case] word: &str, #[case] expect: &str) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(quote_words(&[word.to_owned()], &names), expect);
    }

    #[test]
    fn finds_variables_with_quotes() {
        let container = json!({"env": [
            {"name": "PLAIN", "value": "a b"},
            {"name": "QUOTED", "value": "it's"},
            {"name": "BUILT", "value": "x-$(QUOTED)"},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "no.identifier", "value": "'"},
        ]});
        assert_eq!(Vec::from_iter(variables_with_quotes(&container)), ["BUILT", "KEY", "QUOTED"]);
    }

    #[rstest]
    #[case("vllm serve m \\\n", "vllm serve m")]
    #[case("vllm serve m \\\n \\ \n", "vllm serve m")]
    #[case(r"vllm serve m\\", r"vllm serve m\\")]
    fn trims_line_continuations(#[case] script: &str, #[case] expect: &str) {
        assert_eq!(trim_continuation(script), expect);
    }

    #[rstest]
    #[case(json!({"args": ["--model", "m"]}), CommandLine::EntryPoint(vec!["--model".into(), "m".into()]))]
    #[case(json!({"command": ["vllm"], "args": ["serve"]}), CommandLine::Words(vec!["vllm".into(), "serve".into()]))]
    #[case(
        json!({"command": ["/bin/bash", "-lc"], "args": ["vllm serve m", "x"]}),
        CommandLine::Script { shell: vec!["/bin/bash".into(), "-lc".into()], script: "vllm serve m".into(), parameters: vec!["x".into()] }
    )]
    #[case(
        json!({"command": ["/usr/bin/env", "A=b", "sh", "-c"], "args": ["serve"]}),
        CommandLine::Script { shell: ["/usr/bin/env", "A=b", "sh", "-c"].map(String::from).into(), script: "serve".into(), parameters: vec![] }
    )]
    #[case(json!({"command": ["sh", "-c"]}), CommandLine::Words(vec!["sh".into(), "-c".into()]))]
    fn parses_commands(#[case] container: Value, #[case] expect: CommandLine) {
        assert_eq!(CommandLine::parse(&container), expect);
    }

    #[rstest]
    #[case("vllm serve m \\\n --port 1", true)]
    #[case("exec vllm serve 'a;b'", true)]
    #[case("cd /x && vllm serve m", false)]
    #[case("vllm serve m | tee log", false)]
    #[case("a\nb", false)]
    #[case("vllm serve 'open", false)]
    #[case("(vllm serve m)", false)]
    #[case("vllm serve $(cat /etc/model) --port 1", true)]
    #[case("vllm serve m \\\n --port 1 \\\n", true)]
    fn detects_single_commands(#[case] script: &str, #[case] expect: bool) {
        assert_eq!(is_single_command(script), expect);
    }
}
