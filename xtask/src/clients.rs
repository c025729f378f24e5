//! Other people's clients of the embedded server, each installed under `target/`.

use anyhow::{Result, bail};

use crate::process::{self, cargo, command};

/// The official Python client.
const KUBERNETES: &str = "kubernetes==37.0.2";

/// The Python `kubernetes` package, in a virtual environment of its own: objects, pages, watches, apply.
pub(crate) fn python() -> Result<()> {
    let venv = crate::root().join("target/python-venv");
    let python = venv.join("bin/python");
    if !python.exists() && process::run(&mut command("python3", &["-m", "venv", &venv.to_string_lossy()])).is_err() {
        bail!(
            "suite python: cannot make a virtual environment\nhint: install Python 3.9 or newer with its venv module"
        );
    }
    if process::run(&mut command(&python, &["-m", "pip", "install", "--quiet", KUBERNETES])).is_err() {
        bail!(
            "suite python: cannot install {KUBERNETES}\nhint: it comes from PyPI; `pip config` says which index is asked"
        );
    }
    process::run(suite("clients::python").env("OSTLER_PYTHON", python))
}

/// client-go in a small program: an informer, a lease election and a loop of server-side apply.
pub(crate) fn client_go() -> Result<()> {
    let program = crate::root().join("target/client-go");
    let mut build = command("go", &["build", "-o", &program.to_string_lossy(), "."]);
    if process::run(build.current_dir(crate::root().join("crates/embedded/tests/clients/go"))).is_err() {
        bail!(
            "suite client-go: the program was not built\nhint: install Go 1.26 or newer; the modules come from $GOPROXY"
        );
    }
    process::run(suite("clients::client_go").env("OSTLER_CLIENT_GO", program))
}

fn suite(name: &str) -> std::process::Command {
    cargo(&["test", "--package", "embedded", "--test", "it", "--", "--ignored", "--exact", name])
}
