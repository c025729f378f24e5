//! Multi-node engines that use the engine's own rendezvous. Leader and workers have the same flags; LeaderWorkerSet
//! sets the index and the leader's address as environment variables, which the kubelet expands in the arguments.

use decide::PodRole;
use serde_json::{Value, json};

use super::shell::{self, CommandLine};
use super::{append_args, has_flag};

const LEADER_ADDRESS: &str = "$(LWS_LEADER_ADDRESS)";
const WORKER_INDEX: &str = "$(LWS_WORKER_INDEX)";

/// Engines with a rendezvous of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// vLLM with multiprocessing instead of Ray; workers run headless.
    Vllm,
    /// SGLang; the rendezvous is at a port of the leader.
    Sglang,
}

/// Adds the missing flags to the command. Returns `false` if the script has more than one command, which does not distinguish
/// leader and workers.
pub(crate) fn add_flags(container: &mut Value, engine: Engine, nodes: u32, role: PodRole) -> bool {
    match CommandLine::parse(container) {
        CommandLine::Script { script, .. } if !shell::is_single_command(&script) => {
            super::distinguishes_pods(container)
        }
        CommandLine::Script { shell, script, parameters } => {
            let words: Vec<String> = script.split_whitespace().map(str::to_owned).collect();
            let flags = missing_flags(&words, engine, nodes, role);
            // The flags need no quotes, because their variables expand to a host name and a number.
            let script = [vec![shell::trim_continuation(&script).to_owned()], flags].concat().join(" ");
            container["command"] = json!(shell);
            container["args"] = json!([vec![script], parameters].concat());
            true
        }
        CommandLine::EntryPoint(words) | CommandLine::Words(words) => {
            let flags = missing_flags(&words, engine, nodes, role);
            append_args(container, flags.iter().map(String::as_str));
            true
        }
    }
}

/// Returns the rendezvous flags that `words` do not contain.
fn missing_flags(words: &[String], engine: Engine, nodes: u32, role: PodRole) -> Vec<String> {
    let is_present =
        |flag: &str| has_flag(words, flag) || flag_alias(engine, flag).is_some_and(|alias| has_flag(words, alias));
    rendezvous_flags(engine, nodes, role).into_iter().filter(|flag| !is_present(&flag[0])).flatten().collect()
}

/// Returns the engine's alias of `flag`.
fn flag_alias(engine: Engine, flag: &str) -> Option<&'static str> {
    match (engine, flag) {
        (Engine::Vllm, "--nnodes") => Some("-n"),
        (Engine::Vllm, "--node-rank") => Some("-r"),
        (Engine::Sglang, "--dist-init-addr") => Some("--nccl-init-addr"),
        _ => None,
    }
}

/// Returns the flags and values for the rendezvous.
fn rendezvous_flags(engine: Engine, nodes: u32, role: PodRole) -> Vec<Vec<String>> {
    let flag_with_value = |flag: &str, value: &str| vec![flag.to_owned(), value.to_owned()];
    let nodes = nodes.to_string();
    match engine {
        Engine::Vllm => {
            let mut flags = vec![
                flag_with_value("--distributed-executor-backend", "mp"),
                flag_with_value("--nnodes", &nodes),
                flag_with_value("--node-rank", WORKER_INDEX),
                flag_with_value("--master-addr", LEADER_ADDRESS),
            ];
            if role == PodRole::Worker {
                flags.push(vec!["--headless".to_owned()]);
            }
            flags
        }
        Engine::Sglang => vec![
            flag_with_value("--dist-init-addr", &format!("{LEADER_ADDRESS}:20000")),
            flag_with_value("--nnodes", &nodes),
            flag_with_value("--node-rank", WORKER_INDEX),
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
        Engine::Vllm, PodRole::Worker, json!({"args": ["--model", "m"]}),
        json!(["--model", "m", "--distributed-executor-backend", "mp", "--nnodes", "4", "--node-rank", "$(LWS_WORKER_INDEX)",
               "--master-addr", "$(LWS_LEADER_ADDRESS)", "--headless"])
    )]
    #[case::keeps_existing_flags(
        Engine::Vllm, PodRole::Leader, json!({"args": ["--nnodes=2", "--distributed_executor_backend", "mp", "--master-addr", "x"]}),
        json!(["--nnodes=2", "--distributed_executor_backend", "mp", "--master-addr", "x", "--node-rank", "$(LWS_WORKER_INDEX)"])
    )]
    #[case::sglang(
        Engine::Sglang, PodRole::Leader, json!({"args": ["--tp", "16"]}),
        json!(["--tp", "16", "--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000", "--nnodes", "4", "--node-rank", "$(LWS_WORKER_INDEX)"])
    )]
    #[case::alias(
        Engine::Sglang, PodRole::Worker, json!({"args": ["--nccl-init-addr", "x:1"]}),
        json!(["--nccl-init-addr", "x:1", "--nnodes", "4", "--node-rank", "$(LWS_WORKER_INDEX)"])
    )]
    #[case::shell(
        Engine::Sglang, PodRole::Leader, json!({"args": ["sh", "-c", "exec sglang serve --nnodes 4 --node-rank 1"]}),
        json!(["exec sglang serve --nnodes 4 --node-rank 1 --dist-init-addr $(LWS_LEADER_ADDRESS):20000"])
    )]
    fn adds_missing_flags(
        #[case] engine: Engine,
        #[case] role: PodRole,
        #[case] container: Value,
        #[case] args: Value,
    ) {
        let mut container = container;
        assert!(add_flags(&mut container, engine, 4, role));
        assert_eq!(container["args"], args);
    }

    #[rstest]
    #[case("cd /x; vllm serve m", false)]
    #[case("if [ $LWS_WORKER_INDEX = 0 ]; then vllm serve m; else vllm serve m --headless; fi", true)]
    fn does_not_change_scripts_with_several_commands(#[case] script: &str, #[case] joins: bool) {
        let mut container = json!({"command": ["sh", "-c", script]});
        let original = container.clone();
        assert_eq!(add_flags(&mut container, Engine::Vllm, 2, PodRole::Leader), joins);
        assert_eq!(container, original);
    }
}
