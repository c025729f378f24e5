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

#[test]
fn a_busy_port_names_the_flag() {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let output = ostler(&["up", "--api", "127.0.0.1:0", "--gateway", &address]).output().unwrap();
    let (_, stderr, code) = outcome(&output);
    assert_eq!(code, Some(1));
    assert!(stderr.contains(&format!("error: cannot listen on {address}")), "{stderr}");
    assert!(stderr.contains("hint: another process listens there: choose another with --gateway"), "{stderr}");
}

#[test]
fn a_missing_file_is_named() {
    let (_, stderr, code) = outcome(&ostler(&["plan", "-f", "no-such-file.yaml"]).output().unwrap());
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: no-such-file.yaml"), "{stderr}");
}
