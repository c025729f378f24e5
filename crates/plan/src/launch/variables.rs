//! Environment variables that a command refers to.
//!
//! The kubelet expands `$(NAME)` in `command` and `args` from the `env` and `envFrom` of the container, and leaves references to
//! other names unchanged (k8s.io/kubernetes `third_party/forked/golang/expansion`). Shells expand `$NAME` and `${NAME}`, whose
//! values may come from the image or from the script itself.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::shell::CommandLine;
use crate::pod;

/// Prefixes of variables that other controllers add to Pods: LeaderWorkerSet (`LWS_LEADER_ADDRESS`; `TPU_WORKER_ID` with TPUs)
/// and the API server's address.
const INJECTED_PREFIXES: [&str; 3] = ["LWS_", "TPU_", "KUBERNETES_"];
/// Variable with the location of the model.
pub(crate) const MODEL_PATH: &str = "MODEL_PATH";
/// Ends of the names of variables of Services, and what precedes the name of a port in them (Kubernetes documentation, Service,
/// Environment variables).
const SERVICE_SUFFIXES: [&str; 3] = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"];
const SERVICE_INFIX: &str = "_SERVICE_PORT_";
/// What precedes the number of a port.
const PORT_INFIX: &str = "_PORT_";

/// Returns the first variable in the command of `container` that is not defined. `None` if a source such as a ConfigMap may
/// define further variables.
pub(crate) fn undefined_variable(container: &Value) -> Option<String> {
    if has_unknown_variables(container) {
        return None;
    }
    let entries = container["env"].as_array().into_iter().flatten();
    let defined: BTreeSet<&str> = entries.filter_map(|entry| entry["name"].as_str()).collect();
    let is_undefined = |name: &&str| {
        !defined.contains(name)
            && !INJECTED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            && !SERVICE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
            && !name.contains(SERVICE_INFIX)
            && !name
                .split_once(PORT_INFIX)
                .is_some_and(|(_, port)| port.starts_with(|digit: char| digit.is_ascii_digit()))
    };
    let (script, words) = match CommandLine::parse(container) {
        CommandLine::Script { shell, script, parameters } => (Some(script), [shell, parameters].concat()),
        CommandLine::EntryPoint(words) | CommandLine::Words(words) => (None, words),
    };
    let in_script = script.as_deref().into_iter().flat_map(references).filter(|name| !is_command(name));
    let mut names = words.iter().flat_map(|word| references(word)).chain(in_script);
    names.find(is_undefined).map(str::to_owned)
}

/// Returns whether a source such as a ConfigMap may define further variables of `container`.
pub(crate) fn has_unknown_variables(container: &Value) -> bool {
    container["envFrom"].as_array().is_some_and(|sources| !sources.is_empty())
}

/// Returns whether `container` requires a definition of the variable: its command, or the value of another variable, refers to it in
/// the syntax of the kubelet, or a script does in that of a shell. A script that sets the variable requires none.
pub(crate) fn requires(container: &Value, name: &str) -> bool {
    let words = || {
        let fields = ["command", "args"].iter().flat_map(|field| container[*field].as_array().into_iter().flatten());
        fields.filter_map(Value::as_str)
    };
    let is_set = words().any(|word| assigns(word, name));
    env_refers_to(container, name)
        || words().any(|word| references(word).any(|other| other == name))
        || !is_set && words().any(|word| is_in_shell_syntax(word, name))
}

/// Returns whether a word of a script assigns a value to the variable, and not to one whose name ends with `name`.
fn assigns(word: &str, name: &str) -> bool {
    word.match_indices(&format!("{name}=")).any(|(start, _)| {
        !word[..start].ends_with(|character: char| character.is_ascii_alphanumeric() || character == '_')
    })
}

/// Returns whether the value of another variable in `env` refers to the variable.
fn env_refers_to(container: &Value, name: &str) -> bool {
    let entries = container["env"].as_array().into_iter().flatten();
    entries.filter_map(|entry| entry["value"].as_str()).any(|value| references(value).any(|other| other == name))
}

/// Returns whether `env` of `container` contains the variable.
pub(crate) fn is_defined(container: &Value, name: &str) -> bool {
    container["env"].as_array().is_some_and(|entries| entries.iter().any(|entry| entry["name"] == name))
}

/// Adds a variable unless `env` contains it, and returns whether it was added. The kubelet expands references in values of `env`
/// only to earlier variables, so one that others refer to becomes the first.
pub(crate) fn add_if_absent(container: &mut Value, name: &str, value: &str) -> bool {
    let item = json!({"name": name, "value": value});
    let is_referenced = env_refers_to(container, name);
    match container.get_mut("env").and_then(Value::as_array_mut) {
        Some(entries) if is_referenced && entries.iter().all(|entry| entry["name"] != name) => {
            entries.insert(0, item);
            true
        }
        _ => pod::add_if_absent(container, "env", "name", item),
    }
}

/// Returns the names of the references `$(NAME)` in `text`. `$$` is an escaped dollar sign.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let after = &rest[rest.find('$')? + 1..];
            if let Some(escaped) = after.strip_prefix('$') {
                rest = escaped;
                continue;
            }
            rest = after;
            let Some((name, _)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) else { continue };
            if is_variable_name(name) {
                return Some(name);
            }
        }
    })
}

/// Returns whether `name` is valid for an environment variable of a container.
fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|character: char| character.is_ascii_digit())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || "_-.".contains(character))
}

/// Returns whether `$(name)` in a script may be the output of a command: programs rarely have upper-case names.
fn is_command(name: &str) -> bool {
    name.chars().any(|character| character.is_ascii_lowercase())
}

/// Returns whether `text` contains `$name` or `${name}`, the latter without a default value.
fn is_in_shell_syntax(text: &str, name: &str) -> bool {
    let continues = |rest: &str| rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_');
    let has_default = |rest: &str| [":-", "-", ":=", "="].iter().any(|operator| rest.starts_with(operator));
    text.split('$').skip(1).any(|after| match after.strip_prefix('{') {
        Some(inner) => inner.strip_prefix(name).is_some_and(|rest| !continues(rest) && !has_default(rest)),
        None => after.strip_prefix(name).is_some_and(|rest| !continues(rest)),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::defined(json!({"args": ["--model", "$(M)"], "env": [{"name": "M", "value": "x"}]}), None)]
    #[case::from_a_source(json!({"args": ["$(M)"], "env": [{"name": "M", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}), None)]
    #[case::undefined(json!({"args": ["--model=$(M)"]}), Some("M"))]
    #[case::second_of_a_word(json!({"args": ["$(A)/$(B)"], "env": [{"name": "A", "value": "x"}]}), Some("B"))]
    #[case::escaped(json!({"args": ["$$(M)"]}), None)]
    #[case::escaped_dollar_before_reference(json!({"args": ["$$$(M)"]}), Some("M"))]
    #[case::config_map(json!({"args": ["$(M)"], "envFrom": [{"configMapRef": {"name": "c"}}]}), None)]
    #[case::leader_worker_set(json!({"command": ["vllm", "--master-addr", "$(LWS_LEADER_ADDRESS)"]}), None)]
    #[case::service(json!({"args": ["$(REDIS_SERVICE_HOST):$(REDIS_SERVICE_PORT)"]}), None)]
    #[case::command_substitution(json!({"command": ["sh", "-c", "vllm serve --host $(hostname) --seed $(date +%s)"]}), None)]
    #[case::in_a_script(json!({"command": ["bash", "-c"], "args": ["exec vllm serve $(MODEL_PATH)"]}), Some("MODEL_PATH"))]
    #[case::shell_variable(json!({"command": ["sh", "-c", "vllm serve ${MODEL} $PORT"]}), None)]
    #[case::not_a_reference(json!({"args": ["--chat-template", "{{ $(a b) }} $() $( $"]}), None)]
    #[case::service(json!({"args": ["$(REDIS_SERVICE_PORT_HTTP)", "$(REDIS_PORT_6379_TCP_ADDR)", "$(REDIS_PORT)"]}), None)]
    #[case::name_of_a_port(json!({"args": ["$(REDIS_PORT_NUMBER)"]}), Some("REDIS_PORT_NUMBER"))]
    #[case::program(json!({"command": ["$(PYTHON)", "-m", "x"]}), Some("PYTHON"))]
    fn finds_undefined_variables(#[case] container: Value, #[case] expect: Option<&str>) {
        assert_eq!(undefined_variable(&container).as_deref(), expect);
    }

    #[rstest]
    #[case::unreferenced(json!([{"name": "A", "value": "x"}]), &["A", "M"])]
    #[case::referenced(json!([{"name": "A", "value": "$(M)/x"}]), &["M", "A"])]
    #[case::defined(json!([{"name": "A", "value": "$(M)"}, {"name": "M", "value": "x"}]), &["A", "M"])]
    #[case::none(Value::Null, &["M"])]
    fn adds_variables_before_references(#[case] env: Value, #[case] expect: &[&str]) {
        let mut container = json!({"env": env});
        if env.is_null() {
            container = json!({});
        }
        add_if_absent(&mut container, "M", "m");
        let names: Vec<&str> =
            container["env"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
        assert_eq!(names, expect);
    }

    #[rstest]
    #[case("--model=$(M)", true)]
    #[case("exec vllm serve $M --port 1", true)]
    #[case("exec vllm serve ${M}", true)]
    #[case("exec vllm serve ${M:-x}", false)]
    #[case("M=/tmp/m; download $M; vllm serve $M", false)]
    #[case("BASE_M=/tmp; vllm serve $M", true)]
    #[case("export M=/tmp/m; vllm serve $M", false)]
    #[case("$MODEL", false)]
    #[case("$$(M)", false)]
    #[case("M", false)]
    fn finds_required_variables(#[case] word: &str, #[case] expect: bool) {
        assert_eq!(requires(&json!({"args": [word]}), "M"), expect);
    }
}
