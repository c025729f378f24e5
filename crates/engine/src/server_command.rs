//! Parses a container's command into the parameters of the inference server that it starts.
//!
//! Supported: `vllm serve MODEL …`, `python3 -m vllm.entrypoints.openai.api_server --model MODEL …`,
//! `python3 -m sglang.launch_server --model-path MODEL …`, any of these inside `sh -c "… && …"`, and bare arguments
//! (an image whose entry point is vLLM). Without a model argument, the environment variables `MODEL_PATH` and
//! `SERVED_MODEL_NAME` provide the model.

mod flags;
mod lora_modules;
mod shell;

use std::{net::IpAddr, time::Duration};

use flags::Flags;

pub use lora_modules::LoraModule;

/// Parameters of the inference server that a command line starts.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerCommand {
    /// The program that the command line starts.
    pub server: InferenceServer,
    /// Path or name of the model.
    pub model: String,
    /// `--served-model-name`; empty means the model itself.
    pub served_model_names: Vec<String>,
    /// vLLM's `--lora-modules`, if `--enable-lora` is set.
    pub lora_modules: Vec<LoraModule>,
    /// `--host`, if it is an IP address.
    pub host: Option<IpAddr>,
    /// Port to listen on (`--port`).
    pub port: u16,
    /// `--tensor-parallel-size`, at least 1.
    pub tensor_parallel_size: usize,
    /// `--max-num-seqs`, or SGLang's `--max-running-requests`.
    pub max_num_seqs: Option<usize>,
    /// `--max-model-len`, or SGLang's `--context-length`.
    pub max_model_len: Option<usize>,
    /// `--block-size`, or SGLang's `--page-size`.
    pub block_size: Option<usize>,
    /// Maximum time for completing requests after SIGTERM: vLLM's `--shutdown-timeout` in seconds; no limit for SGLang.
    pub shutdown_timeout: Duration,
    /// Whether vLLM serves its development routes (`VLLM_SERVER_DEV_MODE=1`).
    pub dev_mode: bool,
    /// `--enable-sleep-mode`.
    pub enable_sleep_mode: bool,
    /// `--gpu-memory-utilization`, more than 0 and at most 1.
    pub gpu_memory_utilization: Option<f64>,
    /// Rank of this node within its replica (`--node-rank`); only rank 0 serves requests.
    pub node_rank: usize,
}

/// Supported inference servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InferenceServer {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
}

// === impl ServerCommand ===

impl ServerCommand {
    /// Parses `command` and `args` of a container with the environment `env`. Returns `None` for a command line that starts
    /// no inference server: a Ray worker, a router or any other program.
    pub fn parse(command: &[String], args: &[String], env: &[(String, String)]) -> Option<Self> {
        let words: Vec<String> = command.iter().chain(args).cloned().collect();
        let uses_image_entrypoint = command.is_empty();
        let (server, flags) = match shell::script(&words) {
            Some(script) => shell::commands(script, env).into_iter().find_map(|words| find_server(&words, false))?,
            None => find_server(&words, uses_image_entrypoint)?,
        };
        from_flags(server, &Flags::parse(&flags), env)
    }
}

/// Returns the inference server that `words` start and the arguments after it. `uses_entry_point` is true if the image's
/// entry point gets the words as arguments.
fn find_server(words: &[String], uses_entry_point: bool) -> Option<(InferenceServer, Vec<String>)> {
    for (index, word) in words.iter().enumerate() {
        let program = word.rsplit('/').next().unwrap_or(word);
        let (server, skip) = match program {
            "vllm" if words.get(index + 1).is_some_and(|next| next == "serve") => (InferenceServer::Vllm, 2),
            "vllm.entrypoints.openai.api_server" | "api_server.py" => (InferenceServer::Vllm, 1),
            "sglang.launch_server" => (InferenceServer::Sglang, 1),
            "sglang" if words.get(index + 1).is_some_and(|next| next == "serve") => (InferenceServer::Sglang, 2),
            _ => continue,
        };
        return Some((server, words[index + skip..].to_vec()));
    }
    let starts_with_flag = words.first().is_none_or(|word| word.starts_with('-'));
    (uses_entry_point && starts_with_flag).then(|| (InferenceServer::Vllm, words.to_vec()))
}

fn from_flags(server: InferenceServer, flags: &Flags, env: &[(String, String)]) -> Option<ServerCommand> {
    let variable =
        |name: &str| env.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.clone());
    let (model_flags, context_length_flag, max_sequences_flag, default_port): (&[&str], _, _, _) = match server {
        InferenceServer::Vllm => (&["model"], "max-model-len", "max-num-seqs", 8000),
        InferenceServer::Sglang => (&["model-path", "model"], "context-length", "max-running-requests", 30_000),
    };
    let argument = flags.first_value(model_flags).or(flags.positional.as_ref()).cloned();
    // With a model argument, the served name defaults to the model and the environment is ignored.
    let name_from_env = if argument.is_none() { variable("SERVED_MODEL_NAME") } else { None };
    let model = argument.or_else(|| variable("MODEL_PATH"))?;
    let served_model_names = match flags.values_of("served-model-name") {
        [] => name_from_env.into_iter().collect(),
        names => names.to_vec(),
    };
    let tensor_parallel_flags = ["tensor-parallel-size", "tp-size", "tp"];
    Some(ServerCommand {
        server,
        model,
        served_model_names,
        lora_modules: match server {
            InferenceServer::Vllm if flags.is_set("enable-lora") => {
                lora_modules::parse(flags.values_of("lora-modules"))
            }
            InferenceServer::Vllm | InferenceServer::Sglang => Vec::new(),
        },
        host: flags.first_value(&["host"]).and_then(|host| host.parse().ok()),
        port: flags.first_value(&["port"]).and_then(|port| port.parse().ok()).unwrap_or(default_port),
        tensor_parallel_size: flags.number(&tensor_parallel_flags).unwrap_or(1).max(1),
        max_num_seqs: flags.number(&[max_sequences_flag]),
        max_model_len: flags.number(&[context_length_flag]),
        block_size: flags.number(&["block-size", "page-size"]),
        shutdown_timeout: match server {
            InferenceServer::Vllm => Duration::from_secs(flags.number(&["shutdown-timeout"]).unwrap_or(0) as u64),
            InferenceServer::Sglang => Duration::MAX,
        },
        dev_mode: server == InferenceServer::Vllm
            && variable("VLLM_SERVER_DEV_MODE")
                .and_then(|value| value.parse::<i64>().ok())
                .is_some_and(|value| value != 0),
        enable_sleep_mode: flags.is_set("enable-sleep-mode"),
        gpu_memory_utilization: flags
            .first_value(&["gpu-memory-utilization"])
            .and_then(|text| text.parse().ok())
            .filter(|utilization| *utilization > 0.0 && *utilization <= 1.0),
        node_rank: flags.number(&["node-rank"]).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn parse_line(command: &str, args: &str) -> Option<ServerCommand> {
        ServerCommand::parse(&words(command), &words(args), &[])
    }

    #[rstest]
    #[case("vllm serve /models/llama", "--port 9000", InferenceServer::Vllm, "/models/llama", 9000)]
    #[case("vllm", "serve meta/llama --port=9000", InferenceServer::Vllm, "meta/llama", 9000)]
    #[case("python3 -m vllm.entrypoints.openai.api_server", "--model /m", InferenceServer::Vllm, "/m", 8000)]
    #[case("python3 -m sglang.launch_server", "--model-path /m --port 8080", InferenceServer::Sglang, "/m", 8080)]
    #[case("python3 -m sglang.launch_server --model-path=/m", "", InferenceServer::Sglang, "/m", 30_000)]
    #[case("", "--model /m --port 8081", InferenceServer::Vllm, "/m", 8081)]
    #[case("/usr/local/bin/vllm serve m", "", InferenceServer::Vllm, "m", 8000)]
    fn parses_every_form_of_command_line(
        #[case] command: &str,
        #[case] args: &str,
        #[case] server: InferenceServer,
        #[case] model: &str,
        #[case] port: u16,
    ) {
        let line = parse_line(command, args).unwrap();
        assert_eq!((line.server, line.model.as_str(), line.port), (server, model, port));
    }

    #[test]
    fn parses_every_flag() {
        let vllm = parse_line(
            "vllm serve m",
            "--served-model-name a b --host 0.0.0.0 -tp 4 --max_model_len 32K --max-num-seqs=64 --trust-remote-code \
             --shutdown-timeout=120 --enable-sleep-mode --gpu-memory-utilization 0.8",
        )
        .unwrap();
        assert_eq!((vllm.enable_sleep_mode, vllm.gpu_memory_utilization), (true, Some(0.8)));
        assert_eq!(vllm.served_model_names, ["a", "b"]);
        assert_eq!(vllm.host, "0.0.0.0".parse().ok());
        assert_eq!((vllm.tensor_parallel_size, vllm.max_model_len, vllm.max_num_seqs), (4, Some(32_768), Some(64)));
        let sglang = parse_line(
            "python3 -m sglang.launch_server",
            "--model-path m --tp-size 8 --context-length 4096 --max-running-requests 32 --node-rank 1 --mem-frac=0.9",
        )
        .unwrap();
        assert_eq!((sglang.tensor_parallel_size, sglang.max_model_len, sglang.max_num_seqs), (8, Some(4096), Some(32)));
        assert_eq!(sglang.node_rank, 1);
        let default = parse_line("vllm serve m", "").unwrap();
        assert_eq!((default.enable_sleep_mode, default.gpu_memory_utilization), (false, None));
        assert_eq!(parse_line("vllm serve m", "--gpu-memory-utilization=7").unwrap().gpu_memory_utilization, None);
        let shutdown_timeouts = [vllm, sglang, default].map(|command| command.shutdown_timeout);
        assert_eq!(shutdown_timeouts, [Duration::from_secs(120), Duration::MAX, Duration::ZERO]);
    }

    #[test]
    fn finds_the_server_in_a_shell_script() {
        let script =
            "ray start --head --port=6379 && vllm serve $MODEL_PATH --served-model-name \"my model\" --port 8080";
        let command = ["sh", "-c", script].map(str::to_owned);
        let env = [("MODEL_PATH".to_owned(), "/mnt/llama".to_owned())];
        let line = ServerCommand::parse(&command, &[], &env).unwrap();
        assert_eq!((line.model.as_str(), line.port), ("/mnt/llama", 8080));
        assert_eq!(line.served_model_names, ["my model"]);
    }

    #[rstest]
    #[case::enabled("vllm serve m", "1", true)]
    #[case::disabled("vllm serve m", "0", false)]
    #[case::empty("vllm serve m", "", false)]
    #[case::other_server("python3 -m sglang.launch_server --model m", "1", false)]
    fn development_mode_is_a_variable_of_vllm(#[case] command: &str, #[case] value: &str, #[case] expected: bool) {
        let env = [("VLLM_SERVER_DEV_MODE".to_owned(), value.to_owned())];
        assert_eq!(ServerCommand::parse(&words(command), &[], &env).unwrap().dev_mode, expected);
    }

    #[test]
    fn takes_the_model_from_the_environment_by_default() {
        let env = [("MODEL_PATH", "/m"), ("SERVED_MODEL_NAME", "llama")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let line = ServerCommand::parse(&words("python3 -m sglang.launch_server"), &[], &env).unwrap();
        assert_eq!((line.model.as_str(), line.served_model_names), ("/m", vec!["llama".to_owned()]));
    }

    #[rstest]
    #[case::ray_worker("sh -c ray start --address=$LWS_LEADER_ADDRESS:6379 --block")]
    #[case::router("python3 -m sglang_router.launch_router --port 8080")]
    #[case::no_model("vllm serve")]
    #[case::other_program("sleep infinity")]
    fn ignores_other_programs(#[case] command: &str) {
        assert_eq!(parse_line(command, ""), None);
    }
}
