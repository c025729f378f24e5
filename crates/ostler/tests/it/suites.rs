//! Tests with third-party clients, run by `cargo xtask test --with openai`. Tests with `kubectl` are in `kubectl.rs`.

use std::process::Command;

use crate::session::{Session, outcome};

/// Sends requests with the Python package `openai` of `$OSTLER_PYTHON`.
#[test]
#[ignore = "needs the openai package: cargo xtask test --with openai"]
fn openai() {
    let session = Session::start(&["--demo"]);
    let output = Command::new(required_variable("OSTLER_PYTHON"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openai_client.py"))
        .arg(&session.gateway)
        // Without this, the client uses proxies for loopback addresses.
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1")
        .output()
        .unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!((code, stdout.trim()), (Some(0), "ok"), "{stderr}");
}

/// Returns an environment variable that `cargo xtask test --with` sets.
pub(crate) fn required_variable(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set; run this suite with `cargo xtask test --with`"))
}
