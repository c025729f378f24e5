//! `--log-level`, `--log-format` and the corresponding environment variables.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::session::{ostler, outcome};

/// Starts `ostler engine`, which logs a line at level `info`, and returns the standard error of the process.
fn engine_log(args: &[&str], env: &[(&str, &str)]) -> String {
    let mut command = ostler(&["engine", "llama", "--listen", "127.0.0.1:0"]);
    command.args(args).env_remove("OSTLER_LOG").envs(env.iter().copied());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    line
}

#[test]
fn writes_json_lines() {
    let line = engine_log(&["--log-format", "json"], &[]);
    let mut entry: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(entry["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    assert!(entry["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    entry["timestamp"] = "TIME".into();
    entry["address"] = "ADDRESS".into();
    insta::assert_snapshot!(serde_json::to_string_pretty(&entry).unwrap(), @r#"
    {
      "address": "ADDRESS",
      "level": "INFO",
      "message": "simulated engine is listening",
      "model": "llama",
      "target": "ostler::commands::engine",
      "timestamp": "TIME"
    }
    "#);
}

#[test]
fn piped_text_has_no_ansi_escapes() {
    let line = engine_log(&[], &[]);
    assert!(line.contains(" INFO ") && line.contains("simulated engine is listening"), "{line}");
    assert!(!line.contains('\u{1b}'), "{line:?}");
}

/// The option takes precedence over `$OSTLER_LOG`.
#[rstest]
#[case::option(&["--log-level", "info"], &[("OSTLER_LOG", "off")])]
#[case::ostler_log(&[], &[("OSTLER_LOG", "info")])]
#[case::default(&[], &[])]
#[case::filter(&["--log-level", "off,ostler=info"], &[])]
fn selects_level(#[case] args: &[&str], #[case] env: &[(&str, &str)]) {
    assert!(engine_log(args, env).contains("simulated engine is listening"));
}

#[test]
fn rejects_invalid_level_with_a_hint() {
    let (stdout, stderr, code) = outcome(&ostler(&["--log-level", "loud", "crds"]).output().unwrap());
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    insta::assert_snapshot!(stderr, @r"
    error: invalid value `loud` for --log-level <LEVEL>: expected error, warn, info, debug, trace, or a filter such as `info,kube=warn`
    hint: run `ostler crds --help` for usage
    ");
}

#[test]
fn help_documents_the_options() {
    let (stdout, _, code) = outcome(&ostler(&["up", "--help"]).output().unwrap());
    assert_eq!(code, Some(0));
    assert!(stdout.contains("--log-level <LEVEL>") && stdout.contains("--log-format <FORMAT>"), "{stdout}");
}
