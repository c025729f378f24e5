//! Writing command lines for a POSIX shell, and recognising containers that bring their own.

use std::collections::BTreeSet;

use decide::merge::args;
use serde_json::Value;

/// A container's launch line as it stands in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// The image's own entry point, with these arguments.
    EntryPoint(Vec<String>),
    /// A program and its arguments.
    Words(Vec<String>),
    /// The script of `sh -c SCRIPT`; what comes before it, and the script's own parameters after it.
    Script { shell: Vec<String>, script: String, parameters: Vec<String> },
}

impl Line {
    /// Reads `command` and `args`.
    pub(crate) fn of(container: &Value) -> Self {
        let command = strings(&container["command"]);
        let entry_point = command.is_empty();
        let words = [command, strings(&container["args"])].concat();
        match args::script_at(&words).and_then(|at| Some((at, words.get(at)?))) {
            Some((at, script)) => Self::Script {
                shell: words[..at].to_vec(),
                script: script.clone(),
                parameters: words[at + 1..].to_vec(),
            },
            None if entry_point => Self::EntryPoint(words),
            None => Self::Words(words),
        }
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// `words` as one shell command that hands over exactly these words. `by_shell` are variables that the shell has to put in,
/// because the kubelet would put in quotes as well.
pub(crate) fn join(words: &[String], by_shell: &BTreeSet<String>) -> String {
    words.iter().map(|word| quote_around(word, by_shell)).collect::<Vec<_>>().join(" ")
}

/// Variables of `container` that may hold a single quote: the kubelet puts values in before the shell reads its line, and a
/// quote would end the word there. What comes from Secrets and ConfigMaps is not known beforehand.
pub(crate) fn with_quotes(container: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in container["env"].as_array().into_iter().flatten() {
        let source = &entry["valueFrom"];
        let unknown = ["secretKeyRef", "configMapKeyRef"].iter().any(|from| source[*from].is_object());
        let value = entry["value"].as_str().unwrap_or_default();
        let holds = value.contains('\'') || found.iter().any(|name| value.contains(&format!("$({name})")));
        match entry["name"].as_str().filter(|name| is_identifier(name)) {
            Some(name) if unknown || holds => found.insert(name.to_owned()),
            _ => false,
        };
    }
    found
}

/// Whether a shell can call it by its name.
fn is_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// [`quote`], but for references to variables `by_shell`, which stand in double quotes.
fn quote_around(word: &str, by_shell: &BTreeSet<String>) -> String {
    let (mut out, mut rest) = (String::new(), word);
    while let Some((at, name)) = first_reference(rest, by_shell) {
        if at > 0 {
            out.push_str(&quote(&rest[..at]));
        }
        out.push_str(&format!("\"${name}\""));
        rest = &rest[at + name.len() + 3..];
    }
    if out.is_empty() || !rest.is_empty() {
        out.push_str(&quote(rest));
    }
    out
}

/// The first `$(NAME)` of `names` in `text`; `$$(NAME)` is how the kubelet's own syntax is escaped.
fn first_reference<'a>(text: &str, names: &'a BTreeSet<String>) -> Option<(usize, &'a str)> {
    let found = names.iter().filter_map(|name| {
        let reference = format!("$({name})");
        let mut places = text.match_indices(&reference).map(|(at, _)| at);
        Some((places.find(|at| !text[..*at].ends_with('$'))?, name.as_str()))
    });
    found.min()
}

/// `script` without blanks and continuation backslashes at its end, so that words can be put behind it.
pub(crate) fn open_end(script: &str) -> &str {
    let mut script = script.trim_end();
    while let Some(before) = script.strip_suffix('\\').filter(|before| !before.ends_with('\\')) {
        script = before.trim_end();
    }
    script
}

/// One word for a shell. A word without special characters stays bare; everything else is put in single quotes, inside
/// which the kubelet still replaces `$(VAR)` before the shell reads a letter, and the shell replaces nothing.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Whether `script` is one command, so that arguments may be put behind it.
pub(crate) fn is_one_command(script: &str) -> bool {
    let joined = script.replace("\\\n", " ");
    let mut quoted = None;
    let mut escaped = false;
    let mut substitutions = 0_usize;
    let mut before = ' ';
    for letter in open_end(joined.trim_start()).chars() {
        match (quoted, letter) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (Some(open), _) if letter == open => quoted = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quoted = Some(letter),
            (None, '(') if before == '$' => substitutions += 1,
            (None, ')') if substitutions > 0 => substitutions -= 1,
            (None, ';' | '&' | '|' | '\n' | '#' | '<' | '>' | '`' | '(' | ')') => return false,
            (None, _) => {}
        }
        before = letter;
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
    fn words(#[case] word: &str, #[case] expect: &str) {
        assert_eq!(quote(word), expect);
    }

    /// The kubelet would put a quote into the middle of the shell's line.
    #[rstest]
    #[case::nothing_known(&[], "--key=$(KEY)", "'--key=$(KEY)'")]
    #[case::alone(&["KEY"], "$(KEY)", r#""$KEY""#)]
    #[case::inside(&["KEY"], "a b $(KEY)/$(PORT)", r#"'a b '"$KEY"'/$(PORT)'"#)]
    #[case::escaped(&["KEY"], "$$(KEY)", "'$$(KEY)'")]
    #[case::twice(&["A", "KEY"], "$(KEY)$(A)", r#""$KEY""$A""#)]
    fn variables_that_the_shell_puts_in(#[case] names: &[&str], #[case] word: &str, #[case] expect: &str) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(join(&[word.to_owned()], &names), expect);
    }

    #[test]
    fn values_that_may_hold_a_quote() {
        let container = json!({"env": [
            {"name": "PLAIN", "value": "a b"},
            {"name": "QUOTED", "value": "it's"},
            {"name": "BUILT", "value": "x-$(QUOTED)"},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "no.identifier", "value": "'"},
        ]});
        assert_eq!(Vec::from_iter(with_quotes(&container)), ["BUILT", "KEY", "QUOTED"]);
    }

    #[rstest]
    #[case("vllm serve m \\\n", "vllm serve m")]
    #[case("vllm serve m \\\n \\ \n", "vllm serve m")]
    #[case(r"vllm serve m\\", r"vllm serve m\\")]
    fn ends_that_words_can_follow(#[case] script: &str, #[case] expect: &str) {
        assert_eq!(open_end(script), expect);
    }

    #[rstest]
    #[case(json!({"args": ["--model", "m"]}), Line::EntryPoint(vec!["--model".into(), "m".into()]))]
    #[case(json!({"command": ["vllm"], "args": ["serve"]}), Line::Words(vec!["vllm".into(), "serve".into()]))]
    #[case(
        json!({"command": ["/bin/bash", "-lc"], "args": ["vllm serve m", "x"]}),
        Line::Script { shell: vec!["/bin/bash".into(), "-lc".into()], script: "vllm serve m".into(), parameters: vec!["x".into()] }
    )]
    #[case(
        json!({"command": ["/usr/bin/env", "A=b", "sh", "-c"], "args": ["serve"]}),
        Line::Script { shell: ["/usr/bin/env", "A=b", "sh", "-c"].map(String::from).into(), script: "serve".into(), parameters: vec![] }
    )]
    #[case(json!({"command": ["sh", "-c"]}), Line::Words(vec!["sh".into(), "-c".into()]))]
    fn lines(#[case] container: Value, #[case] expect: Line) {
        assert_eq!(Line::of(&container), expect);
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
    fn one_command(#[case] script: &str, #[case] expect: bool) {
        assert_eq!(is_one_command(script), expect);
    }
}
