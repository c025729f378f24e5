//! Writing command lines for a POSIX shell, and recognising containers that bring their own.

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

/// `words` as one shell command that hands over exactly these words.
pub(crate) fn join(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
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
    for letter in joined.trim().chars() {
        match (quoted, letter) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (Some(open), _) if letter == open => quoted = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quoted = Some(letter),
            (None, ';' | '&' | '|' | '\n' | '#' | '<' | '>' | '`') => return false,
            (None, _) => {}
        }
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
    fn one_command(#[case] script: &str, #[case] expect: bool) {
        assert_eq!(is_one_command(script), expect);
    }
}
