//! Runs the commands of leaders and workers in real shells with stub programs, to check that the engine gets the exact arguments
//! of the template.

use std::path::Path;
use std::process::Command;

use api::fusioninfer::MultinodeBackend;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::multinode;

/// Value of a Secret with special characters.
const QUOTES: &str = r#"it's "$(id)" \n $HOME"#;

/// Stub programs that print their arguments: a record separator, then each word followed by NUL.
struct Stubs(TempDir);

impl Stubs {
    fn new() -> Self {
        let stubs = Self(tempfile::tempdir().unwrap());
        for program in ["ray", "vllm", "sglang"] {
            stubs.write_stub(program, &format!("printf '\\036'\nprintf '%s\\0' {program} \"$@\""));
        }
        stubs
    }

    /// Writes a stub with a separate process. A file opened for writing by this process may be inherited by a child of a
    /// concurrent test, and then it cannot be executed.
    fn write_stub(&self, program: &str, script: &str) {
        let write = r#"printf '%s\n' '#!/bin/sh' "$2" > "$1" && chmod 755 "$1""#;
        let path = self.0.path().join(program);
        let status = Command::new("/bin/sh").args(["-c", write, "sh"]).arg(path).arg(script).status();
        assert!(status.unwrap().success());
    }

    /// Runs a container without a shell and returns its commands as words.
    fn run_container(&self, container: &Value) -> Vec<Vec<String>> {
        let words = ["command", "args"].map(|field| container[field].as_array().cloned().unwrap_or_default()).concat();
        let words: Vec<String> = words.iter().map(|word| expand_as_kubelet(word.as_str().unwrap())).collect();
        self.commands_of(Command::new("/usr/bin/env").args(&words))
    }

    /// Runs the script of a container with `shell` as `/bin/sh` and returns its commands as words.
    fn run_script(&self, shell: &str, container: &Value) -> Vec<Vec<String>> {
        let script = expand_as_kubelet(container["args"][0].as_str().unwrap());
        self.commands_of(Command::new(shell).args(["-c", &script]))
    }

    fn commands_of(&self, command: &mut Command) -> Vec<Vec<String>> {
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        let variables = [("PATH", path.as_str()), ("LWS_LEADER_ADDRESS", "leader.svc"), ("KEY", QUOTES)];
        let output = command.envs(variables).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let commands = text.split('\x1e').skip(1);
        commands.map(|command| command.split_terminator('\0').map(str::to_owned).collect()).collect()
    }
}

/// Expands variables as the kubelet does.
fn expand_as_kubelet(script: &str) -> String {
    let variables = [("PORT", "8123"), ("LWS_LEADER_ADDRESS", "leader.svc"), ("LWS_WORKER_INDEX", "1")];
    variables.iter().fold(script.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

fn shells() -> Vec<&'static str> {
    ["/bin/sh", "/bin/bash", "/bin/dash"].into_iter().filter(|shell| Path::new(shell).exists()).collect()
}

fn templates_for(args: &[&str]) -> multinode::ReplicaTemplates {
    let container = json!({"name": "engine", "image": "vllm/vllm-openai:v0.11.0", "args": args});
    let template = json!({"spec": {"containers": [container]}});
    multinode::expand_template(&template, 2, Some(MultinodeBackend::Ray), 8000).unwrap()
}

// spec: TOP-29
#[test]
fn engine_gets_the_arguments_of_the_template() {
    let stubs = Stubs::new();
    let connector = r#"{"kv_connector":"PyNcclConnector","kv_role":"kv_producer"}"#;
    let arguments = [
        "--kv-transfer-config",
        connector,
        "--chat-template",
        "{% if x %}it's $HOME{% endif %}",
        "--port",
        "$(PORT)",
        "a  b",
        "",
    ];
    let leader = templates_for(&arguments).leader;
    for shell in shells() {
        let commands = stubs.run_script(shell, &leader["spec"]["containers"][0]);
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

/// The shell expands variables with quotes, because expansion by the kubelet could end a quoted word.
// spec: TOP-47
#[test]
fn values_with_quotes_are_preserved() {
    let stubs = Stubs::new();
    let container = json!({"name": "engine", "image": "vllm/vllm-openai:v0.11.0", "args": ["m", "--api-key", "$(KEY)", "--port=$(PORT)"],
        "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "PORT", "value": "8123"}]});
    let template = json!({"spec": {"containers": [container]}});
    let leader = multinode::expand_template(&template, 2, None, 8000).unwrap().leader;
    for shell in shells() {
        let commands = stubs.run_script(shell, &leader["spec"]["containers"][0]);
        let expect =
            ["vllm", "serve", "m", "--api-key", QUOTES, "--port=8123", "--distributed-executor-backend", "ray"];
        assert_eq!(commands[1], expect, "{shell}");
    }
}

// spec: TOP-45
#[test]
fn worker_joins_the_head() {
    let stubs = Stubs::new();
    let worker = templates_for(&[]).worker;
    for shell in shells() {
        let commands = stubs.run_script(shell, &worker["spec"]["containers"][0]);
        // The output of the health check is discarded.
        assert_eq!(commands, [["ray", "start", "--address=leader.svc:6379", "--block"]], "{shell}");
    }
}

// The first two health checks of the Ray stub fail; `sleep` is also a stub.
// spec: TOP-46
#[test]
fn worker_waits_for_the_head() {
    let stubs = Stubs::new();
    let calls = stubs.0.path().join("calls");
    let ray = format!(
        "if [ $1 = health-check ]; then echo x >> {0}; [ $(wc -l < {0}) -ge 3 ]; exit; fi; printf '\\036'; printf '%s\\0' ray \"$@\"",
        calls.display()
    );
    stubs.write_stub("ray", &ray);
    stubs.write_stub("sleep", "exit 0");
    let worker = templates_for(&[]).worker;
    let container = &worker["spec"]["containers"][0];
    let commands = stubs.run_script("/bin/sh", container);
    assert_eq!(commands, [["ray", "start", "--address=leader.svc:6379", "--block"]]);
    assert_eq!(std::fs::read_to_string(calls).unwrap().lines().count(), 3);
    // LeaderWorkerSet sets the address.
    assert!(!container["env"].to_string().contains("LWS_LEADER_ADDRESS"));
}

/// Leader and workers have the same arguments except for their rank.
#[rstest]
#[case::vllm("vllm", &["serve", "m"], &["--distributed-executor-backend", "mp", "--nnodes", "2", "--node-rank", "1", "--master-addr", "leader.svc"])]
#[case::sglang("sglang", &["serve", "m"], &["--dist-init-addr", "leader.svc:20000", "--nnodes", "2", "--node-rank", "1"])]
fn native_rendezvous_preserves_arguments(#[case] program: &str, #[case] words: &[&str], #[case] joined: &[&str]) {
    const SPECIAL: [&str; 5] = ["--json", r#"{"a":"it's","b":["$HOME"]}"#, "$(PORT)", "a  b", ""];
    let expanded = [words, &["--json", r#"{"a":"it's","b":["$HOME"]}"#, "8123", "a  b", ""]].concat();
    let stubs = Stubs::new();
    let words = [&[program], words, &SPECIAL].concat();
    let script = words.iter().map(|word| crate::launch::shell::quote(word)).collect::<Vec<_>>().join(" ");
    let lists = json!({"name": "engine", "image": "x", "command": [program], "args": words[1..]});
    let shell =
        json!({"name": "engine", "image": "x", "command": ["/bin/sh", "-c"], "args": [format!("exec {script}")]});
    for container in [lists, shell] {
        let template = json!({"spec": {"containers": [container]}});
        let templates = multinode::expand_template(&template, 2, Some(MultinodeBackend::Native), 8000).unwrap();
        for (template, headless) in [(templates.leader, false), (templates.worker, program == "vllm")] {
            let commands = stubs.run_container(&template["spec"]["containers"][0]);
            let mut expect = [&[program][..], &expanded, joined].concat();
            expect.extend(headless.then_some("--headless"));
            assert_eq!(commands, [expect]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn preserves_arbitrary_arguments(words in prop::collection::vec("[ -~\n\t]{0,12}", 0..6)) {
        let stubs = Stubs::new();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // If the first word is not a flag, it is a program.
        let arguments = [vec!["--model"], words].concat();
        let leader = templates_for(&arguments).leader;
        let commands = stubs.run_script("/bin/sh", &leader["spec"]["containers"][0]);
        let end = commands[1].len();
        let has_no_backend = !arguments.iter().any(|word| word.starts_with("--distributed-executor-backend"));
        prop_assert!(has_no_backend);
        prop_assert_eq!(&commands[1][2..end - 2], &arguments[..]);
    }
}
