//! One engine over several nodes with Ray (seed 002, Example 2): the leader starts the head and then the engine, workers
//! join and wait.

use std::collections::BTreeSet;

use decide::merge::args;
use serde_json::{Value, json};

use super::shell::{self, Line};
use super::{has_flag, names_model};
use crate::pod;

/// Where the head listens.
const PORT: u16 = 6379;
const BACKEND: &str = "--distributed-executor-backend";
/// Seconds that a worker waits for the head before it lets `ray start` say what is wrong.
const PATIENCE: u32 = 600;

/// Makes `container` the leader's: `ray start --head … && ENGINE --distributed-executor-backend ray`. A script that
/// starts Ray itself is left as it is.
pub(crate) fn leader(container: &mut Value) {
    let by_shell = shell::with_quotes(container);
    let engine = match Line::of(container) {
        Line::Script { script, .. } if script.contains("ray start") => return,
        Line::Script { shell, script, parameters } => in_script(shell, script, parameters),
        Line::EntryPoint(arguments) => words([entry_point(container, &arguments), arguments].concat(), &by_shell),
        Line::Words(line) => words(line, &by_shell),
    };
    let script = format!("ray start --head --port={PORT} && {engine}");
    container["command"] = json!(["/bin/sh", "-c"]);
    container["args"] = json!([script]);
    let port = json!({"containerPort": PORT, "name": "ray-head", "protocol": "TCP"});
    pod::add_if_absent(container, "ports", "containerPort", port);
}

/// Makes `container` a worker's: waits for the head, for a bounded time, and stays in its cluster.
pub(crate) fn worker(container: &mut Value) {
    let head = format!("$LWS_LEADER_ADDRESS:{PORT}");
    let reached = format!("until ray health-check --address={head} >/dev/null 2>&1; do sleep 2; done");
    let script = format!("timeout {PATIENCE} /bin/sh -c '{reached}'; ray start --address={head} --block");
    container["command"] = json!(["/bin/sh", "-c"]);
    container["args"] = json!([script]);
    if let Some(fields) = container.as_object_mut() {
        fields.remove("ports");
    }
}

/// What an image starts by itself, as far as a shell has to be told: arguments that begin with a program say it.
fn entry_point(container: &Value, arguments: &[String]) -> Vec<String> {
    match arguments.first() {
        Some(first) if !first.starts_with('-') && !names_model(container, first) => Vec::new(),
        _ => vec!["vllm".to_owned(), "serve".to_owned()],
    }
}

fn words(line: Vec<String>, by_shell: &BTreeSet<String>) -> String {
    let chosen = has_flag(&line, BACKEND);
    let line = shell::join(&line, by_shell);
    if chosen { line } else { format!("{line} {BACKEND} ray") }
}

/// The script itself where nothing but a shell runs it: ours does as well. Variables and an init before it stay, and so do
/// its parameters, which may bring the flags.
fn in_script(shell: Vec<String>, script: String, parameters: Vec<String>) -> String {
    let bare = shell.first().is_some_and(|program| args::is_shell(program));
    let kubelets = BTreeSet::new();
    if !parameters.is_empty() {
        return shell::join(&[shell, vec![script], parameters].concat(), &kubelets);
    }
    let script = with_backend(script);
    if bare { script } else { shell::join(&[shell, vec![script]].concat(), &kubelets) }
}

/// A script of several commands chooses its backend itself: nothing can be put behind it safely.
fn with_backend(script: String) -> String {
    if script.contains(BACKEND) || !shell::is_one_command(&script) {
        return script;
    }
    format!("{} {BACKEND} ray", shell::open_end(&script))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn script(container: Value) -> String {
        let mut container = container;
        leader(&mut container);
        container["args"][0].as_str().unwrap().to_owned()
    }

    #[rstest]
    // spec: TOP-44
    #[case::entry_point(
        json!({"args": ["--model", "deepseek-ai/DeepSeek-R1", "--tensor-parallel-size", "32"]}),
        "ray start --head --port=6379 && vllm serve --model deepseek-ai/DeepSeek-R1 --tensor-parallel-size 32 --distributed-executor-backend ray"
    )]
    #[case::program_in_args(json!({"args": ["vllm", "serve", "m"]}), "ray start --head --port=6379 && vllm serve m --distributed-executor-backend ray")]
    // spec: TOP-47
    #[case::chosen_in_args(
        json!({"command": ["vllm", "serve", "m"], "args": ["--distributed-executor-backend", "mp"]}),
        "ray start --head --port=6379 && vllm serve m --distributed-executor-backend mp"
    )]
    #[case::chosen_in_command(
        json!({"command": ["vllm", "serve", "m", "--distributed-executor-backend=mp"]}),
        "ray start --head --port=6379 && vllm serve m --distributed-executor-backend=mp"
    )]
    #[case::kubelet(json!({"command": ["vllm", "serve", "$(MODEL)"]}), "ray start --head --port=6379 && vllm serve '$(MODEL)' --distributed-executor-backend ray")]
    // spec: TOP-29
    #[case::json(
        json!({"args": ["--kv-transfer-config", r#"{"kv_connector":"PyNcclConnector","kv_role":"kv_producer"}"#]}),
        r#"ray start --head --port=6379 && vllm serve --kv-transfer-config '{"kv_connector":"PyNcclConnector","kv_role":"kv_producer"}' --distributed-executor-backend ray"#
    )]
    #[case::shell(json!({"command": ["sh", "-c", "exec vllm serve m"]}), "ray start --head --port=6379 && exec vllm serve m --distributed-executor-backend ray")]
    #[case::script(json!({"command": ["sh", "-c", "cd /x && vllm serve m"]}), "ray start --head --port=6379 && cd /x && vllm serve m")]
    #[case::behind_env(json!({"command": ["env", "A=b", "sh", "-c", "vllm serve m"]}), "ray start --head --port=6379 && env A=b sh -c 'vllm serve m --distributed-executor-backend ray'")]
    #[case::continued(json!({"command": ["sh", "-c", "vllm serve m \\\n --tp 8 \\\n"]}), "ray start --head --port=6379 && vllm serve m \\\n --tp 8 --distributed-executor-backend ray")]
    #[case::subshell(json!({"command": ["sh", "-c", "(vllm serve m)"]}), "ray start --head --port=6379 && (vllm serve m)")]
    #[case::model_for_the_entry_point(json!({"image": "vllm/vllm-openai:v1", "args": ["Qwen/Qwen3-8B", "--tp=8"]}), "ray start --head --port=6379 && vllm serve Qwen/Qwen3-8B --tp=8 --distributed-executor-backend ray")]
    #[case::folder_for_the_entry_point(json!({"image": "vllm/vllm-openai:v1", "args": ["/models/q"]}), "ray start --head --port=6379 && vllm serve /models/q --distributed-executor-backend ray")]
    #[case::program_of_a_path(json!({"image": "vllm/vllm-openai:v1", "args": ["/usr/bin/python3", "-m", "x"]}), "ray start --head --port=6379 && /usr/bin/python3 -m x --distributed-executor-backend ray")]
    #[case::key_of_a_secret(
        json!({"command": ["vllm", "serve", "--api-key=$(KEY)"], "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}),
        r#"ray start --head --port=6379 && vllm serve --api-key="$KEY" --distributed-executor-backend ray"#
    )]
    #[case::own_ray(json!({"command": ["sh", "-c"], "args": ["ray start --head; vllm serve m"]}), "ray start --head; vllm serve m")]
    fn leaders(#[case] container: Value, #[case] expect: &str) {
        assert_eq!(script(container), expect);
    }

    // spec: TOP-43
    #[test]
    fn the_head_has_one_port_beside_the_engines() {
        let mut container = json!({"ports": [{"containerPort": 8000, "name": "http"}, {"containerPort": 6379}]});
        leader(&mut container);
        assert_eq!(container["ports"].as_array().unwrap().len(), 2);
        assert_eq!(container["command"], json!(["/bin/sh", "-c"]));
    }

    // spec: TOP-45
    #[test]
    fn a_worker_waits_and_joins() {
        let mut container = json!({"command": ["vllm"], "args": ["serve"], "ports": [{"containerPort": 8000}]});
        worker(&mut container);
        let script = container["args"][0].as_str().unwrap();
        assert!(script.ends_with("; ray start --address=$LWS_LEADER_ADDRESS:6379 --block"), "{script}");
        assert!(script.starts_with("timeout 600 "), "{script}");
        assert_eq!(container.get("ports"), None);
    }
}
