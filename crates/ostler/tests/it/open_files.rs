//! The limit on open files.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Returns hard and soft limit of the process.
fn limits(pid: u32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut values = line.split_whitespace().map(|value| value.parse().unwrap_or(u64::MAX));
    let soft = values.next().unwrap();
    (values.next().unwrap(), soft)
}

#[test]
fn servers_raise_the_soft_limit() {
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -S -n 256 && exec "$0" "$@""#, env!("CARGO_BIN_EXE_ostler")]);
    command.args(["engine", "model", "--listen", "127.0.0.1:0"]);
    let mut engine = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(engine.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    let (hard, soft) = limits(engine.id());
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert_eq!(soft, hard.min(65_536));
}
