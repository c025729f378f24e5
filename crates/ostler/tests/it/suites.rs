//! Journeys with other people's clients, started by `cargo xtask test --with openai`; `kubectl` has a
//! file of its own.

use std::process::Command;

use crate::session::{Session, outcome};

/// The Python `openai` package of `$OSTLER_PYTHON`.
#[test]
#[ignore = "needs the openai package: cargo xtask test --with openai"]
fn openai() {
    let session = Session::start(&["--demo"]);
    let output = Command::new(part("OSTLER_PYTHON"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openai_client.py"))
        .arg(&session.gateway)
        // The client would ask a proxy for this machine.
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1")
        .output()
        .unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!((code, stdout.trim()), (Some(0), "ok"), "{stderr}");
}

pub(crate) fn part(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run this suite by cargo xtask test --with"))
}
