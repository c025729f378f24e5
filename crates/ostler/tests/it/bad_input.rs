//! Invalid input is reported as one line with a hint and exit code 1.

use rstest::rstest;

use crate::session::{TempDirectory, ostler, outcome};

#[rstest]
#[case::broken_yaml("a: [1", "f.yaml, document 1")]
#[case::wrong_kind("apiVersion: v9\nkind: Unknown\nmetadata: {name: x}\n", "does not serve kind Unknown in v9")]
#[case::wrong_type(
    "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: x}\nspec: {model: 3}\n",
    "spec.model"
)]
fn up_rejects(#[case] manifest: &str, #[case] expected: &str) {
    let directory = TempDirectory::new();
    let file = directory.file("f.yaml", manifest);
    let data = directory.0.display().to_string();
    let output = ostler(&["up", "-f", &file, "--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--data-dir", &data])
        .output()
        .unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    let error = stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{stderr}"));
    assert!(error.contains(expected), "{error}");
}

/// The misspelled field is the cause of the error.
#[test]
fn error_follows_the_warning_about_a_misspelled_field() {
    let directory = TempDirectory::new();
    let manifest =
        "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: x}\nspec: {modle: {name: m}}\n";
    let file = directory.file("f.yaml", manifest);
    let (stdout, stderr, code) = outcome(&ostler(&["plan", "-f", &file]).output().unwrap());
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    let (warning, error) = stderr.split_once("error: ").unwrap_or_else(|| panic!("{stderr}"));
    assert!(warning.contains("unknown field `modle`") && warning.contains("did you mean `model`?"), "{stderr}");
    assert!(error.contains("no model, runtime or engine container is set"), "{stderr}");
}

/// A rejected node ends the start, which would otherwise continue without it.
#[test]
fn up_rejects_nodes() {
    let directory = TempDirectory::new();
    let nodes = directory.file("nodes.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: Big_0}\n");
    let data = directory.0.display().to_string();
    let args = ["up", "--nodes", &nodes, "--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--data-dir", &data];
    let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    let cause =
        "error: failed to register node Big_0: Node \"Big_0\" is invalid: metadata.name: Invalid value: \"Big_0\"";
    assert!(
        stderr.starts_with(cause) && stderr.ends_with("hint: correct the node in the file of --nodes\n"),
        "{stderr}"
    );
}

#[rstest]
#[case("--api", "--gateway")]
#[case("--gateway", "--api")]
fn address_in_use_names_the_flag(#[case] flag: &str, #[case] other_flag: &str) {
    let bound_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = bound_listener.local_addr().unwrap().to_string();
    let directory = TempDirectory::new();
    let data = directory.0.display().to_string();
    let output = ostler(&["up", flag, &address, other_flag, "127.0.0.1:0", "--data-dir", &data]).output().unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    let cause = format!("error: cannot listen on {address}: Address already in use (os error 98)");
    let hint = format!("hint: another process uses this address; choose another one with {flag} 127.0.0.1:0");
    assert_eq!(stderr.lines().collect::<Vec<_>>(), [cause, hint]);
}

// spec: ACC-125
#[rstest]
#[case("plan", &["-f", "service.yaml"])]
#[case("up", &[])]
#[case("operator", &[])]
fn rejects_unknown_feature_gates(#[case] command: &str, #[case] args: &[&str]) {
    let output = ostler(&[command, "--feature-gates", "Fast=true"]).args(args).output().unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    assert!(stderr.contains("Fast") && stderr.contains("AcceleratorAwareScheduling"), "{stderr}");
}

/// Usage errors and invalid files: one line with a hint on stderr, nothing on stdout, exit code 1.
#[test]
fn errors_are_one_line_with_a_hint() {
    let directory = TempDirectory::new();
    directory.file("empty.yaml", "");
    directory.file("service.yaml", SERVICE);
    directory.file("size.yaml", MODEL);
    directory.file("plugins.yaml", PLUGINS);
    directory.file("replicas.yaml", &SERVICE.replace("{name: m}", "{name: m}\n  engine: {minReplicas: -1}"));
    directory.file("kubeconfig", "password: secret\n- x");
    directory.file("refused", KUBECONFIG);
    std::fs::write(directory.0.join("binary.yaml"), [0x7f, b'E', b'L', b'F', 0xff, 0xfe]).unwrap();
    std::fs::create_dir(directory.0.join("empty-directory")).unwrap();
    let mut transcript = String::new();
    for line in INVALID_COMMANDS.trim().lines() {
        let args: Vec<&str> = line.split_whitespace().collect();
        let output = ostler(&args).current_dir(&directory.0).env("XDG_RUNTIME_DIR", &directory.0).output().unwrap();
        let (stdout, stderr, code) = outcome(&output);
        assert_eq!((stdout.as_str(), code), ("", Some(1)), "{line}: {stderr}");
        transcript.push_str(&format!("$ ostler {line}\n{stderr}"));
    }
    insta::assert_snapshot!(transcript);
}

const SERVICE: &str =
    "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: x}\nspec:\n  model: {name: m}\n";
const MODEL: &str =
    "apiVersion: ome.io/v1beta1\nkind: BaseModel\nmetadata: {name: x}\nspec: {modelParameterSize: 7Bx}\n";

const PLUGINS: &str = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: queue-scorer, parameters: {limit: 5}}]\n";

/// Nothing listens on port 1.
const KUBECONFIG: &str = "{apiVersion: v1, kind: Config, current-context: a, \
    clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], contexts: [{name: a, context: {cluster: a, user: a}}]}";

const INVALID_COMMANDS: &str = "
pln
plan
plan --clutser x
plan -f service.yaml -o xml
plan -f service.yaml --volcano latest
plan -f service.yaml --feature-gates Fast=true
plan -f service.yaml --cluster service.yaml --context x
plan -f missing.yaml
plan -f empty.yaml
plan -f binary.yaml
plan -f empty-directory
plan -f size.yaml
plan -f replicas.yaml
plan -f /dev/zero
up --api invalid
up --api 0.0.0.0:6443
up --once
up --nodes empty-directory
up -f missing.yaml
up -f empty.yaml
up -f replicas.yaml
up --api 127.0.0.1:0 --gateway 127.0.0.1:0 --data-dir /proc/ostler
explain
explain chat
explain job/chat
explain isvc/x --kubeconfig missing
explain isvc/x --kubeconfig kubeconfig
explain isvc/x --kubeconfig refused
catalog shw
up --log-level loud
up --log-format xml
picker
picker --pool-name p --config-file missing.yaml
picker --pool-name p --config-file service.yaml
picker --pool-name p --config-file plugins.yaml
picker --pool-name p --config-file plugins.yaml --config-text x
picker --pool-name p --config-text [
picker --pool-name p --pool-group v1
picker --pool-name p --cert-path missing
picker --pool-name p --request-memory 32Mi
gateway --request-memory 16Mi
gateway --request-memory 256MB
gateway --cert-path missing
gateway --api-keys missing
picker --pool-name p --metrics-endpoint-auth
picker --pool-name p --kv-cache-usage-percentage-metric my:usage
";

/// `ostler crds | head -1` exits successfully.
#[test]
fn closed_stdout_is_not_an_error() {
    use std::io::{BufRead, BufReader};
    let mut child =
        ostler(&["crds"]).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (_, stderr, code) = outcome(&child.wait_with_output().unwrap());
    assert_eq!((line.as_str(), stderr.as_str(), code), ("---\n", "", Some(0)));
}

/// Oversized input is planned or rejected without a panic, and the output is limited.
#[rstest]
#[case::name(SERVICE.replace("name: x", &format!("name: {}", "x".repeat(1 << 20))), 1, "metadata.name: ")]
#[case::class(service_with_classes(&"x".repeat(1 << 20)), 1, "may not be more than 253")]
#[case::many_classes(service_with_classes(&vec!["c"; 50_000].join(", ")), 1, "must have at most 256 items")]
#[case::many_arguments(service_with_runner(&format!("args: [{}]", join_items(|n| format!("--f{n}=1")))), 0, "— feasible")]
#[case::many_variables(service_with_runner(&format!("env: [{}]", join_items(|n| format!("{{name: A{n}, value: \"1\"}}")))), 0, "— feasible")]
fn limits_output_for_oversized_input(#[case] manifest: String, #[case] code: i32, #[case] expected: &str) {
    let directory = TempDirectory::new();
    let file = directory.file("f.yaml", &manifest);
    for command in ["plan", "lint"] {
        let (stdout, stderr, exit) = outcome(&ostler(&[command, "-f", &file]).output().unwrap());
        assert!(stdout.len() + stderr.len() < 20_000, "{command}: {} bytes", stdout.len() + stderr.len());
        if command == "plan" {
            assert_eq!(exit, Some(code), "{stderr}");
            assert!(format!("{stdout}{stderr}").contains(expected), "{stdout}{stderr}");
        }
    }
}

fn service_with_classes(classes: &str) -> String {
    format!("{SERVICE}  acceleratorSelector: {{preferredClasses: [{classes}]}}\n")
}

fn service_with_runner(runner: &str) -> String {
    let service = SERVICE.replace("{name: m}", "{name: llama-3-1-8b-instruct}");
    format!("{service}  engine: {{runner: {{{runner}}}}}\n")
}

fn join_items(item: impl Fn(usize) -> String) -> String {
    (0..20_000).map(item).collect::<Vec<_>>().join(", ")
}

/// Waits for the real time limit of 25 s. The plugin keeps running after the command has ended.
#[test]
fn credential_plugin_that_hangs_at_the_refresh_ends_the_command() {
    let directory = TempDirectory::new();
    let credential = r#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "secret", "expirationTimestamp": "2020-01-01T00:00:00Z"}}"#;
    let calls = directory.0.join("calls");
    let script = format!(
        "echo >> {calls}\ntest $(wc -l < {calls}) -eq 1 || exec sleep 60\necho '{credential}'\n",
        calls = calls.display()
    );
    directory.file("plugin.sh", &script);
    let kubeconfig = format!(
        "apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:9'}}}}]
users:
- name: u
  user:
    exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{script}], interactiveMode: Never}}
",
        script = directory.0.join("plugin.sh").display()
    );
    let kubeconfig = directory.file("kubeconfig", &kubeconfig);
    let output = ostler(&["explain", "inferenceservice/chat", "--kubeconfig", &kubeconfig]).output().unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!((stdout.as_str(), code), ("", Some(1)), "{stderr}");
    let expected = [
        "kubeconfig: the credential plugin `sh` did not return credentials within 25 s",
        "hint: run `sh` with its arguments in the kubeconfig to see what it waits for, for example a login, and then retry",
    ];
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines.len() == 2 && lines[0].ends_with(expected[0]) && lines[1] == expected[1], "{stderr}");
}
