//! Other people's clients over TLS, each a program that says `ok` at its end: started by
//! `cargo xtask test --with python,client-go`.

use std::net::TcpListener;
use std::process::Output;
use std::time::Duration;

use embedded::serve::{Credentials, kubeconfig, serve, write_kubeconfig};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// Longer than any of them takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(1200);

/// The `kubernetes` package of `$OSTLER_PYTHON`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the kubernetes package: cargo xtask test --with python"]
async fn python() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/python_client.py");
    says_ok("python", Command::new(part("OSTLER_PYTHON")).arg(program)).await;
}

/// The program of `tests/clients/go`, built.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go: cargo xtask test --with client-go"]
async fn client_go() {
    says_ok("client-go", &mut Command::new(part("OSTLER_CLIENT_GO"))).await;
}

/// Runs it against a server of its own, whose kubeconfig is its last argument.
async fn says_ok(name: &str, command: &mut Command) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let credentials = Credentials::generate().unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    write_kubeconfig(&path, &kubeconfig(&credentials, &url)).unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let (server, stop) = (crate::server(), stop.clone());
        async move { serve(server, listener, &credentials, stop).await }
    });
    let ended = command.arg(&path).env("NO_PROXY", "*").kill_on_drop(true).output();
    let ended = tokio::time::timeout(PATIENCE, ended).await.unwrap_or_else(|_| panic!("{name} does not end"));
    let Output { status, stdout, stderr } = ended.unwrap();
    stop.cancel();
    serving.await.unwrap().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && stdout.trim() == "ok", "{name}: {status}: {stdout}{stderr}");
}

fn part(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run this by cargo xtask test --with"))
}
