//! Other people's clients over TLS, each a program that says `ok` at its end: started by
//! `cargo xtask test --with python,client-go`.

use std::net::TcpListener;
use std::process::Output;

use embedded::serve::{Credentials, kubeconfig, serve, write_kubeconfig};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

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
    let path = std::env::temp_dir().join(format!("ostler-clients-{name}-{}", std::process::id()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let credentials = Credentials::generate().unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    write_kubeconfig(&path, &kubeconfig(&credentials, &url)).unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let (server, stop) = (crate::server(), stop.clone());
        async move { serve(server, listener, &credentials, stop).await }
    });
    let Output { status, stdout, stderr } = command.arg(&path).env("NO_PROXY", "*").output().await.unwrap();
    stop.cancel();
    serving.await.unwrap().unwrap();
    std::fs::remove_file(path).unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && stdout.trim() == "ok", "{name}: {status}: {stdout}{stderr}");
}

fn part(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run this by cargo xtask test --with"))
}
