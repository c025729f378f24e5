//! What is wrong with the input is said in one line, with a remedy, and exit code 1.

use rstest::rstest;

use crate::session::{Folder, ostler, outcome};

#[rstest]
#[case::broken_yaml("a: [1", "f.yaml, document 1")]
#[case::wrong_kind("apiVersion: v9\nkind: Nothing\nmetadata: {name: x}\n", "no kind Nothing in v9")]
#[case::wrong_type(
    "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: x}\nspec: {model: 3}\n",
    "spec.model"
)]
fn up_refuses(#[case] manifest: &str, #[case] expected: &str) {
    let folder = Folder::new();
    let file = folder.file("f.yaml", manifest);
    let data = folder.0.display().to_string();
    let output = ostler(&["up", "-f", &file, "--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--data-dir", &data])
        .output()
        .unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    let error = stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{stderr}"));
    assert!(error.contains(expected), "{error}");
}

#[rstest]
#[case("--api", "--gateway")]
#[case("--gateway", "--api")]
fn a_busy_port_names_the_flag(#[case] flag: &str, #[case] other: &str) {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let folder = Folder::new();
    let data = folder.0.display().to_string();
    let output = ostler(&["up", flag, &address, other, "127.0.0.1:0", "--data-dir", &data]).output().unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    let cause = format!("error: cannot listen on {address}: Address already in use (os error 98)");
    let hint = format!("hint: another process listens there: choose another with {flag} 127.0.0.1:0");
    assert_eq!(stderr.lines().collect::<Vec<_>>(), [cause, hint]);
}

/// Every mistake on the command line and with files: one line, a hint, exit code 1, nothing on stdout.
#[test]
fn every_error_is_one_line_with_a_hint() {
    let folder = Folder::new();
    folder.file("empty.yaml", "");
    folder.file("service.yaml", SERVICE);
    folder.file("size.yaml", MODEL);
    folder.file("plugins.yaml", PLUGINS);
    folder.file("replicas.yaml", &SERVICE.replace("{name: m}", "{name: m}\n  engine: {minReplicas: -1}"));
    folder.file("kubeconfig", "password: secret\n- x");
    std::fs::write(folder.0.join("binary.yaml"), [0x7f, b'E', b'L', b'F', 0xff, 0xfe]).unwrap();
    std::fs::create_dir(folder.0.join("nothing")).unwrap();
    let mut said = String::new();
    for line in MISTAKES.trim().lines() {
        let args: Vec<&str> = line.split_whitespace().collect();
        let output = ostler(&args).current_dir(&folder.0).env("XDG_RUNTIME_DIR", &folder.0).output().unwrap();
        let (stdout, stderr, code) = outcome(&output);
        assert_eq!((stdout.as_str(), code), ("", Some(1)), "{line}: {stderr}");
        said.push_str(&format!("$ ostler {line}\n{stderr}"));
    }
    insta::assert_snapshot!(said);
}

const SERVICE: &str =
    "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: x}\nspec:\n  model: {name: m}\n";
const MODEL: &str =
    "apiVersion: ome.io/v1beta1\nkind: BaseModel\nmetadata: {name: x}\nspec: {modelParameterSize: 7Bx}\n";

const PLUGINS: &str = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: queue-scorer, parameters: {limit: 5}}]\n";

const MISTAKES: &str = "
pln
plan
plan --clutser x
plan -f service.yaml -o xml
plan -f service.yaml --volcano soon
plan -f service.yaml --feature-gates Fast=true
plan -f service.yaml --cluster service.yaml --context x
plan -f missing.yaml
plan -f empty.yaml
plan -f binary.yaml
plan -f nothing
plan -f size.yaml
plan -f replicas.yaml
plan -f /dev/zero
up --api here
up --api 0.0.0.0:6443
up --once
up --nodes nothing
up -f missing.yaml
up -f empty.yaml
up -f replicas.yaml
up --api 127.0.0.1:0 --gateway 127.0.0.1:0 --data-dir /proc/ostler
explain
explain chat
explain pod/chat
explain isvc/x --kubeconfig missing
explain isvc/x --kubeconfig kubeconfig
catalog shw
picker
picker --pool-name p --config-file missing.yaml
picker --pool-name p --config-file service.yaml
picker --pool-name p --config-file plugins.yaml
picker --pool-name p --config-file plugins.yaml --config-text x
picker --pool-name p --config-text [
picker --pool-name p --pool-group v1
picker --pool-name p --cert-path missing
picker --pool-name p --metrics-endpoint-auth
picker --pool-name p --kv-cache-usage-percentage-metric my:usage
";

/// `ostler crds | head -1`: the reader leaves, and that is all.
#[test]
fn a_reader_that_leaves_is_no_error() {
    use std::io::{BufRead, BufReader};
    let mut child =
        ostler(&["crds"]).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (_, stderr, code) = outcome(&child.wait_with_output().unwrap());
    assert_eq!((line.as_str(), stderr.as_str(), code), ("---\n", "", Some(0)));
}

/// What is absurdly large is refused or planned, never a panic, and what is said of it stays a screenful.
#[rstest]
#[case::a_name(SERVICE.replace("name: x", &format!("name: {}", "x".repeat(1 << 20))), 1, "metadata.name: ")]
#[case::a_class(selecting(&"x".repeat(1 << 20)), 1, "may not be more than 253")]
#[case::many_classes(selecting(&vec!["c"; 50_000].join(", ")), 1, "must have at most 256 items")]
#[case::many_arguments(running(&format!("args: [{}]", list(|n| format!("--f{n}=1")))), 0, "— feasible")]
#[case::many_variables(running(&format!("env: [{}]", list(|n| format!("{{name: A{n}, value: \"1\"}}")))), 0, "— feasible")]
fn large_and_absurd(#[case] manifest: String, #[case] code: i32, #[case] expected: &str) {
    let folder = Folder::new();
    let file = folder.file("f.yaml", &manifest);
    for command in ["plan", "lint"] {
        let (stdout, stderr, exit) = outcome(&ostler(&[command, "-f", &file]).output().unwrap());
        assert!(stdout.len() + stderr.len() < 20_000, "{command}: {} bytes", stdout.len() + stderr.len());
        if command == "plan" {
            assert_eq!(exit, Some(code), "{stderr}");
            assert!(format!("{stdout}{stderr}").contains(expected), "{stdout}{stderr}");
        }
    }
}

fn selecting(classes: &str) -> String {
    format!("{SERVICE}  acceleratorSelector: {{preferredClasses: [{classes}]}}\n")
}

fn running(runner: &str) -> String {
    let service = SERVICE.replace("{name: m}", "{name: llama-3-1-8b-instruct}");
    format!("{service}  engine: {{runner: {{{runner}}}}}\n")
}

fn list(of: impl Fn(usize) -> String) -> String {
    (0..20_000).map(of).collect::<Vec<_>>().join(", ")
}
