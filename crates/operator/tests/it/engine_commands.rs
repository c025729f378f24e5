//! The commands with which the containers of roles start, run in real shells with stub programs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::simulated_cluster::{LEADER_WORKER_SETS, SimulatedCluster, StartedContainer, role, service_with_roles};
use crate::test_cluster::FUSIONINFER_SERVICES;

const CONNECTOR: &str = r#"{"kv_connector":"PyNcclConnector","kv_role":"kv_producer"}"#;
const LEADER_ADDRESS: &str = "LWS_LEADER_ADDRESS";

/// Programs that print their name and arguments: a record separator, then each word followed by NUL.
struct Stubs(TempDir);

impl Stubs {
    fn new() -> Self {
        let stubs = Self(tempfile::tempdir().unwrap());
        for program in ["ray", "vllm"] {
            stubs.write(program, "");
        }
        stubs.write("sleep", "exit 0");
        stubs
    }

    /// Writes a program that runs `script` first. Another process writes it: a program that this process has open cannot be
    /// executed.
    fn write(&self, program: &str, script: &str) {
        let write =
            r#"printf '%s\n' '#!/bin/sh' "$2" "printf '\\036'" "printf '%s\\0' $3 \"\$@\"" > "$1" && chmod 755 "$1""#;
        let path = self.0.path().join(program);
        let status = Command::new("/bin/sh").args(["-c", write, "sh"]).arg(path).args([script, program]).status();
        assert!(status.unwrap().success());
    }

    /// Runs the script of a container with `shell` as `/bin/sh`, and returns the commands that it runs.
    fn run(&self, shell: &str, container: &StartedContainer) -> Vec<Vec<String>> {
        assert_eq!(container.command, ["/bin/sh", "-c"]);
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        let mut command = Command::new(shell);
        command.arg("-c").args(&container.args).envs(&container.env).env("PATH", path);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let commands = text.split('\x1e').skip(1);
        commands.map(|command| command.split_terminator('\0').map(str::to_owned).collect()).collect()
    }
}

/// Story 2 as printed.
// spec: TOP-23
#[tokio::test(start_paused = true)]
async fn engines_get_the_connector_as_one_argument() {
    let cluster = SimulatedCluster::with_story_2().await;
    let mut connectors = BTreeMap::new();
    for pod in cluster.object_names("pods") {
        let container = cluster.started_container(&pod);
        assert!(container.command.is_empty(), "{pod} is not wrapped");
        let [model_flag, model, flag, connector] = &container.args[..] else { panic!("{pod}: {:?}", container.args) };
        assert_eq!([model_flag, model, flag], ["--model", "Qwen/Qwen3-8B", "--kv-transfer-config"], "{pod}");
        let connector: Value = serde_json::from_str(connector).unwrap();
        assert_eq!(connector["kv_connector"], "PyNcclConnector", "{pod}");
        let role = pod.strip_prefix("qwen-inference-service-").and_then(|rest| rest.split('-').next()).unwrap();
        let connector_role = connector["kv_role"].as_str().unwrap().to_owned();
        connectors.entry(role.to_owned()).or_insert_with(Vec::new).push(connector_role);
    }
    let expected = [("decode", vec!["kv_consumer"; 4]), ("prefill", vec!["kv_producer"; 2])];
    let expected = expected.map(|(role, roles)| (role.to_owned(), roles.into_iter().map(str::to_owned).collect()));
    assert_eq!(connectors, BTreeMap::from(expected));
}

/// Starts prefill and decode replicas of two nodes each.
async fn multi_node_cluster() -> SimulatedCluster {
    let cluster = SimulatedCluster::with_gpus(32);
    let with_connector = |mut role: Value| {
        let container = &mut role["template"]["spec"]["containers"][0];
        container.as_object_mut().unwrap().remove("command");
        container["args"] = json!(["--model", "deepseek-ai/DeepSeek-R1", "--kv-transfer-config", CONNECTOR]);
        role
    };
    let roles = [role("prefill", "prefiller", 1, 2, 8), role("decode", "decoder", 1, 2, 8)].map(with_connector);
    cluster.server.create(FUSIONINFER_SERVICES, service_with_roles("chat", roles.to_vec())).unwrap();
    cluster.wait_until_ready("chat").await;
    cluster
}

// spec: TOP-29
#[tokio::test(start_paused = true)]
async fn wrapped_leader_gets_the_connector_as_one_argument() {
    let cluster = multi_node_cluster().await;
    let leader = cluster.started_container("chat-prefill-0-0");
    let stubs = Stubs::new();
    for shell in ["/bin/sh", "/bin/dash", "/bin/bash"].into_iter().filter(|shell| Path::new(shell).exists()) {
        let commands = stubs.run(shell, &leader);
        assert_eq!(commands[0], ["ray", "start", "--head", "--port=6379"], "{shell}");
        let engine = ["vllm", "serve", "--model", "deepseek-ai/DeepSeek-R1", "--kv-transfer-config", CONNECTOR];
        assert_eq!(commands[1], [&engine[..], &["--distributed-executor-backend", "ray"]].concat(), "{shell}");
    }
}

/// The controller of LeaderWorkerSets sets the address. The first two attempts to connect to the head fail.
// spec: TOP-46
#[tokio::test(start_paused = true)]
async fn worker_joins_a_head_that_starts_later() {
    let cluster = multi_node_cluster().await;
    for set in cluster.server.list(LEADER_WORKER_SETS) {
        assert!(!set["spec"].to_string().contains(&format!("{{\"name\":\"{LEADER_ADDRESS}\"")), "{set:#}");
    }
    let [leader, worker] =
        ["chat-decode-0-0", "chat-decode-0-0-1"].map(|pod| cluster.server.get("pods", "default", pod).unwrap());
    for pod in [&leader, &worker] {
        let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        let variable = env.iter().find(|variable| variable["name"] == LEADER_ADDRESS).unwrap();
        assert_eq!(variable["value"], "chat-decode-0-0.chat-decode-0.default");
    }
    let worker = cluster.started_container("chat-decode-0-0-1");
    // Without a DNS server, the node agent resolves names of Pods.
    let address = worker.env[LEADER_ADDRESS].as_str();
    assert_eq!(leader["status"]["podIP"], address);

    let stubs = Stubs::new();
    let attempts = stubs.0.path().join("attempts");
    let health_check = format!(
        "if [ $1 = health-check ]; then echo \"$*\" >> {0}; [ $(wc -l < {0}) -ge 3 ]; exit; fi",
        attempts.display()
    );
    stubs.write("ray", &health_check);
    let join = ["ray".to_owned(), "start".to_owned(), format!("--address={address}:6379"), "--block".to_owned()];
    // The output of the health check is discarded.
    assert_eq!(stubs.run("/bin/sh", &worker), [join]);
    let attempts = std::fs::read_to_string(attempts).unwrap();
    assert_eq!(attempts.lines().collect::<Vec<_>>(), vec![format!("health-check --address={address}:6379"); 3]);
}
