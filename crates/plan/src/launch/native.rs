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
        Line::Script { script, .. } if !shell::is_one_command(&script) => super::tells_place(container),
        Line::Script { shell, script, parameters } => {
            let stated: Vec<String> = script.split_whitespace().map(str::to_owned).collect();
            let more = missing(&stated, engine, nodes, place);
            // No quotes: what the kubelet puts in are a name and a number.
            let script = [vec![shell::open_end(&script).to_owned()], more].concat().join(" ");
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
    let is_stated =
        |flag: &str| has_flag(stated, flag) || also(engine, flag).is_some_and(|other| has_flag(stated, other));
    flags(engine, nodes, place).into_iter().filter(|flag| !is_stated(&flag[0])).flatten().collect()
}

/// Another name that the engine has for `flag`.
fn also(engine: Engine, flag: &str) -> Option<&'static str> {
    match (engine, flag) {
        (Engine::Vllm, "--nnodes") => Some("-n"),
        (Engine::Vllm, "--node-rank") => Some("-r"),
        (Engine::Sglang, "--dist-init-addr") => Some("--nccl-init-addr"),
        _ => None,
    }
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
    #[case::by_another_name(
        Engine::Sglang, Place::Worker, json!({"args": ["--nccl-init-addr", "x:1"]}),
        json!(["--nccl-init-addr", "x:1", "--nnodes", "4", "--node-rank", "$(LWS_WORKER_INDEX)"])
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

    #[rstest]
    #[case("cd /x; vllm serve m", false)]
    #[case("if [ $LWS_WORKER_INDEX = 0 ]; then vllm serve m; else vllm serve m --headless; fi", true)]
    fn a_script_of_several_commands_is_not_touched(#[case] script: &str, #[case] joins: bool) {
        let mut container = json!({"command": ["sh", "-c", script]});
        let before = container.clone();
        assert_eq!(join(&mut container, Engine::Vllm, 2, Place::Leader), joins);
        assert_eq!(container, before);
    }
}
