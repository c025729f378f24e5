//! Launch lines of leaders and workers, run by real shells with a stub in the engine's place: what the engine receives is
//! what the template says, whatever characters are in it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use api::fusioninfer::MultinodeBackend;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::multinode;

/// Programs that write what they were called with: a record separator, then every word with a NUL behind it.
struct Stubs(PathBuf);

impl Stubs {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ostler-launch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for program in ["ray", "vllm"] {
            let path = folder.join(program);
            std::fs::write(&path, format!("#!/bin/sh\nprintf '\\036'\nprintf '%s\\0' {program} \"$@\"\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(folder)
    }

    /// Every command that the container runs, as words. `shell` stands in for the image's `/bin/sh`.
    fn run(&self, shell: &str, container: &Value) -> Vec<Vec<String>> {
        let script = kubelet(container["args"][0].as_str().unwrap());
        let path = format!("{}:/usr/bin:/bin", self.0.display());
        let output = Command::new(shell)
            .args(["-c", &script])
            .env("PATH", path)
            .env("LWS_LEADER_ADDRESS", "leader.svc")
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let commands = text.split('\x1e').skip(1);
        commands.map(|command| command.split_terminator('\0').map(str::to_owned).collect()).collect()
    }
}

impl Drop for Stubs {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// What the kubelet puts in before a shell sees the line.
fn kubelet(script: &str) -> String {
    script.replace("$(PORT)", "8123")
}

fn shells() -> Vec<&'static str> {
    ["/bin/sh", "/bin/bash", "/bin/dash"].into_iter().filter(|shell| Path::new(shell).exists()).collect()
}

fn spread(args: &[&str]) -> multinode::Templates {
    let container = json!({"name": "engine", "image": "vllm/vllm-openai:v0.11.0", "args": args});
    let template = json!({"spec": {"containers": [container]}});
    multinode::spread(&template, 2, Some(MultinodeBackend::Ray), 8000).unwrap()
}

// spec: TOP-29
#[test]
fn the_engine_receives_what_the_template_says() {
    let stubs = Stubs::new("leader");
    let connector = r#"{"kv_connector":"PyNcclConnector","kv_role":"kv_producer"}"#;
    let given = [
        "--kv-transfer-config",
        connector,
        "--chat-template",
        "{% if x %}it's $HOME{% endif %}",
        "--port",
        "$(PORT)",
        "a  b",
        "",
    ];
    let leader = spread(&given).leader;
    for shell in shells() {
        let commands = stubs.run(shell, &leader["spec"]["containers"][0]);
        assert_eq!(commands[0], ["ray", "start", "--head", "--port=6379"], "{shell}");
        let expect = [
            "vllm",
            "serve",
            "--kv-transfer-config",
            connector,
            "--chat-template",
            "{% if x %}it's $HOME{% endif %}",
            "--port",
            "8123",
            "a  b",
            "",
            "--distributed-executor-backend",
            "ray",
        ];
        assert_eq!(commands[1], expect, "{shell}");
    }
}

// spec: TOP-45
#[test]
fn a_worker_asks_for_the_head_and_joins_it() {
    let stubs = Stubs::new("worker");
    let worker = spread(&[]).worker;
    for shell in shells() {
        let commands = stubs.run(shell, &worker["spec"]["containers"][0]);
        // The question's answer goes nowhere; what is left is the join.
        assert_eq!(commands, [["ray", "start", "--address=leader.svc:6379", "--block"]], "{shell}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn no_argument_changes_on_its_way(words in prop::collection::vec("[ -~\n\t]{0,12}", 0..6)) {
        let stubs = Stubs::new("any");
        let given: Vec<&str> = words.iter().map(String::as_str).collect();
        // A first word that is no flag is a program of the user's own.
        let given = [vec!["--model"], given].concat();
        let leader = spread(&given).leader;
        let commands = stubs.run("/bin/sh", &leader["spec"]["containers"][0]);
        let end = commands[1].len();
        let own = !given.iter().any(|word| word.starts_with("--distributed-executor-backend"));
        prop_assert!(own);
        prop_assert_eq!(&commands[1][2..end - 2], &given[..]);
    }
}
