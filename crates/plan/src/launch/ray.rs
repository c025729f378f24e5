//! Multi-node engines with Ray (seed 002, Example 2): the leader starts the Ray head and the engine, workers join the Ray
//! cluster.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::shell::{self, CommandLine};
use super::{has_flag, names_model};
use crate::pod;

/// Port of the Ray head.
pub(crate) const PORT: u16 = 6379;
const BACKEND_FLAG: &str = "--distributed-executor-backend";
/// Timeout of a worker that waits for the head, in seconds; afterwards `ray start` reports the error.
const HEAD_TIMEOUT_SECONDS: u32 = 600;

/// Configures the leader: `ray start --head … && ENGINE --distributed-executor-backend ray`. Scripts that already start
/// Ray are left unchanged.
pub(crate) fn configure_leader(container: &mut Value) {
    let shell_variables = shell::variables_with_quotes(container);
    let engine = match CommandLine::parse(container) {
        CommandLine::Script { script, .. } if script.contains("ray start") => return,
        CommandLine::Script { shell, script, parameters } => script_command(shell, script, parameters),
        CommandLine::EntryPoint(arguments) => {
            command_with_backend([entry_point_program(container, &arguments), arguments].concat(), &shell_variables)
        }
        CommandLine::Words(line) => command_with_backend(line, &shell_variables),
    };
    let script = format!("ray start --head --port={PORT} && {engine}");
    container["command"] = json!(["/bin/sh", "-c"]);
    container["args"] = json!([script]);
    let port = json!({"containerPort": PORT, "name": "ray-head", "protocol": "TCP"});
    pod::add_if_absent(container, "ports", "containerPort", port);
}

/// Configures a worker: waits for the head with a timeout and joins its cluster.
pub(crate) fn configure_worker(container: &mut Value) {
    let head_address = format!("$LWS_LEADER_ADDRESS:{PORT}");
    let wait_command = format!("until ray health-check --address={head_address} >/dev/null 2>&1; do sleep 2; done");
    let script = format!(
        "timeout {HEAD_TIMEOUT_SECONDS} /bin/sh -c '{wait_command}'; ray start --address={head_address} --block"
    );
    container["command"] = json!(["/bin/sh", "-c"]);
    container["args"] = json!([script]);
    if let Some(fields) = container.as_object_mut() {
        fields.remove("ports");
    }
}

/// Returns the program of the image's entry point, which the script must start explicitly. Empty if the arguments start with a
/// program.
fn entry_point_program(container: &Value, arguments: &[String]) -> Vec<String> {
    match arguments.first() {
        Some(first) if !first.starts_with('-') && !names_model(container, first) => Vec::new(),
        _ => vec!["vllm".to_owned(), "serve".to_owned()],
    }
}

/// Returns the command line with the backend flag.
fn command_with_backend(line: Vec<String>, shell_variables: &BTreeSet<String>) -> String {
    let has_backend = has_flag(&line, BACKEND_FLAG);
    let line = shell::quote_words(&line, shell_variables);
    if has_backend { line } else { format!("{line} {BACKEND_FLAG} ray") }
}

/// Returns the command that runs the user's script. A script without parameters that only a shell runs is inlined; other programs
/// before the shell (`env`, an init) and parameters are kept.
fn script_command(shell: Vec<String>, script: String, parameters: Vec<String>) -> String {
    let starts_with_shell = shell.first().is_some_and(|program| decide::is_shell(program));
    let no_shell_variables = BTreeSet::new();
    if !parameters.is_empty() {
        return shell::quote_words(&[shell, vec![script], parameters].concat(), &no_shell_variables);
    }
    let script = script_with_backend(script);
    if starts_with_shell { script } else { shell::quote_words(&[shell, vec![script]].concat(), &no_shell_variables) }
}

/// Appends the backend flag to a script with a single command. Other scripts must set it themselves.
fn script_with_backend(script: String) -> String {
    if script.contains(BACKEND_FLAG) || !shell::is_single_command(&script) {
        return script;
    }
    format!("{} {BACKEND_FLAG} ray", shell::trim_continuation(&script))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn script(container: Value) -> String {
        let mut container = container;
        configure_leader(&mut container);
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
    #[case::backend_in_args(
        json!({"command": ["vllm", "serve", "m"], "args": ["--distributed-executor-backend", "mp"]}),
        "ray start --head --port=6379 && vllm serve m --distributed-executor-backend mp"
    )]
    #[case::backend_in_command(
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
    #[case::after_env(json!({"command": ["env", "A=b", "sh", "-c", "vllm serve m"]}), "ray start --head --port=6379 && env A=b sh -c 'vllm serve m --distributed-executor-backend ray'")]
    #[case::continued(json!({"command": ["sh", "-c", "vllm serve m \\\n --tp 8 \\\n"]}), "ray start --head --port=6379 && vllm serve m \\\n --tp 8 --distributed-executor-backend ray")]
    #[case::subshell(json!({"command": ["sh", "-c", "(vllm serve m)"]}), "ray start --head --port=6379 && (vllm serve m)")]
    #[case::model_for_the_entry_point(json!({"image": "vllm/vllm-openai:v1", "args": ["Qwen/Qwen3-8B", "--tp=8"]}), "ray start --head --port=6379 && vllm serve Qwen/Qwen3-8B --tp=8 --distributed-executor-backend ray")]
    #[case::directory_for_entry_point(json!({"image": "vllm/vllm-openai:v1", "args": ["/models/q"]}), "ray start --head --port=6379 && vllm serve /models/q --distributed-executor-backend ray")]
    #[case::program_with_path(json!({"image": "vllm/vllm-openai:v1", "args": ["/usr/bin/python3", "-m", "x"]}), "ray start --head --port=6379 && /usr/bin/python3 -m x --distributed-executor-backend ray")]
    #[case::key_of_a_secret(
        json!({"command": ["vllm", "serve", "--api-key=$(KEY)"], "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}),
        r#"ray start --head --port=6379 && vllm serve --api-key="$KEY" --distributed-executor-backend ray"#
    )]
    #[case::script_starts_ray(json!({"command": ["sh", "-c"], "args": ["ray start --head; vllm serve m"]}), "ray start --head; vllm serve m")]
    fn configures_leaders(#[case] container: Value, #[case] expect: &str) {
        assert_eq!(script(container), expect);
    }

    // spec: TOP-43
    #[test]
    fn adds_the_port_of_the_head_once() {
        let mut container = json!({"ports": [{"containerPort": 8000, "name": "http"}, {"containerPort": 6379}]});
        configure_leader(&mut container);
        assert_eq!(container["ports"].as_array().unwrap().len(), 2);
        assert_eq!(container["command"], json!(["/bin/sh", "-c"]));
    }

    // spec: TOP-45
    #[test]
    fn worker_waits_for_the_head_and_joins() {
        let mut container = json!({"command": ["vllm"], "args": ["serve"], "ports": [{"containerPort": 8000}]});
        configure_worker(&mut container);
        let script = container["args"][0].as_str().unwrap();
        assert!(script.ends_with("; ray start --address=$LWS_LEADER_ADDRESS:6379 --block"), "{script}");
        assert!(script.starts_with("timeout 600 "), "{script}");
        assert_eq!(container.get("ports"), None);
    }
}
