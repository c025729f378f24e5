//! Suites that test the embedded API server with third-party clients, installed below `target/`.

use anyhow::{Result, bail};

use crate::download::{self, Package};
use crate::process::{self, command, ignored_test};
use crate::workspace;

/// The official Python client.
const KUBERNETES: Package = Package { suite: "python", name: "kubernetes", version: "37.0.2" };

/// Tests the Python `kubernetes` package: objects, pagination, watches and apply.
pub(crate) fn python() -> Result<()> {
    let Some(python) = KUBERNETES.python()? else { return Ok(()) };
    process::run(ignored_test("clients::python").env("OSTLER_PYTHON", python))
}

/// Tests client-go with a small program: an informer, leader election and server-side apply.
pub(crate) fn client_go() -> Result<()> {
    let (program, source) =
        (workspace::root().join("target/client-go"), workspace::root().join("crates/embedded/tests/clients/go"));
    if !download::go_modules("client-go", &source)? {
        return Ok(());
    }
    let mut build = command("go", &["build", "-o", &program.to_string_lossy(), "."]);
    if process::run(build.current_dir(source)).is_err() {
        bail!("suite client-go: failed to build the program\nhint: install Go 1.26 or newer");
    }
    process::run(ignored_test("clients::client_go").env("OSTLER_CLIENT_GO", program))
}
