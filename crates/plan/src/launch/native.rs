//! One engine over several nodes by the engine's own rendezvous, without Ray. The same flags stand on leader and workers:
//! LeaderWorkerSet tells each Pod its index and the leader's address, and the kubelet writes them into the arguments.

use serde_json::{Value, json};

use super::has_flag;
use super::shell::{self, Line};

const ADDRESS: &str = "$(LWS_LEADER_ADDRESS)";
const INDEX: &str = "$(LWS_WORKER_INDEX)";

/// Engines that join nodes by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Vllm,
    Sglang,
}

/// Which Pod of a replica a container is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Leader,
    Worker,
}

/// Adds the flags that the line does not state. `false` if they cannot be added: the script is more than one command.
pub(crate) fn join(container: &mut Value, engine: Engine, nodes: u32, place: Place) -> bool {
    match Line::of(container) {
        Line::Script { script, .. } if !shell::is_one_command(&script) => script.contains("node-rank"),
        Line::Script { shell, script, parameters } => {
            let stated: Vec<String> = script.split_whitespace().map(str::to_owned).collect();
            let more = missing(&stated, engine, nodes, place);
            // No quotes: what the kubelet puts in are a name and a number.
            let script = [vec![script.trim_end().to_owned()], more].concat().join(" ");
            container["command"] = json!(shell);
            container["args"] = json!([vec![script], parameters].concat());
            true
        }
        Line::EntryPoint(words) | Line::Words(words) => {
            let more = missing(&words, engine, nodes, place);
            let args = container["args"].as_array().cloned().unwrap_or_default();
            let more = more.into_iter().map(Value::String).collect();
            container["args"] = Value::Array([args, more].concat());
            true
        }
    }
}

fn missing(stated: &[String], engine: Engine, nodes: u32, place: Place) -> Vec<String> {
    flags(engine, nodes, place).into_iter().filter(|flag| !has_flag(stated, flag[0].as_str())).flatten().collect()
}

fn flags(engine: Engine, nodes: u32, place: Place) -> Vec<Vec<String>> {
    let pair = |flag: &str, value: &str| vec![flag.to_owned(), value.to_owned()];
    let nodes = nodes.to_string();
    match engine {
        Engine::Vllm => {
            let mut flags = vec![
                pair("--distributed-executor-backend", "mp"),
                pair("--nnodes", &nodes),
                pair("--node-rank", INDEX),
                pair("--master-addr", ADDRESS),
            ];
            if place == Place::Worker {
                flags.push(vec!["--headless".to_owned()]);
            }
            flags
        }
        Engine::Sglang => vec![
            pair("--dist-init-addr", &format!("{ADDRESS}:20000")),
            pair("--nnodes", &nodes),
            pair("--node-rank", INDEX),
        ],
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    // spec: TOP-49
    #[case::vllm_worker(
        Engine::Vllm, Place::Worker, json!({"args": ["--model", "m"]}),
        json!(["--model", "m", "--distributed-executor-backend", "mp", "--nnodes", "4", "--node-rank", "$(LWS_WORKER_INDEX)",
               "--master-addr", "$(LWS_LEADER_ADDRESS)", "--headless"])
    )]
    #[case::stated_stays(
        Engine::Vllm, Place::Leader, json!({"args": ["--nnodes=2", "--distributed_executor_backend", "mp", "--master-addr", "x"]}),
        json!(["--nnodes=2", "--distributed_executor_backend", "mp", "--master-addr", "x", "--node-rank", "$(LWS_WORKER_INDEX)"])
    )]
    #[case::sglang(
        Engine::Sglang, Place::Leader, json!({"args": ["--tp", "16"]}),
        json!(["--tp", "16", "--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000", "--nnodes", "4", "--node-rank", "$(LWS_WORKER_INDEX)"])
    )]
    #[case::shell(
        Engine::Sglang, Place::Leader, json!({"args": ["sh", "-c", "exec sglang serve --nnodes 4 --node-rank 1"]}),
        json!(["exec sglang serve --nnodes 4 --node-rank 1 --dist-init-addr $(LWS_LEADER_ADDRESS):20000"])
    )]
    fn lines(#[case] engine: Engine, #[case] place: Place, #[case] container: Value, #[case] args: Value) {
        let mut container = container;
        assert!(join(&mut container, engine, 4, place));
        assert_eq!(container["args"], args);
    }

    #[test]
    fn a_script_of_several_commands_is_not_touched() {
        let mut container = json!({"command": ["sh", "-c", "cd /x; vllm serve m"]});
        let before = container.clone();
        assert!(!join(&mut container, Engine::Vllm, 2, Place::Leader));
        assert_eq!(container, before);
    }
}
