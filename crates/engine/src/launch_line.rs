//! Reads a container's command line as the inference server it would start.
//!
//! Understood: `vllm serve MODEL …`, `python3 -m vllm.entrypoints.openai.api_server --model MODEL …`,
//! `python3 -m sglang.launch_server --model-path MODEL …`, any of these inside `sh -c "… && …"`, and bare arguments
//! (an image whose entry point is vLLM). A line that names no model has it from `MODEL_PATH` and `SERVED_MODEL_NAME`.

mod shell;

use std::net::IpAddr;

/// The server a command line starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchLine {
    pub server: Server,
    /// Path or name of the model.
    pub model: String,
    /// `--served-model-name`; empty means the model itself.
    pub served_model_names: Vec<String>,
    /// `--host`, when it is an address.
    pub host: Option<IpAddr>,
    pub port: u16,
    pub tensor_parallel: usize,
    pub max_num_seqs: Option<usize>,
    pub max_model_len: Option<usize>,
    pub block_size: Option<usize>,
    /// Place among the nodes of one replica (`--node-rank`); only node 0 answers requests.
    pub node_rank: usize,
}

/// Which program is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Vllm,
    Sglang,
}

/// The server that `command args…` starts with the environment `env`, or `None` if it starts none
/// (a Ray worker, a router, anything else).
pub fn parse(command: &[String], args: &[String], env: &[(String, String)]) -> Option<LaunchLine> {
    let words: Vec<String> = command.iter().chain(args).cloned().collect();
    let bare = command.is_empty();
    let (server, flags) = match shell::script(&words) {
        Some(script) => shell::commands(script, env).into_iter().find_map(|words| started(&words, false))?,
        None => started(&words, bare)?,
    };
    read(server, &Flags::read(&flags), env)
}

/// The program among `words` and the words behind it.
fn started(words: &[String], bare: bool) -> Option<(Server, Vec<String>)> {
    for (at, word) in words.iter().enumerate() {
        let program = word.rsplit('/').next().unwrap_or(word);
        let (server, skip) = match program {
            "vllm" if words.get(at + 1).is_some_and(|next| next == "serve") => (Server::Vllm, 2),
            "vllm.entrypoints.openai.api_server" | "api_server.py" => (Server::Vllm, 1),
            "sglang.launch_server" => (Server::Sglang, 1),
            "sglang" if words.get(at + 1).is_some_and(|next| next == "serve") => (Server::Sglang, 2),
            _ => continue,
        };
        return Some((server, words[at + skip..].to_vec()));
    }
    let only_flags = words.first().is_none_or(|word| word.starts_with('-'));
    (bare && only_flags).then(|| (Server::Vllm, words.to_vec()))
}

fn read(server: Server, flags: &Flags, env: &[(String, String)]) -> Option<LaunchLine> {
    let variable =
        |name: &str| env.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.clone());
    let (model_flags, length, seats, port): (&[&str], _, _, _) = match server {
        Server::Vllm => (&["model"], "max-model-len", "max-num-seqs", 8000),
        Server::Sglang => (&["model-path", "model"], "context-length", "max-running-requests", 30_000),
    };
    let stated = flags.first(model_flags).or(flags.positional.as_ref()).cloned();
    // An engine whose line names its model serves it by that name; one that says nothing leaves both to its image.
    let unsaid = if stated.is_none() { variable("SERVED_MODEL_NAME") } else { None };
    let model = stated.or_else(|| variable("MODEL_PATH"))?;
    let served = match flags.all("served-model-name") {
        [] => unsaid.into_iter().collect(),
        names => names.to_vec(),
    };
    let parallel = ["tensor-parallel-size", "tp-size", "tp"];
    Some(LaunchLine {
        server,
        model,
        served_model_names: served,
        host: flags.first(&["host"]).and_then(|host| host.parse().ok()),
        port: flags.first(&["port"]).and_then(|port| port.parse().ok()).unwrap_or(port),
        tensor_parallel: flags.number(&parallel).unwrap_or(1).max(1),
        max_num_seqs: flags.number(&[seats]),
        max_model_len: flags.number(&[length]),
        block_size: flags.number(&["block-size", "page-size"]),
        node_rank: flags.number(&["node-rank"]).unwrap_or(0),
    })
}

/// `--flag value`, `--flag=value`, `--flag a b`, and the first word that belongs to no flag.
struct Flags {
    values: Vec<(String, Vec<String>)>,
    positional: Option<String>,
}

impl Flags {
    fn read(words: &[String]) -> Self {
        let mut flags = Self { values: Vec::new(), positional: None };
        for word in words {
            match flag_name(word) {
                Some((name, value)) => flags.values.push((name, value.into_iter().collect())),
                None => match flags.values.last_mut() {
                    Some((_, values)) => values.push(word.clone()),
                    None => flags.positional = flags.positional.or(Some(word.clone())),
                },
            }
        }
        flags
    }

    fn all(&self, name: &str) -> &[String] {
        self.values.iter().rev().find(|(flag, _)| flag == name).map_or(&[], |(_, values)| values)
    }

    fn first(&self, names: &[&str]) -> Option<&String> {
        names.iter().find_map(|name| self.all(name).first())
    }

    fn number(&self, names: &[&str]) -> Option<usize> {
        self.first(names).and_then(|text| human_number(text))
    }
}

/// Name (dashes, without the leading ones) and the value behind `=`.
fn flag_name(word: &str) -> Option<(String, Option<String>)> {
    let body = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    // A negative number is a value.
    if !body.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return None;
    }
    let (name, value) = match body.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (body, None),
    };
    Some((name.replace('_', "-"), value))
}

/// vLLM's integers: `8192`, `32k` (thousands), `32K` (1024s), `1m`, `1M`.
fn human_number(text: &str) -> Option<usize> {
    let factor = match text.chars().last()? {
        'k' => 1_000.0,
        'K' => 1_024.0,
        'm' => 1_000_000.0,
        'M' => 1_048_576.0,
        _ => return text.parse().ok(),
    };
    let number: f64 = text[..text.len() - 1].parse().ok()?;
    (number >= 0.0).then_some((number * factor) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn line(command: &str, args: &str) -> Option<LaunchLine> {
        parse(&words(command), &words(args), &[])
    }

    #[rstest]
    #[case("vllm serve /models/llama", "--port 9000", Server::Vllm, "/models/llama", 9000)]
    #[case("vllm", "serve meta/llama --port=9000", Server::Vllm, "meta/llama", 9000)]
    #[case("python3 -m vllm.entrypoints.openai.api_server", "--model /m", Server::Vllm, "/m", 8000)]
    #[case("python3 -m sglang.launch_server", "--model-path /m --port 8080", Server::Sglang, "/m", 8080)]
    #[case("python3 -m sglang.launch_server --model-path=/m", "", Server::Sglang, "/m", 30_000)]
    #[case("", "--model /m --port 8081", Server::Vllm, "/m", 8081)]
    #[case("/usr/local/bin/vllm serve m", "", Server::Vllm, "m", 8000)]
    fn both_servers_in_every_spelling(
        #[case] command: &str,
        #[case] args: &str,
        #[case] server: Server,
        #[case] model: &str,
        #[case] port: u16,
    ) {
        let line = line(command, args).unwrap();
        assert_eq!((line.server, line.model.as_str(), line.port), (server, model, port));
    }

    #[test]
    fn every_flag_is_read() {
        let vllm = line(
            "vllm serve m",
            "--served-model-name a b --host 0.0.0.0 -tp 4 --max_model_len 32K --max-num-seqs=64 --trust-remote-code",
        )
        .unwrap();
        assert_eq!(vllm.served_model_names, ["a", "b"]);
        assert_eq!(vllm.host, "0.0.0.0".parse().ok());
        assert_eq!((vllm.tensor_parallel, vllm.max_model_len, vllm.max_num_seqs), (4, Some(32_768), Some(64)));
        let sglang = line(
            "python3 -m sglang.launch_server",
            "--model-path m --tp-size 8 --context-length 4096 --max-running-requests 32 --node-rank 1 --mem-frac=0.9",
        )
        .unwrap();
        assert_eq!((sglang.tensor_parallel, sglang.max_model_len, sglang.max_num_seqs), (8, Some(4096), Some(32)));
        assert_eq!(sglang.node_rank, 1);
    }

    #[test]
    fn a_shell_script_is_searched_for_the_server() {
        let script =
            "ray start --head --port=6379 && vllm serve $MODEL_PATH --served-model-name \"my model\" --port 8080";
        let command = ["sh", "-c", script].map(str::to_owned);
        let env = [("MODEL_PATH".to_owned(), "/mnt/llama".to_owned())];
        let line = parse(&command, &[], &env).unwrap();
        assert_eq!((line.model.as_str(), line.port), ("/mnt/llama", 8080));
        assert_eq!(line.served_model_names, ["my model"]);
    }

    #[test]
    fn names_come_from_the_environment_if_the_line_has_none() {
        let env = [("MODEL_PATH", "/m"), ("SERVED_MODEL_NAME", "llama")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let line = parse(&words("python3 -m sglang.launch_server"), &[], &env).unwrap();
        assert_eq!((line.model.as_str(), line.served_model_names), ("/m", vec!["llama".to_owned()]));
    }

    #[rstest]
    #[case::ray_worker("sh -c ray start --address=$LWS_LEADER_ADDRESS:6379 --block")]
    #[case::router("python3 -m sglang_router.launch_router --port 8080")]
    #[case::no_model("vllm serve")]
    #[case::other("sleep infinity")]
    fn other_programs_are_no_engine(#[case] command: &str) {
        assert_eq!(line(command, ""), None);
    }
}
