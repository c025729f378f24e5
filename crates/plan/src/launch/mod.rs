//! Inspects a container's command: the engine, its port and the served model name. Reads `command`, `args` and literal `env`
//! values; `sh -c` scripts are split at white space.

pub(crate) mod native;
pub(crate) mod ray;
pub(crate) mod shell;
pub(crate) mod variables;

use std::collections::BTreeMap;

use serde_json::Value;

/// Information from a container's command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaunchInfo {
    /// `vllm`, `sglang`, `trtllm` or `triton`; `None` for an unknown engine.
    pub engine: Option<&'static str>,
    /// Port in the flags.
    pub port: Option<u16>,
    /// Model name that the engine serves, with `$(VAR)` expanded.
    pub served_model: Option<String>,
}

/// Inspects the command of one container.
pub(crate) fn inspect(container: &Value) -> LaunchInfo {
    let words = words(container);
    let image = container["image"].as_str().unwrap_or_default();
    let flag = |names: &[&str]| names.iter().find_map(|name| flag_value(&words, name));
    LaunchInfo {
        engine: decide::Engine::detect(image, words.iter().map(String::as_str)).map(decide::Engine::as_str),
        port: flag(&["--port"]).and_then(|port| port.parse().ok()),
        served_model: flag(&["--served-model-name", "--model-path", "--model"])
            .or_else(|| positional_model(&words))
            .or_else(|| entry_point_model(container, &words))
            .filter(|name| !name.contains("$(")),
    }
}

/// Returns the values of all flags `--port`. A script may start several programs.
pub(crate) fn port_flags(container: &Value) -> Vec<String> {
    flag_values(&words(container), "--port").collect()
}

/// Returns the serving port: the declared port named `http`, or the first declared port, or the port in the flags, or `default`.
pub(crate) fn port(container: &Value, default: u16) -> u16 {
    let declared_ports = || container["ports"].as_array().into_iter().flatten();
    let port = declared_ports().find(|port| port["name"] == "http").or_else(|| declared_ports().next());
    let number = port.and_then(|port| port["containerPort"].as_u64());
    number.and_then(|port| u16::try_from(port).ok()).or_else(|| inspect(container).port).unwrap_or(default)
}

/// Returns the default port of the engine.
pub(crate) fn default_port(container: &Value) -> Option<u16> {
    Some(match inspect(container).engine? {
        "vllm" | "trtllm" | "triton" => 8000,
        "sglang" => 30000,
        _ => return None,
    })
}

/// Returns the model argument of `vllm serve MODEL`.
fn positional_model(words: &[String]) -> Option<String> {
    let serve = words.windows(2).find(|pair| pair[0] == "serve")?;
    (!serve[1].starts_with('-')).then(|| serve[1].clone())
}

/// Returns the first argument if the image's entry point serves it as a model.
fn entry_point_model(container: &Value, words: &[String]) -> Option<String> {
    let uses_entry_point = container["command"].as_array().is_none_or(Vec::is_empty);
    words.first().filter(|first| uses_entry_point && names_model(container, first)).cloned()
}

/// Returns whether `argument`, the first one for the entry point of an image, is a model rather than a program. The entry
/// point of vLLM's images accepts both; programs are recognized by name.
pub(crate) fn names_model(container: &Value, argument: &str) -> bool {
    const PROGRAMS: [&str; 14] = [
        "vllm",
        "sglang",
        "ray",
        "env",
        "exec",
        "tini",
        "dumb-init",
        "numactl",
        "nsys",
        "timeout",
        "torchrun",
        "mpirun",
        "uv",
        "nice",
    ];
    let image = container["image"].as_str().unwrap_or_default();
    let file = argument.rsplit('/').next().unwrap_or_default();
    let is_program = PROGRAMS.contains(&file)
        || file.starts_with("python")
        || [".sh", ".py"].iter().any(|extension| file.ends_with(extension))
        || decide::is_shell(file);
    image.contains("vllm") && !argument.starts_with('-') && !is_program
}

/// Returns whether the command of `container` distinguishes the leader and the workers of a replica.
pub(crate) fn distinguishes_pods(container: &Value) -> bool {
    let markers = ["LWS_WORKER_INDEX", "node-rank", "node_rank"];
    let words = ["command", "args"].map(|field| container[field].to_string());
    markers.iter().any(|marker| words.iter().any(|text| text.contains(marker)))
}

/// Returns the first value of `--flag v` or `--flag=v`.
fn flag_value(words: &[String], flag: &str) -> Option<String> {
    flag_values(words, flag).next()
}

fn flag_values(words: &[String], flag: &str) -> impl Iterator<Item = String> {
    words.iter().enumerate().filter_map(move |(index, word)| match word.strip_prefix(flag)? {
        "" => words.get(index + 1).filter(|next| !next.starts_with("--")).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    })
}

/// Returns the words of the command, with variables expanded.
fn words(container: &Value) -> Vec<String> {
    let env = env(container);
    let fields = ["command", "args"].iter().flat_map(|field| container[*field].as_array().into_iter().flatten());
    fields.filter_map(Value::as_str).flat_map(split_words).map(|word| expand(&word, &env)).collect()
}

/// Returns whether `words` contain `flag`, as `--flag v` or `--flag=v`. `_` and `-` are equivalent.
pub(crate) fn has_flag(words: &[String], flag: &str) -> bool {
    words.iter().any(|word| word.split('=').next().is_some_and(|name| name.replace('_', "-") == flag))
}

/// Returns whether the command of `container`, or a script in it, contains `flag`.
pub(crate) fn mentions(container: &Value, flag: &str) -> bool {
    has_flag(&words(container), flag)
}

/// Returns whether the command of `container` starts an engine, rather than a program such as `ray start` in the image of an engine.
pub(crate) fn starts_engine(container: &Value) -> bool {
    let words = words(container);
    let uses_entry_point = container["command"].as_array().is_none_or(Vec::is_empty);
    let first = words.first().map(String::as_str).unwrap_or_default();
    if uses_entry_point && (first.is_empty() || first.starts_with('-') || names_model(container, first)) {
        return inspect(container).engine.is_some();
    }
    decide::Engine::detect("", words.iter().map(String::as_str)).is_some()
}

/// Returns the engine that receives flags which are appended to the command of `container`; `None` if the command is a script, which
/// would not pass them on, or starts an unknown engine.
pub(crate) fn flag_recipient(container: &Value) -> Option<&'static str> {
    let words = match shell::CommandLine::parse(container) {
        shell::CommandLine::Script { .. } => return None,
        shell::CommandLine::EntryPoint(words) | shell::CommandLine::Words(words) => words,
    };
    let program = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    let is_script = decide::is_shell(program) || program.ends_with(".sh");
    inspect(container).engine.filter(|_| !is_script)
}

/// Returns whether flags that are appended to the command of `container` are those of a server of vLLM or SGLang, rather than those of
/// another program in the image of an engine, or of a program whose name contains that of an engine.
pub(crate) fn starts_known_server(container: &Value) -> bool {
    let file = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let is_server = |pair: &[String]| match pair {
        [program, command] if command == "serve" => ["vllm", "sglang"].contains(&file(program).as_str()),
        [flag, module] if flag == "-m" => module == "sglang.launch_server" || module.starts_with("vllm.entrypoints."),
        _ => false,
    };
    match shell::CommandLine::parse(container) {
        shell::CommandLine::Script { .. } => false,
        shell::CommandLine::Words(words) => words.windows(2).any(is_server),
        shell::CommandLine::EntryPoint(words) => {
            let image = container["image"].as_str().unwrap_or_default();
            let first = words.first().map(String::as_str).unwrap_or_default();
            let is_argument = first.is_empty() || first.starts_with('-') || names_model(container, first);
            file(image).starts_with("vllm-openai") && is_argument || words.windows(2).any(is_server)
        }
    }
}

/// Appends arguments to the command of `container`.
pub(crate) fn append_args<'a>(container: &mut Value, args: impl IntoIterator<Item = &'a str>) {
    let added = args.into_iter().map(Value::from);
    match container.get_mut("args").and_then(Value::as_array_mut) {
        Some(words) => words.extend(added),
        None => container["args"] = added.collect(),
    }
}

/// Returns whether a word of the command of `container`, or of a script in it, starts with `prefix`.
pub(crate) fn mentions_value(container: &Value, prefix: &str) -> bool {
    words(container).iter().any(|word| word.starts_with(prefix))
}

/// Inserts arguments after the word `flag` of the command of `container`, and returns whether the command contains it.
pub(crate) fn insert_after<'a>(container: &mut Value, flag: &str, args: impl IntoIterator<Item = &'a str>) -> bool {
    for field in ["command", "args"] {
        let Some(words) = container.get_mut(field).and_then(Value::as_array_mut) else { continue };
        if let Some(index) = words.iter().position(|word| word == flag) {
            words.splice(index + 1..index + 1, args.into_iter().map(Value::from));
            return true;
        }
    }
    false
}

/// Splits a shell script into words; other arguments are one word. Line continuations are dropped.
fn split_words(argument: &str) -> Vec<String> {
    if !argument.contains("--") || !argument.contains(char::is_whitespace) {
        return vec![argument.to_owned()];
    }
    let unquote = |word: &str| word.trim_matches(['"', '\'']).to_owned();
    argument.split_whitespace().filter(|word| *word != "\\").map(unquote).collect()
}

fn env(container: &Value) -> BTreeMap<&str, &str> {
    let entries = container["env"].as_array().into_iter().flatten();
    entries.filter_map(|entry| Some((entry["name"].as_str()?, entry["value"].as_str()?))).collect()
}

/// Expands the kubelet's `$(VAR)`, and `$VAR` and `${VAR}` of shells if they are the whole word.
fn expand(word: &str, env: &BTreeMap<&str, &str>) -> String {
    let shell_variable = word.strip_prefix('$').map(|name| name.trim_start_matches('{').trim_end_matches('}'));
    if let Some(value) = shell_variable.and_then(|name| env.get(name)) {
        return (*value).to_owned();
    }
    env.iter().fold(word.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::flags(json!({"image": "vllm/vllm-openai:v0.11.0", "args": ["--model", "Qwen/Qwen3-8B"]}), Some("vllm"), None, Some("Qwen/Qwen3-8B"))]
    #[case::positional(json!({"image": "x", "command": ["vllm", "serve", "Qwen/Qwen3-8B", "--port=9000"]}), Some("vllm"), Some(9000), Some("Qwen/Qwen3-8B"))]
    #[case::served(
        json!({"image": "lmsysorg/sglang:v1", "command": ["python3", "-m", "sglang.launch_server", "--model-path", "$(MODEL_PATH)", "--served-model-name", "$(SERVED)"],
               "env": [{"name": "SERVED", "value": "chat"}]}),
        Some("sglang"), None, Some("chat"))]
    #[case::shell(
        json!({"image": "x/vllm", "command": ["sh", "-c"], "args": ["exec vllm serve --model $MODEL_PATH \\\n --port 8080"],
               "env": [{"name": "MODEL_PATH", "value": "/models/a"}]}),
        Some("vllm"), Some(8080), Some("/models/a"))]
    #[case::entry_point_of_the_image(json!({"image": "vllm/vllm-openai:v1", "args": ["Qwen/Qwen3-8B", "--port", "9"]}), Some("vllm"), Some(9), Some("Qwen/Qwen3-8B"))]
    #[case::unknown_variable(json!({"args": ["--model", "$(WHAT)"]}), None, None, None)]
    #[case::vllm_of_an_sglang_named_model(json!({"image": "vllm/vllm-openai", "args": ["--model", "sglang/x"]}), Some("vllm"), None, Some("sglang/x"))]
    fn inspects_commands(
        #[case] container: Value,
        #[case] engine: Option<&'static str>,
        #[case] port: Option<u16>,
        #[case] served: Option<&str>,
    ) {
        assert_eq!(inspect(&container), LaunchInfo { engine, port, served_model: served.map(str::to_owned) });
    }

    #[rstest]
    #[case::vllm(json!({"image": "vllm/vllm-openai:v0.11.0", "args": ["--model=m"]}), Some(8000))]
    #[case::sglang(json!({"image": "x", "command": ["python3", "-m", "sglang.launch_server"]}), Some(30000))]
    #[case::unknown_engine(json!({"image": "engine:1"}), None)]
    fn default_port_depends_on_the_engine(#[case] container: Value, #[case] expect: Option<u16>) {
        assert_eq!(default_port(&container), expect);
    }
}
