//! What a container's launch line says: which engine it is, where it answers, and what it calls its model.
//! Reads `command`, `args` and plain `env` values; `sh -c` strings are read as blank-separated words.

pub(crate) mod native;
pub(crate) mod ray;
pub(crate) mod shell;

use std::collections::BTreeMap;

use serde_json::Value;

/// Facts of a launch line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// `vllm`, `sglang`, `trtllm` or `triton`; None for an engine that we do not know.
    pub engine: Option<&'static str>,
    /// The port it is told to answer on.
    pub port: Option<u16>,
    /// The name under which the engine serves its model, `$(VAR)` expanded.
    pub served_model: Option<String>,
}

/// Reads one container.
pub fn read(container: &Value) -> Launch {
    let env = env(container);
    let words: Vec<String> = ["command", "args"]
        .iter()
        .flat_map(|field| container[*field].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .flat_map(words)
        .map(|word| expand(&word, &env))
        .collect();
    let image = container["image"].as_str().unwrap_or_default();
    let flag = |names: &[&str]| names.iter().find_map(|name| value_of(&words, name));
    Launch {
        engine: engine(image, &words),
        port: flag(&["--port"]).and_then(|port| port.parse().ok()),
        served_model: flag(&["--served-model-name", "--model-path", "--model"])
            .or_else(|| positional(&words))
            .or_else(|| for_entry_point(container, &words))
            .filter(|name| !name.contains("$(")),
    }
}

/// The serving port: the one named `http`, else the only or first one, else what the flags say, else `default`.
pub fn port(container: &Value, default: u16) -> u16 {
    let declared = || container["ports"].as_array().into_iter().flatten();
    let named = declared().find(|port| port["name"] == "http").or_else(|| declared().next());
    let number = named.and_then(|port| port["containerPort"].as_u64());
    number.and_then(|port| u16::try_from(port).ok()).or_else(|| read(container).port).unwrap_or(default)
}

/// Where a container answers that nobody tells a port: the engine's own default.
pub(crate) fn usual_port(container: &Value) -> Option<u16> {
    Some(match read(container).engine? {
        "vllm" | "trtllm" | "triton" => 8000,
        "sglang" => 30000,
        _ => return None,
    })
}

fn engine(image: &str, words: &[String]) -> Option<&'static str> {
    const ENGINES: &[(&str, &str)] =
        &[("sglang", "sglang"), ("vllm", "vllm"), ("trtllm", "trtllm"), ("tensorrt", "trtllm"), ("triton", "triton")];
    let known = |text: &str| ENGINES.iter().find(|(sign, _)| text.contains(sign)).map(|(_, engine)| *engine);
    // What is started says more than where it comes from; values such as a model's name say nothing.
    let started = words.iter().take_while(|word| !word.starts_with("--")).find_map(|word| known(word));
    started.or_else(|| known(image))
}

/// `vllm serve MODEL`
fn positional(words: &[String]) -> Option<String> {
    let serve = words.windows(2).find(|pair| pair[0] == "serve")?;
    (!serve[1].starts_with('-')).then(|| serve[1].clone())
}

/// `MODEL` as the first argument of an image that serves it by itself.
fn for_entry_point(container: &Value, words: &[String]) -> Option<String> {
    let starts_itself = container["command"].as_array().is_none_or(Vec::is_empty);
    words.first().filter(|first| starts_itself && names_model(container, first)).cloned()
}

/// Whether `first`, the first argument for the entry point of an image, is a model rather than a program: vLLM's images
/// serve what they are given, and a program is called by one of a few names.
pub(crate) fn names_model(container: &Value, first: &str) -> bool {
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
    let file = first.rsplit('/').next().unwrap_or_default();
    let program = PROGRAMS.contains(&file)
        || file.starts_with("python")
        || [".sh", ".py"].iter().any(|end| file.ends_with(end))
        || decide::merge::args::is_shell(file);
    image.contains("vllm") && !first.starts_with('-') && !program
}

/// Whether the launch line of `container` says itself which of the replica's Pods it starts.
pub(crate) fn tells_place(container: &Value) -> bool {
    let signs = ["LWS_WORKER_INDEX", "node-rank", "node_rank"];
    let words = ["command", "args"].map(|field| container[field].to_string());
    signs.iter().any(|sign| words.iter().any(|text| text.contains(sign)))
}

/// The first value of `--flag v` or `--flag=v`.
fn value_of(words: &[String], flag: &str) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(flag)? {
        "" => words.get(at + 1).filter(|next| !next.starts_with("--")).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    })
}

/// Whether `words` state `flag`, as `--flag v` or `--flag=v`; argparse takes `_` for `-`.
pub(crate) fn has_flag(words: &[String], flag: &str) -> bool {
    words.iter().any(|word| word.split('=').next().is_some_and(|name| name.replace('_', "-") == flag))
}

/// A shell string is several words, an argument is one. Continuation backslashes are no words.
fn words(argument: &str) -> Vec<String> {
    if !argument.contains("--") || !argument.contains(char::is_whitespace) {
        return vec![argument.to_owned()];
    }
    let clean = |word: &str| word.trim_matches(['"', '\'']).to_owned();
    argument.split_whitespace().filter(|word| *word != "\\").map(clean).collect()
}

fn env(container: &Value) -> BTreeMap<&str, &str> {
    let entries = container["env"].as_array().into_iter().flatten();
    entries.filter_map(|entry| Some((entry["name"].as_str()?, entry["value"].as_str()?))).collect()
}

/// Kubelet's `$(VAR)`, and a shell's `$VAR` and `${VAR}` where the word is nothing else.
fn expand(word: &str, env: &BTreeMap<&str, &str>) -> String {
    let whole = word.strip_prefix('$').map(|name| name.trim_start_matches('{').trim_end_matches('}'));
    if let Some(value) = whole.and_then(|name| env.get(name)) {
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
    #[case::of_the_image(json!({"image": "vllm/vllm-openai:v1", "args": ["Qwen/Qwen3-8B", "--port", "9"]}), Some("vllm"), Some(9), Some("Qwen/Qwen3-8B"))]
    #[case::unknown_variable(json!({"args": ["--model", "$(WHAT)"]}), None, None, None)]
    #[case::vllm_of_an_sglang_named_model(json!({"image": "vllm/vllm-openai", "args": ["--model", "sglang/x"]}), Some("vllm"), None, Some("sglang/x"))]
    fn lines(
        #[case] container: Value,
        #[case] engine: Option<&'static str>,
        #[case] port: Option<u16>,
        #[case] served: Option<&str>,
    ) {
        assert_eq!(read(&container), Launch { engine, port, served_model: served.map(str::to_owned) });
    }

    #[rstest]
    #[case::vllm(json!({"image": "vllm/vllm-openai:v0.11.0", "args": ["--model=m"]}), Some(8000))]
    #[case::sglang(json!({"image": "x", "command": ["python3", "-m", "sglang.launch_server"]}), Some(30000))]
    #[case::somebody_elses(json!({"image": "engine:1"}), None)]
    fn nobody_tells_an_engine_its_port(#[case] container: Value, #[case] expect: Option<u16>) {
        assert_eq!(usual_port(&container), expect);
    }
}
