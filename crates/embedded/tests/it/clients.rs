//! Tests with the official Python and Go clients over TLS. Each client is a program that prints `ok` on success,
//! started by `cargo xtask test --with python,client-go`.

use std::net::TcpListener;
use std::process::Output;
use std::time::Duration;

use embedded::{Credentials, kubeconfig, serve, write_kubeconfig};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// Time limit of a client program, sufficient for slow machines.
const TIMEOUT: Duration = Duration::from_secs(1200);

/// Python client: the `kubernetes` package of `$OSTLER_PYTHON`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the kubernetes package: cargo xtask test --with python"]
async fn python() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/python_client.py");
    run_client("python", Command::new(required_variable("OSTLER_PYTHON")).arg(program)).await;
}

/// Go client: the built program of `tests/clients/go`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go: cargo xtask test --with client-go"]
async fn client_go() {
    run_client("client-go", &mut Command::new(required_variable("OSTLER_CLIENT_GO"))).await;
}

/// Runs a client program against a new server; the kubeconfig is the last argument.
async fn run_client(name: &str, command: &mut Command) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let credentials = Credentials::generate().unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    write_kubeconfig(&path, &kubeconfig(&credentials, &url, &[])).unwrap();
    let stop = CancellationToken::new();
    let server_task = tokio::spawn({
        let (server, stop) = (crate::server(), stop.clone());
        async move { serve(server, listener, &credentials, stop).await }
    });
    let output = command.arg(&path).env("NO_PROXY", "*").kill_on_drop(true).output();
    let output = tokio::time::timeout(TIMEOUT, output).await.unwrap_or_else(|_| panic!("{name} timed out"));
    let Output { status, stdout, stderr } = output.unwrap();
    stop.cancel();
    server_task.await.unwrap().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && stdout.trim() == "ok", "{name}: {status}: {stdout}{stderr}");
}

fn required_variable(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set; run this test with cargo xtask test --with"))
}
