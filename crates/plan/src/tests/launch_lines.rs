//! Launch lines of leaders and workers, run by real shells with a stub in the engine's place: what the engine receives is
//! what the template says, whatever characters are in it.

use std::path::Path;
use std::process::Command;

use api::fusioninfer::MultinodeBackend;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::multinode;

/// What a Secret may hold.
const QUOTES: &str = r#"it's "$(id)" \n $HOME"#;

/// Programs that write what they were called with: a record separator, then every word with a NUL behind it.
struct Stubs(TempDir);

impl Stubs {
    fn new() -> Self {
        let stubs = Self(tempfile::tempdir().unwrap());
        for program in ["ray", "vllm", "sglang"] {
            stubs.put(program, &format!("printf '\\036'\nprintf '%s\\0' {program} \"$@\""));
        }
        stubs
    }

    /// Written by a process of its own: what this one writes, a child that another test is just starting has open too, and
    /// a program that somebody writes to is not run.
    fn put(&self, program: &str, script: &str) {
        let write = r#"printf '%s\n' '#!/bin/sh' "$2" > "$1" && chmod 755 "$1""#;
        let path = self.0.path().join(program);
        let written = Command::new("/bin/sh").args(["-c", write, "sh"]).arg(path).arg(script).status();
        assert!(written.unwrap().success());
    }

    /// Likewise for a container that need not start a shell.
    fn started(&self, container: &Value) -> Vec<Vec<String>> {
        let words = ["command", "args"].map(|field| container[field].as_array().cloned().unwrap_or_default()).concat();
        let words: Vec<String> = words.iter().map(|word| kubelet(word.as_str().unwrap())).collect();
        self.outcome(Command::new("/usr/bin/env").args(&words))
    }

    /// Every command that the container runs, as words. `shell` stands in for the image's `/bin/sh`.
    fn run(&self, shell: &str, container: &Value) -> Vec<Vec<String>> {
        let script = kubelet(container["args"][0].as_str().unwrap());
        self.outcome(Command::new(shell).args(["-c", &script]))
    }

    fn outcome(&self, command: &mut Command) -> Vec<Vec<String>> {
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        let variables = [("PATH", path.as_str()), ("LWS_LEADER_ADDRESS", "leader.svc"), ("KEY", QUOTES)];
        let output = command.envs(variables).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let commands = text.split('\x1e').skip(1);
        commands.map(|command| command.split_terminator('\0').map(str::to_owned).collect()).collect()
    }
}

/// What the kubelet puts in before a shell sees the line.
fn kubelet(script: &str) -> String {
    let variables = [("PORT", "8123"), ("LWS_LEADER_ADDRESS", "leader.svc"), ("LWS_WORKER_INDEX", "1")];
    variables.iter().fold(script.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

fn shells() -> Vec<&'static str> {
    ["/bin/sh", "/bin/bash", "/bin/dash"].into_iter().filter(|shell| Path::new(shell).exists()).collect()
}

fn spread(args: &[&str]) -> multinode::ReplicaTemplates {
    let container = json!({"name": "engine", "image": "vllm/vllm-openai:v0.11.0", "args": args});
    let template = json!({"spec": {"containers": [container]}});
    multinode::expand_template(&template, 2, Some(MultinodeBackend::Ray), 8000).unwrap()
}

// spec: TOP-29
#[test]
fn the_engine_receives_what_the_template_says() {
    let stubs = Stubs::new();
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

/// The kubelet puts nothing in for a variable that the shell reads: a quote in it cannot end the word.
// spec: TOP-47
#[test]
fn a_value_with_quotes_arrives_whole() {
    let stubs = Stubs::new();
    let container = json!({"name": "engine", "image": "vllm/vllm-openai:v0.11.0", "args": ["m", "--api-key", "$(KEY)", "--port=$(PORT)"],
        "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "PORT", "value": "8123"}]});
    let template = json!({"spec": {"containers": [container]}});
    let leader = multinode::expand_template(&template, 2, None, 8000).unwrap().leader;
    for shell in shells() {
        let commands = stubs.run(shell, &leader["spec"]["containers"][0]);
        let told = ["vllm", "serve", "m", "--api-key", QUOTES, "--port=8123", "--distributed-executor-backend", "ray"];
        assert_eq!(commands[1], told, "{shell}");
    }
}

// spec: TOP-45
#[test]
fn a_worker_asks_for_the_head_and_joins_it() {
    let stubs = Stubs::new();
    let worker = spread(&[]).worker;
    for shell in shells() {
        let commands = stubs.run(shell, &worker["spec"]["containers"][0]);
        // The question's answer goes nowhere; what is left is the join.
        assert_eq!(commands, [["ray", "start", "--address=leader.svc:6379", "--block"]], "{shell}");
    }
}

// The stand-in for Ray refuses twice before a head answers; the pause between is the image's `sleep`.
// spec: TOP-46
#[test]
fn a_worker_that_is_there_first_waits_for_the_head() {
    let stubs = Stubs::new();
    let asked = stubs.0.path().join("asked");
    let ray = format!(
        "if [ $1 = health-check ]; then echo x >> {0}; [ $(wc -l < {0}) -ge 3 ]; exit; fi; printf '\\036'; printf '%s\\0' ray \"$@\"",
        asked.display()
    );
    stubs.put("ray", &ray);
    stubs.put("sleep", "exit 0");
    let worker = spread(&[]).worker;
    let container = &worker["spec"]["containers"][0];
    let commands = stubs.run("/bin/sh", container);
    assert_eq!(commands, [["ray", "start", "--address=leader.svc:6379", "--block"]]);
    assert_eq!(std::fs::read_to_string(asked).unwrap().lines().count(), 3);
    // The address is LeaderWorkerSet's to say.
    assert!(!container["env"].to_string().contains("LWS_LEADER_ADDRESS"));
}

/// The same words on leader and worker, but for what each is told of its place.
#[rstest]
#[case::vllm("vllm", &["serve", "m"], &["--distributed-executor-backend", "mp", "--nnodes", "2", "--node-rank", "1", "--master-addr", "leader.svc"])]
#[case::sglang("sglang", &["serve", "m"], &["--dist-init-addr", "leader.svc:20000", "--nnodes", "2", "--node-rank", "1"])]
fn the_engines_own_rendezvous_keeps_every_argument(
    #[case] program: &str,
    #[case] words: &[&str],
    #[case] joined: &[&str],
) {
    const ODD: [&str; 5] = ["--json", r#"{"a":"it's","b":["$HOME"]}"#, "$(PORT)", "a  b", ""];
    let kept = [words, &["--json", r#"{"a":"it's","b":["$HOME"]}"#, "8123", "a  b", ""]].concat();
    let stubs = Stubs::new();
    let words = [&[program], words, &ODD].concat();
    let script = words.iter().map(|word| crate::launch::shell::quote(word)).collect::<Vec<_>>().join(" ");
    let lists = json!({"name": "engine", "image": "x", "command": [program], "args": words[1..]});
    let shell =
        json!({"name": "engine", "image": "x", "command": ["/bin/sh", "-c"], "args": [format!("exec {script}")]});
    for container in [lists, shell] {
        let template = json!({"spec": {"containers": [container]}});
        let templates = multinode::expand_template(&template, 2, Some(MultinodeBackend::Native), 8000).unwrap();
        for (template, headless) in [(templates.leader, false), (templates.worker, program == "vllm")] {
            let commands = stubs.started(&template["spec"]["containers"][0]);
            let mut expect = [&[program][..], &kept, joined].concat();
            expect.extend(headless.then_some("--headless"));
            assert_eq!(commands, [expect]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn no_argument_changes_on_its_way(words in prop::collection::vec("[ -~\n\t]{0,12}", 0..6)) {
        let stubs = Stubs::new();
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
